"""Parameters live in processes beside Spark, which take the steps; workers pull and push at their own pace."""

from sparkdml.placement.server.fleets import Launch
from sparkdml.placement.server.gradients import Pace
from sparkdml.placement.server.sidecar import Sidecar
from sparkdml.placement.server.training import Server

__all__ = ["Launch", "Pace", "Server", "Sidecar"]
