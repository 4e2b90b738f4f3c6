"""Limited-memory BFGS as a state machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.line_search import LineSearch
from sparkdml.algorithms.preconditioner import diagonal_preconditioner, gram_preconditioner
from sparkdml.algorithms.quasi_newton import (
    VALUE_WINDOW,
    QuasiNewtonState,
    after_step,
    diverged,
    inverse_hessian_times,
    judge,
    stalled,
)
from sparkdml.core import Turn, Update
from sparkdml.data.block import Block
from sparkdml.optim.gram import gram_matrix
from sparkdml.problem import Differentiable, Problem


@dataclass(frozen=True)
class LBFGSState(QuasiNewtonState):
    """With the direction from ``best`` and the line search along it."""

    direction: np.ndarray | None = None
    search: LineSearch | None = None


@dataclass(frozen=True)
class LBFGS(Algorithm[Differentiable]):
    """Limited-memory BFGS with a strong Wolfe line search.

    Each round evaluates one point: the workers' update is the loss and gradient sums there, ``advance`` answers
    with the next trial of the line search or the first trial along a new direction. ``H_0`` is a preconditioner,
    scaled by the latest pair: the inverse of the problem's curvature diagonal or, with ``gram``, of the curvature
    times the features' covariance, which workers add to their first update (:class:`~.preconditioner.Gram`).

    Stops when the gradient norm is at most ``max(tolerance * |F|, 1e-8)``, or the objective is within
    ``tolerance * |F_0|`` of the largest of its last 20 values: the rule ``tol`` stands for in ``pyspark.ml``.

    Nocedal & Wright, *Numerical Optimization* (2006), algorithms 7.4 and 7.5.
    """

    max_iterations: int
    tolerance: float
    gram: bool = False
    corrections: int = 10

    @property
    def solves(self) -> type[Differentiable]:
        return Problem if self.gram else Differentiable

    def init(self, problem: Differentiable, coef: np.ndarray) -> LBFGSState:
        return LBFGSState(coef=coef, best=coef, preconditioner=diagonal_preconditioner(problem))

    def work(
        self, problem: Differentiable, blocks: Sequence[Block], coef: np.ndarray, memory: None, turn: Turn
    ) -> tuple[Update, None]:
        update = problem.sums(blocks, coef)
        if self.gram and turn.clock == 0:
            assert isinstance(problem, Problem)
            update["gram"] = gram_matrix(blocks, problem.centre)
        return update, None

    def advance(self, problem: Differentiable, state: LBFGSState, total: Update) -> LBFGSState:
        value, gradient = problem.evaluate(state.coef, total)
        if "gram" in total:
            assert isinstance(problem, Problem)
            state = replace(state, preconditioner=gram_preconditioner(problem, np.asarray(total["gram"])))
        if state.search is None or state.direction is None:
            return self._begin(state, value, gradient)
        search = state.search.told(value, float(gradient @ state.direction))
        if search.accepted:
            moved = after_step(state, value, gradient, float(np.linalg.norm(gradient)), self.corrections)
            return self._look_ahead(judge(moved, self.max_iterations, self.tolerance))
        if search.failed:
            return self._restart(state)
        return replace(state, search=search, coef=state.best + search.step * state.direction)

    def _begin(self, state: LBFGSState, value: float, gradient: np.ndarray) -> LBFGSState:
        state = replace(state, objective=value, gradient=gradient, gradient_norm=float(np.linalg.norm(gradient)))
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            return replace(state, stop=diverged(value))
        restarted = math.isfinite(state.first_objective)
        state = replace(
            state,
            best=state.coef,
            first_objective=state.first_objective if restarted else value,
            values=(*state.values, value)[-VALUE_WINDOW:],
            iteration=state.iteration + restarted,
        )
        return self._look_ahead(judge(state, self.max_iterations, self.tolerance))

    def _restart(self, state: LBFGSState) -> LBFGSState:
        """No step along the direction will do: go on from the best trial without corrections, or give up."""
        assert state.search is not None
        assert state.direction is not None
        low = state.search.low
        if low.step > 0.0 and low.value < state.objective:
            coef = state.best + low.step * state.direction
            return replace(state, coef=coef, search=None, direction=None, pairs=())
        if state.pairs:
            return self._look_ahead(replace(state, pairs=()))
        return replace(state, coef=state.best, stop=stalled(state.gradient_norm))

    def _look_ahead(self, state: LBFGSState) -> LBFGSState:
        """The next direction and its first trial, from the accepted point."""
        if state.stop is not None:
            return replace(state, coef=state.best, search=None, direction=None)
        assert state.gradient is not None
        direction = -self._inverse_hessian_times(state.gradient, state)
        slope = float(direction @ state.gradient)
        search = LineSearch.begin(state.objective, slope, 1.0)
        coef = state.best + direction
        return replace(state, coef=coef, direction=direction, search=search)

    def _inverse_hessian_times(self, vector: np.ndarray, state: LBFGSState) -> np.ndarray:
        return inverse_hessian_times(vector, state.pairs, state.preconditioner)
