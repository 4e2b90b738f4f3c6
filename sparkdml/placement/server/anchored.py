"""Steps of reduced variance at everyone's own pace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparkdml.algorithms import DSVRG
from sparkdml.core import Turn
from sparkdml.data.block import Block
from sparkdml.optim.batches import Rows, WithReplacement, generator
from sparkdml.optim.local_solver import LocalObjective
from sparkdml.placement.server.shares import Shares
from sparkdml.placement.server.sidework import Done, Draft, SideWork
from sparkdml.problem import Problem
from sparkdml.problem.batch_gradient import BatchGradient
from sparkdml.server.client import Push


@dataclass(frozen=True)
class Anchor:
    """A worker's memory: its anchor, its gradient there as told, how many steps were taken since, and their size."""

    point: np.ndarray
    told: np.ndarray
    steps: int
    size: float


@dataclass(frozen=True, kw_only=True)
class Anchored(SideWork):
    """Servers hold the model x and ``sum_k g_k``, where ``g_k`` is the gradient of all of worker k's rows at an anchor
    ``a_k``. A worker's turn is a step along ``K N_k / m (grad_B(x) - grad_B(a_k)) + sum_j g_j`` over m of its N_k rows,
    or, after as many as its method's ``local_steps`` (0: a pass), ``a_k <- x``, and its part of the sum anew.

    Reddi, Hefny, Sra, Poczos & Smola, *On variance reduction in stochastic gradient descent and its asynchronous
    variants* (2015), whose framework lets each row's anchor be any point of the past; anchors of their own, where their
    SVRG has one for all, spare workers waiting for an epoch to begin. Strongly convex, bounded delays: the optimum,
    whatever the speeds of workers and however rows are spread, since what is reduced to 0 is any worker's error;
    smooth non-convex: stationary points. Not for losses with kinks; not where messages cost more than a pass.

    A step is ``1 / 3`` over the smoothness of a batch, and over the root of K, for about so many steps of others come
    between a read and its push; unless its size is given.
    """

    problem: Problem
    algorithm: DSVRG

    @property
    def shares(self) -> Shares:
        return Shares("slope of ", self.sizes)

    @property
    def sums(self) -> Mapping[str, int]:
        return {**self.shares.totals(), **self.shares.tables(self.workers)}

    def rule(self, penalised: bool) -> Mapping[str, Any]:
        return {"name": "sgd", "divisor": self.problem.weight_sum, **self.strengths(penalised)}

    def before(self, blocks: Sequence[Block], memory: Anchor | None, turn: Turn) -> Draft:
        names = self.shares.own(turn.worker) if memory is None else self.shares.total
        return Draft({**self.whole, **dict.fromkeys(names)}, memory)

    def work(self, blocks: Sequence[Block], own: Anchor | None, pulled: Mapping[str, np.ndarray], turn: Turn) -> Done:
        x, rows = self.point(pulled), Rows(blocks)
        share = LocalObjective(self.problem, blocks).weight_sum / self.problem.weight_sum
        if own is None:
            told = self.shares.joined(pulled, self.shares.own(turn.worker))
            own = Anchor(x, told, 0, self._size(blocks))
        elif rows.count and own.steps < self._between(rows):
            updates, read = self._step(rows, x, own, self.shares.joined(pulled, self.shares.total), turn)
            return Done(updates, replace(own, steps=own.steps + 1), share * read)
        change = BatchGradient.of(self.problem)(x, rows.whole().parts) - own.told
        memory = Anchor(x, own.told + change, 0, own.size)
        return Done(self.shares.change(turn.worker, change), memory, share)

    def _step(
        self, rows: Rows, x: np.ndarray, own: Anchor, slope: np.ndarray, turn: Turn
    ) -> tuple[dict[str, Push], float]:
        """What is pushed, and how much of the rows was read."""
        count = min(self.algorithm.solver.batch_rows, rows.count)
        drawn = WithReplacement().draw(rows.count, count, generator(self.algorithm.solver.seed, turn))
        parts = [part for batch in rows.batches(np.sort(drawn), count) for part in batch.parts]
        gradient, read = BatchGradient.of(self.problem), count / rows.count
        reduced = (gradient(x, parts) - gradient(own.point, parts)) * (turn.workers / read)
        return self.parts(reduced + slope, own.size), read

    def _between(self, rows: Rows) -> int:
        """Steps between two anchors."""
        return self.algorithm.local_steps or -(-rows.count // self.algorithm.solver.batch_rows)

    def _size(self, blocks: Sequence[Block]) -> float:
        objective, solver = LocalObjective(self.problem, blocks), self.algorithm.solver
        if solver.step_size is not None or objective.weight_sum == 0.0:
            return solver.rate(0.0)
        return solver.rate(solver.smoothness(objective)) / math.sqrt(self.workers)
