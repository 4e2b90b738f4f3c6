"""Gradient descent for factorization machines, by the rules of ``pyspark.ml``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.element_wise import ElementWise
from sparkdml.algorithms.progress import Limits, check_sampled_steps
from sparkdml.core import Stop, Turn, Update
from sparkdml.data.block import Block
from sparkdml.optim.batches import Order, Rows, Shuffled, generator
from sparkdml.optim.factorization import Factorized, loss_and_gradient, total_loss
from sparkdml.optim.schedules import Schedule
from sparkdml.optim.steps.base import Slots, Step
from sparkdml.optim.steps.proximal import Proximal
from sparkdml.problem import Problem


@dataclass(frozen=True)
class FactorizationState:
    """``objective`` is the one at the latest point that workers have seen; ``iteration`` counts these, from 0.

    travel, square : ``|coef - previous|^2`` and ``|coef|^2`` after the latest step. count : steps so far.
    """

    coef: np.ndarray
    slots: Slots = ()
    objective: float = math.inf
    gradient_norm: float = math.nan
    iteration: int = -1
    stop: Stop | None = None
    count: int = 0
    travel: float = math.inf
    square: float = 0.0

    @property
    def best(self) -> np.ndarray:
        """The latest point, as in Spark, and not the lowest: adaptive rules rise far before they fall."""
        return self.coef


@dataclass(frozen=True)
class FactorizationSGD(Algorithm):
    """Each round is one step of ``step`` along the gradient over all rows, or a sample of every worker's.

    The problem's loss is a :class:`~sparkdml.optim.factorization.Factorized`; its features are neither scaled nor
    centred. A worker of N_k rows draws ``fraction`` of them, at least 1, anew in each round, and sends ``N_k / m_k``
    times their sums. Step t, from 0, has length ``step_size * schedule(t)``.

    Converged when a step, but the first, is shorter than ``tolerance * max(|coef|, 1)``. The objective is the sample's;
    after the last step it is over all rows. ``ridge / 2 * intercept^2`` is added to it: the problem's penalty is on the
    features' coefficients alone, and Spark's on the intercept too. What is decayed is for ``step`` to tell; no
    coordinate is free.

    Rendle, "Factorization machines" (2010). Not convex: ends near a stationary point that depends on the start, where
    factors must not all be 0.
    """

    #: What codecs may change on its way.
    compressible: ClassVar[frozenset[str]] = frozenset({"gradient"})

    step: Step
    schedule: Schedule
    step_size: float
    fraction: float
    limits: Limits
    ridge: float = 0.0
    fit_linear: bool = True
    seed: int = 0
    order: Order = field(default_factory=Shuffled)

    def __post_init__(self) -> None:
        check_sampled_steps(self.fraction, self.step_size)

    def init(self, problem: Problem, coef: np.ndarray) -> FactorizationState:
        return FactorizationState(coef=coef, slots=self.step.slots(len(coef)), square=float(coef @ coef))

    def work(
        self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, memory: None, turn: Turn
    ) -> tuple[Update, None]:
        loss = problem.loss
        assert isinstance(loss, Factorized)
        rows = Rows(blocks)
        if turn.clock >= self.limits.max_iterations:
            value, gradient = total_loss(loss, coef, rows.whole().parts), np.zeros(len(coef))
        else:
            parts, scale = rows.sample(self.fraction, loss.outputs, self.order, generator(self.seed, turn))
            value, gradient = loss_and_gradient(loss, coef, parts)
            value *= scale
            gradient *= scale
        if not self.fit_linear:
            gradient[: problem.features * loss.outputs : loss.outputs] = 0.0
        weight = float(sum(block.weights.sum() for block in blocks))
        return {"gradient": gradient, "loss": value + weight * self._of_intercept(loss, coef)}, None

    def advance(self, problem: Problem, state: FactorizationState, total: Update) -> FactorizationState:
        value = problem.objective(state.coef, float(total["loss"]))
        state = replace(state, objective=value, iteration=state.iteration + 1)
        stop = self._judged(state)
        if stop is not None:
            return replace(state, stop=stop)
        gradient, count = np.asarray(total["gradient"]) / problem.weight_sum, state.count + 1
        length = self.step_size * self.schedule(state.count)
        # what diverges is seen by its objective
        with np.errstate(over="ignore", invalid="ignore"):
            coef, slots = self.step.update(
                state.coef, gradient, state.slots, length, count, _unpenalised(len(gradient))
            )
            moved = coef - state.coef
            travel, square = float(moved @ moved), float(coef @ coef)
        return replace(state, coef=coef, slots=slots, count=count, travel=travel, square=square)

    def _of_intercept(self, loss: Factorized, coef: np.ndarray) -> float:
        return 0.5 * self.ridge * float(coef[-1]) ** 2 if loss.fit_intercept else 0.0

    def _judged(self, state: FactorizationState) -> Stop | None:
        if not math.isfinite(state.objective):
            return Stop("diverged", f"the objective became {state.objective:g}", "use a smaller stepSize or regParam")
        length, norm = math.sqrt(state.travel), math.sqrt(state.square)
        if state.count >= 2 and length < self.limits.tolerance * max(norm, 1.0):
            return Stop("converged", f"the last step was {length:.3g} long, at coefficients of norm {norm:.6g}")
        if state.count >= self.limits.max_iterations:
            return Stop("max_iterations", f"maxIter={self.limits.max_iterations} reached", "raise maxIter, or tol")
        return None


@dataclass(frozen=True)
class FactorizationShards(ElementWise):
    """:class:`FactorizationSGD` by shards of the features: each learns how far all of them went together."""

    def init(self, problem: Problem, coef: np.ndarray) -> tuple[FactorizationState, Update]:
        state, sums = super().init(problem, coef)
        return state, {**sums, "travel": 0.0, "square": state.square}

    def step(
        self, problem: Problem, state: FactorizationState, order: dict[str, Any], total: Update
    ) -> tuple[FactorizationState, Update]:
        state = replace(state, travel=order["travel"], square=order["square"])
        state, sums = super().step(problem, state, order, total)
        return state, {**sums, "travel": state.travel, "square": state.square}


def _unpenalised(size: int) -> Proximal:
    """Penalties of factorization machines are in their steps, as decay; no coordinate is exempt from it."""
    return Proximal(np.zeros(size), np.zeros(size), 0.0, np.zeros(1), 0)
