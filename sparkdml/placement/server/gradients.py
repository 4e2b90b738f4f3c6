"""Gradients, along which servers take the steps: mini-batch descent, and Downpour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparkdml.algorithms import SyncSGD
from sparkdml.algorithms.sync_sgd import SyncSGDState
from sparkdml.core import Turn
from sparkdml.data.block import Block
from sparkdml.optim.steps import FTRL, STEPS, Step
from sparkdml.optim.steps.base import Slots
from sparkdml.optim.steps.proximal import proximal
from sparkdml.placement.server.sidework import Done, Draft, SideWork
from sparkdml.server.client import Client
from sparkdml.server.stale import AS_IT_COMES
from sparkdml.server.table_state import TableState


@dataclass(frozen=True)
class Pace:
    """A worker pushes after ``push_every`` local steps and pulls after ``pull_every``; ``pipeline``: as it computes."""

    push_every: int = 1
    pull_every: int = 1
    pipeline: bool = False

    def __post_init__(self) -> None:
        for name, value in (("pushEvery", self.push_every), ("pullEvery", self.pull_every)):
            if value < 1:
                raise ValueError(f"{name}={value}; it is a number of local steps, 1 or more")
        if self.pull_every % self.push_every:
            raise ValueError(
                f"pullEvery={self.pull_every} with pushEvery={self.push_every}: a pull between two pushes would undo "
                f"steps that servers do not know of; set pullEvery to {self.push_every} or a multiple of it"
            )

    @property
    def clocks_of_pull(self) -> int:
        """Clocks that begin with the values of one pull."""
        return self.pull_every // self.push_every

    @property
    def single(self) -> bool:
        """Whether no local steps are taken."""
        return self.push_every == self.pull_every == 1

    def check(self, staleness: int, stale: str, step: Step) -> None:
        """Raise ValueError for what does not go with it."""
        if self.pipeline:
            self._check_pipeline(staleness, stale)
        if self.clocks_of_pull > 1 and staleness >= 0:
            raise ValueError(
                f"pullEvery={self.pull_every} with staleness={staleness}: a bound on staleness is kept by reading at "
                f"every clock; set pullEvery={self.push_every}, as pushEvery is, or staleness=-1"
            )
        if self.single:
            return
        if isinstance(step, FTRL):
            raise ValueError(
                "optimizer='ftrl' finds parameters from sums of gradients that are at servers, so it has no local "
                "steps; set pushEvery=pullEvery=1, or another optimizer"
            )
        if stale not in (AS_IT_COMES, "adadelay"):
            raise ValueError(
                f"staleGradients='{stale}' corrects gradients at the values that a worker has read, and those of local "
                "steps are at others; set pushEvery=pullEvery=1, or staleGradients as-it-comes or adadelay"
            )

    def _check_pipeline(self, staleness: int, stale: str) -> None:
        if staleness == 0:
            raise ValueError(
                "pipeline=True with staleness=0: what a round reads is there when all have pushed the round before, "
                "which nobody has while it computes that; unset pipeline, or set staleness to -1 or a number of clocks"
            )
        if stale != AS_IT_COMES:
            raise ValueError(
                f"pipeline=True with staleGradients='{stale}': a correction is by what a worker read last, and its "
                "gradient is at what it read before; unset one of them"
            )
        if not self.single:
            raise ValueError(
                "pipeline=True with local steps, which begin where the turn before has ended; set "
                "pushEvery=pullEvery=1, or unset pipeline"
            )


@dataclass(frozen=True)
class Ahead:
    """A worker's memory: where its local steps have led, and its rule's slots after so many of them."""

    point: np.ndarray
    slots: Slots
    count: int


@dataclass(frozen=True, kw_only=True)
class Gradients(SideWork):
    """A turn pulls, takes a gradient over a sample of the worker's rows (:class:`~sparkdml.algorithms.SyncSGD`), and
    pushes it; the rule of the tables takes the step. With ``rounds`` it is one for all pushes of a clock, else one for
    each, which then stands for all rows. ``heard``: pushes that make up the gradients of all workers. ``stale``:
    :func:`sparkdml.server.stale.stale_way`.

    With a ``pace`` of more than 1 it is Downpour: ``push_every`` local steps of the same rule along the worker's own
    gradients, its own slots and all, of which the mean gradient is pushed, for a step as long as all of theirs together
    (the sum, as in the paper, would count the penalty once for all of them). Every ``pull_every`` local steps the
    worker takes over the servers' parameters; in between it goes on from its own. With ``pipeline`` gradients are at
    values a clock older than without (Li et al., *Pipe-SGD*, 2018): smaller steps do.

    Dean et al., *Large Scale Distributed Deep Networks* (2012), algorithm 1. Convex, with steps that fall: near the
    optimum; non-convex: no guarantee. Not where a message costs less than a gradient: pull and push every time.
    """

    algorithm: SyncSGD
    pace: Pace
    rounds: bool
    heard: int
    stale: str

    @property
    def scale(self) -> float:
        """What a worker's gradient is multiplied by."""
        return 1.0 if self.rounds else float(self.workers)

    @property
    def read(self) -> float:
        """The share of all rows that is read when one worker has pushed."""
        return 1.0 / (self.heard * self.rounds_of_pass)

    @property
    def rounds_of_pass(self) -> int:
        return math.ceil(1.0 / (self.algorithm.fraction * self.pace.push_every))

    @property
    def pipelined(self) -> bool:
        return self.pace.pipeline

    def rule(self, penalised: bool) -> Mapping[str, Any]:
        step = self.algorithm.step
        name = next(name for name, known in STEPS.items() if known is type(step))
        options = {key: value for key, value in vars(step).items() if value != getattr(type(step), key)}
        # that of steps which do not name a coefficient
        size = self.algorithm.step_size
        common = {"step_size": size, "divisor": self.problem.weight_sum, "stale": self.stale, "workers": self.workers}
        return {"name": name, **common, **self.strengths(penalised), **options}

    def put(self, client: Client, state: SyncSGDState) -> None:
        """With the rule's slots, and the number of steps so far."""
        columns = [np.split(np.reshape(part, (-1, 1)), [self.penalised]) for part in (state.coef, *state.slots)]
        for number, name in enumerate(self.parameters):
            values, *slots = (column[number] for column in columns)
            client.restore(name, TableState(np.arange(len(values)), values, tuple(slots), state.count))

    def take(self, client: Client, state: SyncSGDState) -> SyncSGDState:
        states = [client.state(name) for name in self.parameters]
        coef = np.concatenate([each.values[:, 0] for each in states])
        slots = zip(*(each.slots for each in states), strict=True)
        return replace(
            state, coef=coef, slots=tuple(np.concatenate(each)[:, 0] for each in slots), count=states[0].count
        )

    def before(self, blocks: Sequence[Block], memory: Ahead | None, turn: Turn) -> Draft:
        reading = memory is None or turn.clock % self.pace.clocks_of_pull == 0
        return Draft(self.whole if reading else {}, memory)

    def work(self, blocks: Sequence[Block], own: Ahead | None, pulled: Mapping[str, np.ndarray], turn: Turn) -> Done:
        every, gradients, sizes = self.pace.push_every, [], []
        keeps = (turn.clock + 1) % self.pace.clocks_of_pull != 0
        ahead = self._from(own, pulled)
        for number in range(turn.clock * every, (turn.clock + 1) * every):
            step = Turn(number, turn.worker, turn.workers)
            gradients.append(self.algorithm.gradient(self.problem, blocks, ahead.point, step))
            sizes.append(self.size(number))
            if keeps or number + 1 < (turn.clock + 1) * every:
                ahead = self._stepped(ahead, gradients[-1], sizes[-1])
        mean = np.asarray(sum(gradients[1:], gradients[0])) / every
        updates = self.parts(mean * self.scale, sum(sizes))
        memory = None if self.pace.single else ahead
        return Done(updates, memory, self.read)

    def _from(self, own: Ahead | None, pulled: Mapping[str, np.ndarray]) -> Ahead:
        if own is None:
            slots = () if self.pace.single else self.algorithm.step.slots(self.problem.size)
            return Ahead(self.point(pulled), slots, 0)
        return Ahead(self.point(pulled), own.slots, own.count) if pulled else own

    def size(self, number: int) -> float:
        """Of the local step of that number."""
        return self.algorithm.step_size * self.algorithm.schedule((number + 0.5) * self.algorithm.fraction)

    def _stepped(self, ahead: Ahead, gradient: np.ndarray, size: float) -> Ahead:
        """Along a worker's own gradient, which stands for all rows."""
        slope = gradient * (self.workers / self.problem.weight_sum)
        count = ahead.count + 1
        # what diverges is seen by its objective
        with np.errstate(over="ignore", invalid="ignore"):
            step = self.algorithm.step.update(ahead.point, slope, ahead.slots, size, count, proximal(self.problem))
        return Ahead(*step, count)
