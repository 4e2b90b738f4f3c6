"""SAGA and SAG: a table of every row's latest slopes, and the average gradient that it stands for."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparkdml.core import Turn
from sparkdml.optim.local_solver import LocalObjective
from sparkdml.optim.variance_reduction.stepping import BatchSolver, all_slopes, mean_gradient
from sparkdml.optim.variance_reduction.walk import slopes_of, walk


@dataclass(frozen=True)
class Table:
    """A worker's memory: ``slopes`` (rows, K), weighted, and ``average`` (size,), the gradient of their mean."""

    slopes: np.ndarray
    average: np.ndarray
    smoothness: float


@dataclass(frozen=True)
class TableSolver(BatchSolver):
    """Steps along ``share A' (new - stored slopes) + average``. Without memory the table is filled at the start."""

    def solve(
        self, objective: LocalObjective, start: np.ndarray, memory: Table | None, steps: int, turn: Turn
    ) -> tuple[np.ndarray, Table | None]:
        batches = self.batches(objective)
        weight_sum = objective.weight_sum
        if weight_sum == 0.0:
            return start, memory
        if memory is None:
            slopes = all_slopes(objective, start)
            memory = Table(slopes, mean_gradient(objective, slopes), self.smoothness(objective))
        table = memory.slopes.copy()
        path = walk(objective, start, memory.average, self.rate(memory.smoothness))
        share = self._draws_for(len(batches)) / weight_sum
        for number in self.order(len(batches), steps, turn):
            batch = batches[number]
            slopes = slopes_of(objective.problem, batch, path.margins(batch))
            path.step(batch, slopes - table[batch.places], share, 1.0 / weight_sum)
            table[batch.places] = slopes
        return path.point(), Table(table, path.drift, memory.smoothness)

    @abstractmethod
    def _draws_for(self, batches: int) -> int:
        """How many batches the change of one batch's gradient speaks for in a step."""


@dataclass(frozen=True)
class SAGA(TableSolver):
    """``c <- prox(c - rate (grad f_m(c) - stored_m + mean of stored))`` for a batch m.

    Defazio, Bach & Lacoste-Julien, *SAGA: A Fast Incremental Gradient Method With Support for Non-Strongly Convex
    Composite Objectives* (2014), whose step is 1 / (3 L). Strongly convex: linear convergence; convex: O(1 / steps);
    smooth non-convex: stationary points, with smaller steps. Not for losses with kinks, nor where K slopes a row are
    too much to keep.
    """

    def _draws_for(self, batches: int) -> int:
        return batches


@dataclass(frozen=True)
class SAG(TableSolver):
    """``c <- prox(c - rate (mean of stored))``, once the drawn batch's gradient has been put into the store.

    Schmidt, Le Roux & Bach, *Minimizing Finite Sums with the Stochastic Average Gradient* (2017): strongly convex and
    smooth: linear convergence, proved for steps of 1 / (16 L); the step here, 1 / L, is their practical one.
    Non-convex: no guarantee. With a proximal step (an L1 part) nothing is proved: use SAGA there.
    """

    share: ClassVar[float] = 1.0

    def _draws_for(self, batches: int) -> int:
        return 1
