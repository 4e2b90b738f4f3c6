"""How workers agree on one model: pure state machines. See :class:`sparkdml.algorithms.base.Algorithm`."""

from sparkdml.algorithms.base import Algorithm, State
from sparkdml.algorithms.lbfgs import LBFGS
from sparkdml.algorithms.problem import Problem, Scaling

__all__ = ["LBFGS", "Algorithm", "Problem", "Scaling", "State"]
