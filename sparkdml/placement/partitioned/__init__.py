"""Coefficients live in shards on the executors, and are never whole on one machine."""

from sparkdml.placement.partitioned.checkpoints import Keeper, Kept
from sparkdml.placement.partitioned.ending import TrainedShards
from sparkdml.placement.partitioned.rounds import Partitioned

__all__ = ["Keeper", "Kept", "Partitioned", "TrainedShards"]
