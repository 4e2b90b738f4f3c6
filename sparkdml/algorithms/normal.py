"""Linear regression by its normal equations, in one round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.quadratic import Quadratic, factorize, quadratic
from sparkdml.core import Stop, Turn, Update
from sparkdml.data.block import Block
from sparkdml.optim.least_squares import labels_less_offsets, least_squares_sums
from sparkdml.problem import Problem
from sparkdml.resources.compiled import compiled

#: Coordinate descent: passes over all features between two looks at the optimality conditions, and looks at most.
PASSES, LOOKS = 50, 400
#: Coefficients that one exact solution may set to 0: each costs a factorisation.
REMOVALS = 20
#: The optimality conditions hold to this share of the largest slope.
OPTIMALITY = 1e-12


@dataclass(frozen=True)
class NormalState:
    """``gradient_norm`` is the norm of the smallest subgradient.

    ``inverse_diagonal`` is that of :meth:`~.quadratic.Quadratic.inverse_diagonal`; empty with an L1 penalty.
    """

    coef: np.ndarray
    objective: float = math.inf
    gradient_norm: float = math.inf
    iteration: int = 0
    inverse_diagonal: np.ndarray = field(default_factory=lambda: np.empty(0))
    stop: Stop | None = None

    @property
    def best(self) -> np.ndarray:
        return self.coef


@dataclass(frozen=True)
class NormalEquations(Algorithm):
    """``min 1 / (2 W) sum_i w_i (y_i - offset_i - x_i' b - b0)^2 + penalty`` from ``X' W X``, for few features.

    In closed form (the shortest solution where features are linearly dependent), or with an L1 penalty by coordinate
    descent on the (d, d) system, whose zeros are exact (Friedman, Hastie & Tibshirani, 2010, section 2.2). The
    problem's loss plays no part. The result does not depend on the start, but labels far from 0 keep more digits when
    the start's intercept is their mean.
    """

    def init(self, problem: Problem, coef: np.ndarray) -> NormalState:
        return NormalState(coef)

    def work(
        self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, memory: None, turn: Turn
    ) -> tuple[Update, None]:
        coefficients, intercepts = problem.to_raw(coef)
        return least_squares_sums(blocks, problem.centre, coefficients, intercepts, labels_less_offsets), None

    def advance(self, problem: Problem, state: NormalState, total: Update) -> NormalState:
        posed = quadratic(problem, state.coef, total)
        if posed is None:
            stop = Stop(
                "diverged",
                "sums over the rows are not finite, or no row has weight",
                "look for features or labels of extreme size (above about 1e150) and rescale them",
            )
            return replace(state, stop=stop)
        ridge, l1 = problem.penalty.curvature()[:, 0], problem.penalty.l1()
        if l1 is None or not l1.any():
            thresholds = np.zeros_like(ridge)
            factor = posed.factor(ridge)
            coefficients = posed.minimise(factor, ridge)
            inverse_diagonal = posed.inverse_diagonal(problem, factor)
        else:
            thresholds = l1[:, 0]
            coefficients = _lasso(posed, ridge, thresholds)
            inverse_diagonal = np.empty(0)
        violation = _subgradient(posed, ridge, thresholds, coefficients)
        penalty = problem.penalty.value(coefficients[:, None]) + float(thresholds @ np.abs(coefficients))
        return NormalState(
            coef=posed.flat(problem, state.coef, coefficients),
            objective=posed.value(coefficients) + penalty,
            gradient_norm=float(np.linalg.norm(violation)),
            iteration=1,
            inverse_diagonal=inverse_diagonal,
            stop=_judge(posed, violation),
        )


def _judge(posed: Quadratic, violation: np.ndarray) -> Stop:
    largest = np.abs(violation).max(initial=0.0)
    if largest <= 1e-6 * _largest_slope(posed):
        return Stop("converged", "the normal equations are solved")
    return Stop(
        "stalled",
        f"coordinate descent stopped with a slope of {largest:.3g}",
        "features depend on one another too strongly: raise regParam, or use solver='l-bfgs'",
    )


def _largest_slope(posed: Quadratic) -> float:
    """Of the quadratic at coefficients 0."""
    return float(np.abs(posed.gradient(np.zeros_like(posed.linear))).max(initial=0.0))


def _lasso(posed: Quadratic, ridge: np.ndarray, l1: np.ndarray) -> np.ndarray:
    """Coordinate descent, and between its passes the exact solution for the signs that it has found.

    The latter ends the descent where strongly correlated features would let it creep.
    """
    coefficients = np.where(posed.kept, posed.origin, 0.0)
    allowed = OPTIMALITY * _largest_slope(posed)
    for _ in range(LOOKS):
        residual = -posed.gradient(coefficients)
        _descend(posed.hessian, ridge, l1, posed.kept, coefficients, residual, PASSES)
        candidates = [coefficients, _solve_for_signs(posed, ridge, l1, coefficients)]
        violations = [np.abs(_subgradient(posed, ridge, l1, c)).max(initial=0.0) for c in candidates]
        if min(violations) <= allowed:
            break
        coefficients = candidates[1].copy()
    return candidates[int(np.argmin(violations))]


def _solve_for_signs(posed: Quadratic, ridge: np.ndarray, l1: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Towards the minimum among coefficients of the same signs, which never raises the objective.

    One that reaches 0 on the way there is left at 0, and the others go on, as in the feature-sign search of Lee et
    al. (2006).
    """
    matrix = posed.hessian.copy()
    np.einsum("ii->i", matrix)[:] += ridge
    for _ in range(REMOVALS):
        nonzero = coefficients != 0.0
        slopes = posed.gradient(coefficients) + ridge * coefficients + l1 * np.sign(coefficients)
        step = -factorize(matrix, nonzero).solve(slopes)
        crossing = coefficients * (coefficients + step) < 0.0
        shares = np.divide(-coefficients, step, out=np.ones_like(step), where=crossing)
        first = int(np.argmin(shares)) if crossing.any() else -1
        if first < 0:
            return coefficients + step
        coefficients = coefficients + shares[first] * step
        coefficients[first] = 0.0
    return coefficients


def _subgradient(posed: Quadratic, ridge: np.ndarray, l1: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """The smallest subgradient of the objective, shape (d,); 0 at the optimum."""
    slopes = posed.gradient(coefficients) + ridge * coefficients
    at_zero = np.sign(slopes) * np.maximum(np.abs(slopes) - l1, 0.0)
    smallest = np.where(coefficients != 0.0, slopes + l1 * np.sign(coefficients), at_zero)
    return np.where(posed.kept, smallest, 0.0)


@compiled()
def _descend(hessian, ridge, l1, kept, coefficients, residual, passes):
    """Cyclic passes; ``residual`` is minus the quadratic's gradient. Both vectors are changed in place."""
    features = len(coefficients)
    for _ in range(passes):
        moved = False
        for j in range(features):
            if not kept[j]:
                continue
            before = coefficients[j]
            pull = residual[j] + hessian[j, j] * before
            after = 0.0
            if abs(pull) > l1[j]:
                after = (pull - l1[j] if pull > 0.0 else pull + l1[j]) / (hessian[j, j] + ridge[j])
            step = after - before
            if step != 0.0:
                moved = True
                coefficients[j] = after
                for k in range(features):
                    residual[k] -= step * hessian[j, k]
        if not moved:
            return
