"""Parameters live in a sidecar process, which takes the steps; workers pull and push at their own pace."""

from sparkdml.placement.server.training import Server, Sidecar

__all__ = ["Server", "Sidecar"]
