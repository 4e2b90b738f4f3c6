"""Penalties on the coefficients. See :class:`sparkdml.penalties.base.Penalty`."""

from sparkdml.penalties.base import Penalty
from sparkdml.penalties.elastic_net import ElasticNet
from sparkdml.penalties.l2 import L2

__all__ = ["L2", "ElasticNet", "Penalty"]
