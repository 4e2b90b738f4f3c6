"""L-BFGS for objectives with an L1 penalty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdml.algorithms.arc_search import ArcSearch, ArcState, Measure
from sparkdml.algorithms.preconditioner import Diagonal, diagonal_preconditioner
from sparkdml.algorithms.quasi_newton import inverse_hessian_times, restricted
from sparkdml.problem import Problem


@dataclass(frozen=True)
class OWLQN(ArcSearch):
    """Orthant-wise limited-memory quasi-Newton: minimises ``smooth(c) + sum_jk t_j |c_jk|``, with exact zeros.

    ``t`` is ``problem.penalty.l1()``; intercepts are never penalised. Within one orthant ``|c|`` is linear, so each
    step keeps to the orthant of ``best`` (for a zero: the one that the objective falls towards), and coordinates that
    would leave it become 0. The direction is L-BFGS's for the pseudo-gradient over the coordinates that may move; one
    at 0, or about to be, moves only as the negative pseudo-gradient does. Coordinates without an L1 part are free:
    where ``t`` is 0 everywhere this is L-BFGS with backtracking.

    ``objective`` is all of the above and ``gradient_norm`` the pseudo-gradient's norm.

    unit_start : begin as if nothing were known of the problem's curvature: ``H_0`` is the identity, scaled by the
        latest pair, and the first step has length 0.5. Corrections are taken whole, and every coordinate, penalised
        or not, keeps to its orthant and moves only as the negative pseudo-gradient does (the paper's rule).

    Andrew & Gao, "Scalable training of L1-regularized log-linear models" (2007).
    """

    max_iterations: int
    tolerance: float
    corrections: int = 10
    unit_start: bool = False

    def init(self, problem: Problem, coef: np.ndarray) -> ArcState:
        preconditioner = Diagonal(np.ones(problem.size)) if self.unit_start else diagonal_preconditioner(problem)
        return ArcState(coef=coef, best=coef, preconditioner=preconditioner)

    def measure(self, problem: Problem, coef: np.ndarray, value: float, gradient: np.ndarray) -> Measure:
        strengths = l1_strengths(problem)
        slope = pseudo_gradient(coef, gradient, strengths)
        return Measure(value + float(strengths @ np.abs(coef)), slope, float(np.linalg.norm(slope)))

    def direction(self, problem: Problem, state: ArcState) -> np.ndarray:
        assert state.slope is not None
        bent = self._bent(problem)
        if self.unit_start:
            pairs = state.pairs
        else:
            pairs = restricted(state.pairs, ~bent | (state.best != 0.0) | (state.slope != 0.0))
            bent &= np.abs(state.best) <= state.near
        direction = -inverse_hessian_times(state.slope, pairs, state.preconditioner)
        direction[bent & (direction * state.slope >= 0.0)] = 0.0
        if self.unit_start and state.iteration == 0:
            direction *= 0.5 / np.linalg.norm(direction)
        return direction

    def project(self, problem: Problem, state: ArcState, coef: np.ndarray) -> np.ndarray:
        assert state.slope is not None
        orthant = np.where(state.best != 0.0, np.sign(state.best), -np.sign(state.slope))
        return np.where(self._bent(problem) & (np.sign(coef) != orthant), 0.0, coef)

    def _bent(self, problem: Problem) -> np.ndarray:
        """Coordinates that keep to their orthant, shape (size,)."""
        return (l1_strengths(problem) > 0.0) | self.unit_start


def l1_strengths(problem: Problem) -> np.ndarray:
    """``t`` for every entry of the flat vector, shape (size,); 0 for intercepts."""
    strengths = np.zeros(problem.size)
    by_feature = problem.penalty.l1()
    if by_feature is not None:
        coefficients, _ = problem.split(strengths)
        coefficients[:] = by_feature
    return strengths


def pseudo_gradient(coef: np.ndarray, gradient: np.ndarray, strengths: np.ndarray) -> np.ndarray:
    """The subgradient of least norm of ``smooth(c) + strengths'|c|``: 0 at the optimum and only there.

    ``gradient + strengths * sign(c)`` where ``c`` is not 0, else ``gradient`` shrunk towards 0 by ``strengths``.
    """
    shrunk = np.sign(gradient) * np.maximum(np.abs(gradient) - strengths, 0.0)
    return np.where(coef != 0.0, gradient + strengths * np.sign(coef), shrunk)
