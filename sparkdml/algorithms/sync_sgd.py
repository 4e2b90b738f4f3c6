"""Mini-batch steps that all workers take together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.progress import Limits, Progress, check_sampled_steps, observed
from sparkdml.core import Turn, Update
from sparkdml.data.block import Block, Part
from sparkdml.optim.batches import Order, Rows, Shuffled, generator
from sparkdml.optim.schedules import Schedule
from sparkdml.optim.steps.base import Slots, Step
from sparkdml.optim.steps.proximal import proximal
from sparkdml.problem import Differentiable


@dataclass(frozen=True)
class SyncSGDState(Progress):
    """With the rule's slots, and how many steps were taken."""

    slots: Slots = ()
    count: int = 0


@dataclass(frozen=True)
class SyncSGD(Algorithm[Differentiable]):
    """Each round is one step of ``step`` along a gradient over a sample of every worker's rows.

    A worker of N_k rows draws m_k, which is ``fraction`` of them rounded and at least 1, anew in each round, and sends
    ``N_k / m_k`` times the sum of their gradients: the sum of all workers, divided by W, is unbiased for the gradient
    of the loss however weights and rows are spread. With ``fraction`` 1 it is that gradient, and nothing is drawn.

    The loss over all rows is asked for at the start of each pass, every ``ceil(1 / fraction)`` rounds; an iteration is
    a pass. ``step_size * schedule(passes)`` is taken at the middle of the round.

    Dekel, Gilad-Bachrach, Shamir & Xiao, "Optimal distributed online prediction using mini-batches" (2012). Convex:
    converges with decreasing steps; non-convex: to stationary points. Not where a round costs much more than its
    gradients: take methods that compute longer between rounds.
    """

    #: What codecs may change on its way.
    compressible: ClassVar[frozenset[str]] = frozenset({"gradient"})

    step: Step
    schedule: Schedule
    step_size: float
    fraction: float
    limits: Limits
    seed: int = 0
    order: Order = field(default_factory=Shuffled)

    def __post_init__(self) -> None:
        check_sampled_steps(self.fraction, self.step_size)

    @property
    def solves(self) -> type[Differentiable]:
        return Differentiable

    def init(self, problem: Differentiable, coef: np.ndarray) -> SyncSGDState:
        return SyncSGDState(coef=coef, best=coef, slots=self.step.slots(problem.size))

    def work(
        self, problem: Differentiable, blocks: Sequence[Block], coef: np.ndarray, memory: None, turn: Turn
    ) -> tuple[Update, None]:
        update: Update = {"gradient": self.gradient(problem, blocks, coef, turn)}
        if turn.clock % math.ceil(1.0 / self.fraction) == 0:
            update["loss"] = problem.loss_sum(blocks, coef)
        return update, None

    def advance(self, problem: Differentiable, state: SyncSGDState, total: Update) -> SyncSGDState:
        if "loss" in total:
            state = observed(state, problem, state.coef, float(total["loss"]), self.limits)
            if state.stop is not None:
                return replace(state, coef=state.best)
        size = self.step_size * self.schedule((state.count + 0.5) * self.fraction)
        gradient, count = np.asarray(total["gradient"]) / problem.weight_sum, state.count + 1
        # what diverges is seen by its objective
        with np.errstate(over="ignore", invalid="ignore"):
            coef, slots = self.step.update(state.coef, gradient, state.slots, size, count, proximal(problem))
        return replace(state, coef=coef, slots=slots, count=count)

    def gradient(self, problem: Differentiable, blocks: Sequence[Block], coef: np.ndarray, turn: Turn) -> np.ndarray:
        """The sum over all of the worker's rows, or its estimate; shape (size,)."""
        rng = generator(self.seed, turn)
        parts, scale = self.sample(problem, blocks, rng)
        return problem.row_gradient(rng)(coef, parts) * scale

    def sample(
        self, problem: Differentiable, blocks: Sequence[Block], rng: np.random.Generator
    ) -> tuple[Iterable[Part], float]:
        """The rows that a worker draws in this turn, and what their sum is multiplied by."""
        return Rows(blocks).sample(self.fraction, problem.outputs, self.order, rng)
