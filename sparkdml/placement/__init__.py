"""Where the model's parameters live. See :class:`sparkdml.placement.base.Placement`."""

from sparkdml.placement.allreduce import AllReduce
from sparkdml.placement.base import OnRound, Placement, Trained
from sparkdml.placement.broadcast import Broadcast
from sparkdml.placement.choice import NAMES, PLACEMENTS, Choice, choose
from sparkdml.placement.local import Local
from sparkdml.placement.partitioned import Partitioned, TrainedShards
from sparkdml.placement.server import Launch, Pace, Server, Sidecar

__all__ = [
    "NAMES", "PLACEMENTS", "AllReduce", "Broadcast", "Choice", "Launch", "Local", "OnRound", "Pace", "Partitioned",
    "Placement", "Server", "Sidecar", "Trained", "TrainedShards", "choose",
]  # fmt: skip
