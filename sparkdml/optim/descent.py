"""Mini-batch descent over a worker's own rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from sparkdml.core import Turn
from sparkdml.optim.batches import Batch, Order, Rows, Shuffled, generator
from sparkdml.optim.local_solver import LocalObjective, LocalSolver
from sparkdml.optim.schedules import Constant, Schedule
from sparkdml.optim.steps.base import Slots, Step
from sparkdml.optim.steps.proximal import Proximal, proximal
from sparkdml.problem import Differentiable, RowGradient
from sparkdml.problem.batch_gradient import BatchGradient

#: Stands for an epoch where a loss that is itself random draws.
NOISE = 2**32


@dataclass(frozen=True)
class Walk:
    """A worker's memory: the rule's slots, how many steps they have seen, and the passes over the rows so far."""

    slots: Slots
    count: int
    passes: float


@dataclass(frozen=True)
class Stretch:
    """Steps of one size: the rule, its operator, the gradient, and what a row's gradient counts."""

    step: Step
    prox: Proximal
    gradient: RowGradient
    step_size: float
    mean_weight: float


@dataclass(frozen=True)
class Descent(LocalSolver):
    """Steps of a rule along ``sum_batch w_i grad_i / (mean weight * rows of the batch)``, unbiased for ``F_k``'s loss.

    A step is a batch. Penalty and pull are one proximal step (:class:`~.steps.base.Step`). The step size,
    ``step_size * schedule(passes)``, is constant within a pass or, if that is shorter, a call, and taken at its middle.
    Each call draws rows anew, from the seed, the turn and the pass. A batch of sparse rows reads and writes only the
    features that occur in it; what the penalty does to others meanwhile is made up for when they next occur.
    That is exact for rules without moving averages; a coordinate's moving averages rest while it does not occur.

    If the memory is lost, slots begin anew, and the schedule goes on from the turn's clock.

    Bottou, Curtis & Nocedal, "Optimization methods for large-scale machine learning" (2018). Guarantees, convex and
    not, are the rule's; a constant step ends near the optimum. Not where many digits are wanted: use SVRG or L-BFGS.
    """

    step: Step
    step_size: float
    schedule: Schedule = field(default_factory=Constant)
    batch_size: int = 64
    order: Order = field(default_factory=Shuffled)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}, but a batch has 1 row or more")
        if not self.step_size > 0.0:
            raise ValueError(f"step_size={self.step_size}, but it must be more than 0")

    @property
    def solves(self) -> type[Differentiable]:
        return Differentiable

    def passes(self, objective: LocalObjective, steps: int) -> float:
        return self._passes(Rows(objective.blocks), steps)

    def solve(
        self, objective: LocalObjective, start: np.ndarray, memory: Walk | None, steps: int, turn: Turn
    ) -> tuple[np.ndarray, Walk | None]:
        rows = Rows(objective.blocks)
        if not rows.count:
            return start, memory
        prox = proximal(objective.problem, objective.pull)
        gradient = objective.problem.row_gradient(generator(self.seed, turn, NOISE))
        if memory is None:
            memory = Walk(self.step.slots(len(start)), 0, turn.clock * self._passes(rows, steps))
        point, slots, done, passes = start, memory.slots, 0, memory.passes
        left = steps or self._pass_steps(rows)
        # what diverges is seen by its objective
        with np.errstate(over="ignore", invalid="ignore"):
            for epoch in range(math.ceil(left / self._pass_steps(rows))):
                taken = min(left, self._pass_steps(rows))
                length = taken / self._pass_steps(rows)
                size = self.step_size * self.schedule(passes + 0.5 * length)
                stretch = Stretch(self.step, prox, gradient, size, rows.mean_weight)
                batches = self._batches(rows, taken, generator(self.seed, turn, epoch))
                walk = _lazy if self._sparse(rows, gradient) else _eager
                point, slots = walk(stretch, batches, point, slots, memory.count + done)
                left, done, passes = left - taken, done + taken, passes + length
        return point, Walk(slots, memory.count + done, passes)

    def _pass_steps(self, rows: Rows) -> int:
        """Batches of a pass."""
        return max(math.ceil(rows.count / self.batch_size), 1)

    def _passes(self, rows: Rows, steps: int) -> float:
        return steps / self._pass_steps(rows) if steps else 1.0

    def _batches(self, rows: Rows, steps: int, rng: np.random.Generator) -> Iterator[Batch]:
        if self.batch_size >= rows.count and self.order.exhaustive:
            return iter([rows.whole()])
        count = min(steps * self.batch_size, rows.count)
        return islice(rows.batches(self.order.draw(rows.count, count, rng), self.batch_size), steps)

    def _sparse(self, rows: Rows, gradient: RowGradient) -> bool:
        """Whether batches touch some coordinates only."""
        return gradient.by_feature and rows.sparse and self.batch_size < rows.count


def _eager(
    stretch: Stretch, batches: Iterator[Batch], point: np.ndarray, slots: Slots, count: int
) -> tuple[np.ndarray, Slots]:
    """Every step moves every coordinate."""
    for batch in batches:
        count += 1
        slope = stretch.gradient(point, batch.parts)
        slope *= 1.0 / (stretch.mean_weight * batch.rows)
        point, slots = stretch.step.update(point, slope, slots, stretch.step_size, count, stretch.prox)
    return point, slots


def _lazy(
    stretch: Stretch, batches: Iterator[Batch], point: np.ndarray, slots: Slots, count: int
) -> tuple[np.ndarray, Slots]:
    """Every step moves the coordinates that occur in its batch, after the steps that each of them has missed."""
    step, size, prox, gradient = stretch.step, stretch.step_size, stretch.prox, stretch.gradient
    assert isinstance(gradient, BatchGradient)
    point, slots = point.copy(), tuple(slot.copy() for slot in slots)
    outputs, tail = gradient.loss.outputs, np.arange(len(point) - prox.free, len(point))
    seen, n = np.zeros(len(point), np.int64), 0
    for n, batch in enumerate(batches, 1):
        ((block, start, stop),) = batch.parts
        columns, rows = block.between(start, stop).compact()
        touched = columns if outputs == 1 else (columns[:, None] * outputs + np.arange(outputs)).ravel()
        at = np.concatenate([touched, tail])
        prox_here, missed = prox.of(at), n - 1 - seen[at]
        here, kept = step.rest(point[at], tuple(slot[at] for slot in slots), size, count + n - 1, missed, prox_here)
        slope = gradient.over(columns)(here, [(rows, 0, rows.rows)])
        slope *= 1.0 / (stretch.mean_weight * rows.rows)
        here, kept = step.update(here, slope, kept, size, count + n, prox_here)
        point[at], seen[at] = here, n
        for slot, new in zip(slots, kept, strict=True):
            slot[at] = new
    return step.rest(point, slots, size, count + n, n - seen, prox)
