"""Limited-memory BFGS as a state machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.blas import daxpy

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.line_search import LineSearch
from sparkdml.algorithms.preconditioner import Preconditioner, diagonal_preconditioner, gram_preconditioner
from sparkdml.algorithms.problem import Problem
from sparkdml.core import Stop, Update
from sparkdml.data.block import Block
from sparkdml.optim.gradient import loss_and_gradient
from sparkdml.optim.gram import gram_matrix

#: Spark compares the objective with the largest of the last 20 before it calls values converged.
VALUE_WINDOW = 20
#: Below this gradient norm a fit ends whatever ``tolerance`` says (as in Spark).
GRADIENT_FLOOR = 1e-8


@dataclass(frozen=True)
class Pair:
    """One correction: step ``s``, gradient change ``y``, ``1 / s'y``."""

    s: np.ndarray
    y: np.ndarray
    rho: float


@dataclass(frozen=True)
class LBFGSState:
    """``coef`` is the point asked for; ``best``, ``objective``, ``gradient`` belong to the last accepted one."""

    coef: np.ndarray
    best: np.ndarray
    preconditioner: Preconditioner
    objective: float = math.inf
    gradient: np.ndarray | None = None
    direction: np.ndarray | None = None
    search: LineSearch | None = None
    pairs: tuple[Pair, ...] = ()
    values: tuple[float, ...] = (math.inf,)
    first_objective: float = math.inf
    iteration: int = 0
    stop: Stop | None = None

    @property
    def gradient_norm(self) -> float:
        return math.inf if self.gradient is None else float(np.linalg.norm(self.gradient))


@dataclass(frozen=True)
class LBFGS(Algorithm):
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

    def init(self, problem: Problem, coef: np.ndarray) -> LBFGSState:
        return LBFGSState(coef=coef, best=coef, preconditioner=diagonal_preconditioner(problem))

    def work(
        self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, memory: None, clock: int
    ) -> tuple[Update, None]:
        coefficients, intercepts = problem.to_raw(coef)
        update = loss_and_gradient(problem.loss, blocks, coefficients, intercepts)
        if self.gram and clock == 0:
            update["gram"] = gram_matrix(blocks, problem.centre)
        return update, None

    def advance(self, problem: Problem, state: LBFGSState, total: Update) -> LBFGSState:
        value, gradient = problem.evaluate(state.coef, total)
        if "gram" in total:
            state = replace(state, preconditioner=gram_preconditioner(problem, np.asarray(total["gram"])))
        if state.search is None or state.direction is None:
            return self._begin(state, value, gradient)
        search = state.search.told(value, float(gradient @ state.direction))
        if search.accepted:
            return self._accept(state, value, gradient)
        if search.failed:
            return self._restart(state)
        return replace(state, search=search, coef=state.best + search.step * state.direction)

    def _begin(self, state: LBFGSState, value: float, gradient: np.ndarray) -> LBFGSState:
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            stop = Stop(
                "diverged",
                f"the objective is {value} at the starting point",
                "look for features of extreme size (above about 1e150) and rescale them",
            )
            return replace(state, objective=value, gradient=gradient, stop=stop)
        restarted = math.isfinite(state.first_objective)
        state = replace(
            state,
            best=state.coef,
            objective=value,
            gradient=gradient,
            first_objective=state.first_objective if restarted else value,
            values=(*state.values, value)[-VALUE_WINDOW:],
            iteration=state.iteration + restarted,
        )
        return self._look_ahead(self._judge(state))

    def _accept(self, state: LBFGSState, value: float, gradient: np.ndarray) -> LBFGSState:
        assert state.gradient is not None
        s, y = state.coef - state.best, gradient - state.gradient
        curvature = float(s @ y)
        pairs = state.pairs
        if curvature > 1e-300:
            pairs = (*pairs, Pair(s, y, 1.0 / curvature))[-self.corrections :]
        state = replace(
            state,
            best=state.coef,
            objective=value,
            gradient=gradient,
            pairs=pairs,
            values=(*state.values, value)[-VALUE_WINDOW:],
            iteration=state.iteration + 1,
        )
        return self._look_ahead(self._judge(state))

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
        stop = Stop(
            "stalled",
            f"no step lowers the objective any more; the gradient norm is {state.gradient_norm:.3g}",
            "the fit is as exact as rounding allows; a larger tol ends it earlier",
        )
        return replace(state, coef=state.best, stop=stop)

    def _judge(self, state: LBFGSState) -> LBFGSState:
        norm = state.gradient_norm
        if norm <= max(self.tolerance * abs(state.objective), GRADIENT_FLOOR):
            return replace(state, stop=Stop("converged", f"gradient norm {norm:.3g} reached tol"))
        gain = abs(state.objective - max(state.values))
        if gain <= self.tolerance * abs(state.first_objective):
            message = f"objective changed by {gain:.3g} over {VALUE_WINDOW} iterations"
            return replace(state, stop=Stop("converged", message))
        if state.iteration >= self.max_iterations:
            stop = Stop(
                "max_iterations",
                f"maxIter={self.max_iterations} reached with gradient norm {norm:.3g}",
                "raise maxIter, or tol if this is exact enough",
            )
            return replace(state, stop=stop)
        return state

    def _look_ahead(self, state: LBFGSState) -> LBFGSState:
        """The next direction and its first trial, from the accepted point."""
        if state.stop is not None:
            return replace(state, coef=state.best, search=None, direction=None)
        assert state.gradient is not None
        direction = -_inverse_hessian_times(state.gradient, state.pairs, state.preconditioner)
        slope = float(direction @ state.gradient)
        search = LineSearch.begin(state.objective, slope, 1.0)
        coef = state.best + direction
        return replace(state, coef=coef, direction=direction, search=search)


def _inverse_hessian_times(vector: np.ndarray, pairs: tuple[Pair, ...], preconditioner: Preconditioner) -> np.ndarray:
    """The two-loop recursion; a positive definite operator, so its negative is a descent direction.

    ``daxpy`` adds in place: temporaries of this size are fresh memory each time, which costs more than the sums.
    """
    result = vector.copy()
    alphas = []
    for pair in reversed(pairs):
        alpha = pair.rho * float(pair.s @ result)
        result = daxpy(pair.y, result, a=-alpha)
        alphas.append(alpha)
    scale = 1.0
    if pairs:
        latest = pairs[-1]
        scale = 1.0 / (latest.rho * float(latest.y @ preconditioner.solve(latest.y)))
    result = preconditioner.solve(result)
    result *= scale
    for pair, alpha in zip(pairs, reversed(alphas), strict=True):
        result = daxpy(pair.s, result, a=alpha - pair.rho * float(pair.y @ result))
    return result
