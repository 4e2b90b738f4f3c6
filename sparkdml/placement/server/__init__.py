"""Parameters live in a sidecar process, which takes the steps; workers pull and push at their own pace."""

from sparkdml.placement.server.gradients import Pace
from sparkdml.placement.server.training import Server, Sidecar

__all__ = ["Pace", "Server", "Sidecar"]
