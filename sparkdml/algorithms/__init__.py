"""How workers agree on one model: pure state machines. See :class:`sparkdml.algorithms.base.Algorithm`."""

from sparkdml.algorithms.base import Algorithm, State
from sparkdml.algorithms.irls import IRLS
from sparkdml.algorithms.lbfgs import LBFGS
from sparkdml.algorithms.newton import Newton
from sparkdml.algorithms.normal import NormalEquations
from sparkdml.algorithms.owlqn import OWLQN
from sparkdml.algorithms.projected import ProjectedLBFGS
from sparkdml.problem import Problem, Scaling

__all__ = [
    "IRLS",
    "LBFGS",
    "OWLQN",
    "Algorithm",
    "Newton",
    "NormalEquations",
    "Problem",
    "ProjectedLBFGS",
    "Scaling",
    "State",
]
