"""Iteratively reweighted least squares as a state machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.quadratic import feature_variances, quadratic, response_std
from sparkdml.core import Stop, Turn, Update
from sparkdml.data.block import Block
from sparkdml.families import FamilyAndLink
from sparkdml.optim.least_squares import ResponseAndWeights, Responses, least_squares_sums
from sparkdml.problem import Problem


@dataclass(frozen=True)
class IRLSState:
    """``coef`` is where the last least squares problem is smallest.

    ``objective`` is the deviance where that problem was posed, one step behind ``coef``: infinite until there are
    coefficients, and when converged, the deviance at ``coef`` up to the order of ``gradient_norm`` squared.
    ``gradient_norm`` is the largest change of a coefficient or the intercept, for features as stored.
    ``iteration`` counts as Spark's ``numIterations`` does: the starting model is not one.
    ``inverse_diagonal``, once ``stop`` is set, is that of :meth:`~.quadratic.Quadratic.inverse_diagonal`.
    """

    coef: np.ndarray
    objective: float = math.inf
    gradient_norm: float = math.inf
    started: bool = False
    iteration: int = 0
    inverse_diagonal: np.ndarray = field(default_factory=lambda: np.empty(0))
    stop: Stop | None = None

    @property
    def best(self) -> np.ndarray:
        return self.coef


@dataclass(frozen=True)
class IRLS(Algorithm):
    """Fisher scoring for a generalized linear model, as in Spark's ``GeneralizedLinearRegression``.

    Each round poses ``min 1 / (2 W) sum_i w_i (z_i - x_i' b - b0)^2 + reg_param / 2 ||b||^2`` with the working
    responses z and weights w at the current coefficients; W is the sum of the working weights. The problem's own loss
    and penalty play no part, and a fit always starts at the family's starting means: ``coef`` given to :meth:`init`
    counts for nothing. The starting model is regularised as Spark does it, by ``reg_param / std(z) / 2 * sum_j
    (std_j b_j)^2`` with population standard deviations; for the Gaussian family with the identity link it is the
    answer.

    Stops when no coefficient nor the intercept changes by ``tolerance``, for features as stored.

    Green, *Iteratively Reweighted Least Squares for Maximum Likelihood Estimation* (JRSS B 46, 1984).
    """

    max_iterations: int
    tolerance: float
    family_and_link: FamilyAndLink
    reg_param: float = 0.0

    def init(self, problem: Problem, coef: np.ndarray) -> IRLSState:
        return IRLSState(np.zeros(problem.size))

    def work(
        self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, memory: None, turn: Turn
    ) -> tuple[Update, None]:
        responses = _starting(self.family_and_link) if turn.clock == 0 else _working(self.family_and_link)
        coefficients, intercepts = problem.to_raw(coef)
        return least_squares_sums(blocks, problem.centre, coefficients, intercepts, responses), None

    def advance(self, problem: Problem, state: IRLSState, total: Update) -> IRLSState:
        posed = quadratic(problem, state.coef, total)
        if posed is None:
            return replace(state, stop=_diverged(state, float(total["weight_sum"])))
        ridge = self._ridge(problem, state, total)
        factor = posed.factor(ridge)
        coef = posed.flat(problem, state.coef, posed.minimise(factor, ridge))
        iteration = state.iteration + (state.started or self.family_and_link.is_least_squares)
        following = IRLSState(
            coef=coef,
            objective=self._deviance(posed.value(problem.split(coef)[0][:, 0]), state, total),
            gradient_norm=_largest_change(problem, state.coef, coef) if state.started else math.inf,
            started=True,
            iteration=iteration,
        )
        stop = self._judge(following)
        if stop is None:
            return following
        return replace(following, stop=stop, inverse_diagonal=posed.inverse_diagonal(problem, factor))

    def _ridge(self, problem: Problem, state: IRLSState, total: Update) -> np.ndarray:
        """The second derivative of the penalty in the problem's coordinates, shape (d,)."""
        if state.started:
            return self.reg_param * problem.scaling.inverse_std[:, 0] ** 2
        return self.reg_param / response_std(total) * feature_variances(problem, total)

    def _deviance(self, half_mean_square: float, state: IRLSState, total: Update) -> float:
        if self.family_and_link.is_least_squares:
            return 2.0 * half_mean_square * float(total["weight_sum"])
        return float(total["loss"]) if state.started else math.inf

    def _judge(self, state: IRLSState) -> Stop | None:
        if self.family_and_link.is_least_squares:
            return Stop("converged", "one least squares problem gives the answer")
        change = state.gradient_norm
        if change < self.tolerance:
            return Stop("converged", f"no coefficient changed by more than {change:.3g}, which is below tol")
        if state.iteration >= self.max_iterations:
            return Stop(
                "max_iterations",
                f"maxIter={self.max_iterations} reached; the last one changed a coefficient by {change:.3g}",
                "raise maxIter, or tol if this is exact enough",
            )
        return None


def _starting(model: FamilyAndLink) -> ResponseAndWeights:
    def responses(block: Block, start: int, stop: int, margins: np.ndarray) -> Responses:
        labels, weights = block.labels[start:stop], block.weights[start:stop]
        return Responses(model.start(labels, weights, _offsets(block, start, stop)), weights)

    return responses


def _working(model: FamilyAndLink) -> ResponseAndWeights:
    def responses(block: Block, start: int, stop: int, margins: np.ndarray) -> Responses:
        labels, weights = block.labels[start:stop], block.weights[start:stop]
        offsets = _offsets(block, start, stop)
        eta = margins + offsets
        response, working_weights = model.working(labels, weights, offsets, eta)
        return Responses(response, working_weights, model.deviance(labels, weights, eta))

    return responses


def _offsets(block: Block, start: int, stop: int) -> np.ndarray | float:
    return 0.0 if block.offsets is None else block.offsets[start:stop]


def _largest_change(problem: Problem, before: np.ndarray, after: np.ndarray) -> float:
    """Over raw coefficients and intercept."""
    pairs = zip(problem.to_raw(before), problem.to_raw(after), strict=True)
    return max(float(np.abs(old - new).max(initial=0.0)) for old, new in pairs)


def _diverged(state: IRLSState, weight_sum: float) -> Stop:
    what = "every working weight is 0" if weight_sum == 0.0 else "working responses or weights are not finite"
    return Stop(
        "diverged",
        f"{what} after iteration {state.iteration}",
        "choose a link whose inverse stays within the family's domain (log for positive means), raise regParam, or "
        "look for labels or features of extreme size",
    )
