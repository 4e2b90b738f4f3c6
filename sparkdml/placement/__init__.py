"""Where the model's parameters live. See :class:`sparkdml.placement.base.Placement`."""

from sparkdml.placement.allreduce import AllReduce
from sparkdml.placement.base import OnRound, Placement, Trained
from sparkdml.placement.broadcast import Broadcast
from sparkdml.placement.choice import PLACEMENTS, Choice, choose
from sparkdml.placement.local import Local

__all__ = ["PLACEMENTS", "AllReduce", "Broadcast", "Choice", "Local", "OnRound", "Placement", "Trained", "choose"]
