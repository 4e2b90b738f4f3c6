"""Coefficients live in shards on the executors, and are never whole on one machine."""

from sparkdml.placement.partitioned.rounds import Partitioned, TrainedShards

__all__ = ["Partitioned", "TrainedShards"]
