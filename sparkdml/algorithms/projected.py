"""L-BFGS within bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdml.algorithms.arc_search import ArcSearch, ArcState, Measure
from sparkdml.algorithms.preconditioner import diagonal_preconditioner
from sparkdml.algorithms.quasi_newton import inverse_hessian_times, restricted
from sparkdml.problem import Problem


@dataclass(frozen=True)
class ProjectedLBFGS(ArcSearch):
    """Two-metric projection: minimises the smooth objective over ``lower <= c <= upper``.

    Coordinates at a bound (or nearer than ``min(1e-3, gradient_norm)``) that the gradient pushes outward are held:
    they follow the scaled negative gradient, and the projection leaves them at the bound. The others follow L-BFGS's
    direction for their part of gradient and corrections. ``gradient_norm`` is that of the projected gradient
    ``c - P(c - gradient)``.

    lower, upper : shape (size,), in the problem's coordinates; infinite where there is no bound. The start is moved
        into the box. ``ValueError`` where ``lower`` is above ``upper``.

    Bertsekas (1982); Schmidt, Kim & Sra, "Projected Newton-type methods in machine learning" (2011).
    """

    max_iterations: int
    tolerance: float
    lower: np.ndarray
    upper: np.ndarray
    corrections: int = 10

    def __post_init__(self) -> None:
        if self.lower.shape != self.upper.shape or self.lower.ndim != 1:
            raise ValueError(
                f"bounds are flat vectors of one length, not of shapes {self.lower.shape} and {self.upper.shape}"
            )
        wrong = np.flatnonzero(~(self.lower <= self.upper))
        if len(wrong):
            at = wrong[0]
            raise ValueError(f"lower[{at}] = {self.lower[at]} must not be above upper[{at}] = {self.upper[at]}")

    def init(self, problem: Problem, coef: np.ndarray) -> ArcState:
        if len(self.lower) != problem.size:
            raise ValueError(f"the bounds have {len(self.lower)} entries, the problem has {problem.size} coordinates")
        start = np.clip(coef, self.lower, self.upper)
        return ArcState(coef=start, best=start, preconditioner=diagonal_preconditioner(problem))

    def measure(self, problem: Problem, coef: np.ndarray, value: float, gradient: np.ndarray) -> Measure:
        projected = coef - np.clip(coef - gradient, self.lower, self.upper)
        return Measure(value, gradient, float(np.linalg.norm(projected)))

    def direction(self, problem: Problem, state: ArcState) -> np.ndarray:
        assert state.gradient is not None
        free = ~self._held(state, state.gradient)
        newton = inverse_hessian_times(state.gradient * free, restricted(state.pairs, free), state.preconditioner)
        return -np.where(free, newton, state.preconditioner.solve(state.gradient))

    def project(self, problem: Problem, state: ArcState, coef: np.ndarray) -> np.ndarray:
        return np.clip(coef, self.lower, self.upper)

    def _held(self, state: ArcState, gradient: np.ndarray) -> np.ndarray:
        at_lower = (gradient > 0.0) & (state.best <= self.lower + state.near)
        at_upper = (gradient < 0.0) & (state.best >= self.upper - state.near)
        return at_lower | at_upper
