"""Quasi-Newton methods whose steps are projected on a set: backtracking along the arc that this bends a line to."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.line_search import DECREASE, MAX_TRIALS, ROUNDING
from sparkdml.algorithms.quasi_newton import (
    VALUE_WINDOW,
    QuasiNewtonState,
    after_step,
    diverged,
    judge,
    stalled,
)
from sparkdml.core import Turn, Update
from sparkdml.data.block import Block
from sparkdml.problem import Problem
from sparkdml.problem.gradient import loss_and_gradient

#: A coordinate this close to where the arc bends is treated as if it were there.
NEAR = 1e-3


class Measure(NamedTuple):
    """A point as the method sees it.

    ``objective`` is all that is minimised, ``slope`` (size,) its derivative towards points of the arc, and ``norm``
    is 0 at the optimum.
    """

    objective: float
    slope: np.ndarray
    norm: float


@dataclass(frozen=True)
class ArcState(QuasiNewtonState):
    """``coef`` is ``best + step * direction``, projected; ``expected`` is ``slope'(coef - best)``, below 0."""

    slope: np.ndarray | None = None
    direction: np.ndarray | None = None
    step: float = 1.0
    expected: float = 0.0
    trials: int = 0

    @property
    def near(self) -> float:
        """:data:`NEAR`, and less as the optimum comes near."""
        return min(NEAR, self.gradient_norm)


class ArcSearch(Algorithm):
    """``x(step) = P(best + step * direction)`` for step 1, 1/2, 1/4, ... until the objective falls far enough.

    Far enough is Armijo's rule, ``F(x) <= F(best) + 1e-4 * slope'(x - best)``. Where the fall drowns in rounding, a
    smaller ``norm`` at an equal objective will do. Steps of the first iteration, whose scale is a guess, shrink to
    a tenth each. Stops as :class:`~.lbfgs.LBFGS` does.

    Bertsekas, "Projected Newton methods for optimization problems with simple constraints" (1982).
    """

    max_iterations: int
    tolerance: float
    corrections: int

    @abstractmethod
    def measure(self, problem: Problem, coef: np.ndarray, value: float, gradient: np.ndarray) -> Measure:
        """The point ``coef``, whose smooth objective has this value and gradient."""

    @abstractmethod
    def direction(self, problem: Problem, state: ArcState) -> np.ndarray:
        """Where to go from ``best``, shape (size,)."""

    @abstractmethod
    def project(self, problem: Problem, state: ArcState, coef: np.ndarray) -> np.ndarray:
        """``coef`` moved into what a step from ``best`` may reach."""

    def work(
        self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, memory: None, turn: Turn
    ) -> tuple[Update, None]:
        coefficients, intercepts = problem.to_raw(coef)
        return loss_and_gradient(problem.loss_at(coef), blocks, coefficients, intercepts), None

    def advance(self, problem: Problem, state: ArcState, total: Update) -> ArcState:
        value, gradient = problem.evaluate(state.coef, total)
        here = self.measure(problem, state.coef, value, gradient)
        if state.direction is None:
            return self._begin(problem, state, here, gradient)
        if not far_enough(here.objective, here.norm, state.objective, state.gradient_norm, state.expected):
            return self._try(problem, state, state.step * _shrinkage(state))
        state = after_step(state, here.objective, gradient, here.norm, self.corrections)
        return self._look_ahead(problem, replace(state, slope=here.slope))

    def _begin(self, problem: Problem, state: ArcState, here: Measure, gradient: np.ndarray) -> ArcState:
        state = replace(
            state,
            objective=here.objective,
            gradient=gradient,
            gradient_norm=here.norm,
            slope=here.slope,
            first_objective=here.objective,
            values=(*state.values, here.objective)[-VALUE_WINDOW:],
        )
        if not (math.isfinite(here.objective) and np.isfinite(gradient).all()):
            return replace(state, stop=diverged(here.objective))
        return self._look_ahead(problem, state)

    def _look_ahead(self, problem: Problem, state: ArcState) -> ArcState:
        """The end, or the next direction and its first trial."""
        state = judge(state, self.max_iterations, self.tolerance)
        if state.stop is not None:
            return replace(state, coef=state.best, direction=None)
        state = replace(state, direction=self.direction(problem, state), trials=0)
        return self._try(problem, state, 1.0)

    def _try(self, problem: Problem, state: ArcState, step: float) -> ArcState:
        """The first of ``step`` and shorter ones that leads downhill; it is evaluated next."""
        assert state.direction is not None
        assert state.slope is not None
        for trials in range(state.trials + 1, MAX_TRIALS + 1):
            coef = self.project(problem, state, state.best + step * state.direction)
            expected = float(state.slope @ (coef - state.best))
            if expected < 0.0:
                return replace(state, coef=coef, step=step, expected=expected, trials=trials)
            step *= _shrinkage(state)
        return self._restart(problem, state)

    def _restart(self, problem: Problem, state: ArcState) -> ArcState:
        """No step along the direction will do: go on without corrections, or give up."""
        if state.pairs:
            return self._look_ahead(problem, replace(state, pairs=()))
        return replace(state, coef=state.best, direction=None, stop=stalled(state.gradient_norm))


def _shrinkage(state: ArcState) -> float:
    return 0.1 if state.iteration == 0 else 0.5


def far_enough(objective: float, norm: float, before: float, norm_before: float, expected: float) -> bool:
    """Whether a step that should change the objective by ``expected`` (below 0) is taken."""
    if not (math.isfinite(objective) and math.isfinite(norm)):
        return False
    if objective <= before + DECREASE * expected:
        return True
    return objective <= before + ROUNDING * abs(before) and norm < norm_before
