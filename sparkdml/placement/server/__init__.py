"""Parameters live in processes beside Spark, which take the steps; workers pull and push at their own pace."""

from sparkdml.placement.server.fleets import Launch
from sparkdml.placement.server.training import Server, Sidecar

__all__ = ["Launch", "Server", "Sidecar"]
