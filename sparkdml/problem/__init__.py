"""What is minimised, and in which coordinates."""

from sparkdml.problem.base import Differentiable, RowGradient
from sparkdml.problem.function import Examples, Function, FunctionProblem, Params
from sparkdml.problem.linear import Objective, Problem, Scaling, inverse_of

__all__ = [
    "Differentiable",
    "Function",
    "FunctionProblem",
    "Objective",
    "Params",
    "Problem",
    "RowGradient",
    "Examples",
    "Scaling",
    "inverse_of",
]
