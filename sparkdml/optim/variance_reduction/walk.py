"""Batches of rows, their gradients in the problem's coordinates, and proximal steps along them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sparkdml.data.block import Block, SparseBlock
from sparkdml.optim.local_solver import LocalObjective
from sparkdml.optim.variance_reduction import kernels
from sparkdml.problem import Problem


class Batch(NamedTuple):
    """Rows start to stop of one block. Their slopes stand in a table of all rows from ``first`` on."""

    block: Block
    start: int
    stop: int
    first: int

    @property
    def places(self) -> slice:
        return slice(self.first, self.first + self.stop - self.start)


def batches_of(blocks: Sequence[Block], size: int) -> list[Batch]:
    """All rows, cut into neighbours of at most ``size``."""
    found, first = [], 0
    for block in blocks:
        for start in range(0, block.rows, size):
            stop = min(start + size, block.rows)
            found.append(Batch(block, start, stop, first))
            first += stop - start
    return found


def is_lazy(objective: LocalObjective) -> bool:
    """Whether rows touch few coefficients: sparse ones, in coordinates that keep 0 where it is."""
    return all(isinstance(block, SparseBlock) for block in objective.blocks) and not objective.problem.centre.any()


def grid(problem: Problem, c: np.ndarray) -> np.ndarray:
    """A view of ``c``, shape (d, K), or (d + 1, K) with the intercepts as the last row."""
    return c.reshape(-1, problem.loss.outputs)


def add_scaled(problem: Problem, batch: Batch, slopes: np.ndarray, total: np.ndarray) -> None:
    """``total += A' slopes``, A being the batch's rows in the problem's coordinates; total has shape (D, K)."""
    raw = np.zeros((problem.features, batch.block.lanes(slopes.shape[1])))
    batch.block.accumulate(batch.start, batch.stop, slopes, raw)
    raw = raw[:, : slopes.shape[1]]
    if problem.fit_intercept:
        slope_sum = slopes.sum(axis=0)
        raw = raw - problem.scaling.mean * slope_sum
        total[-1] += slope_sum
    total[: problem.features] += raw * problem.scaling.inverse_std


def margins_of(problem: Problem, batch: Batch, c: np.ndarray) -> np.ndarray:
    """Shape (rows, K)."""
    coefficients, intercepts = problem.to_raw(c)
    lanes = batch.block.lanes(problem.loss.outputs)
    padded = np.zeros((problem.features, lanes))
    padded[:, : problem.loss.outputs] = coefficients
    out = np.empty((batch.stop - batch.start, problem.loss.outputs))
    batch.block.margins(batch.start, batch.stop, padded, intercepts, out)
    return out


def slopes_of(problem: Problem, batch: Batch, margins: np.ndarray) -> np.ndarray:
    """The weighted slopes of the batch's rows, shape (rows, K)."""
    slopes = np.empty_like(margins)
    labels, weights = batch.block.labels[batch.start : batch.stop], batch.block.weights[batch.start : batch.stop]
    problem.loss.evaluate(margins, labels, weights, slopes)
    return slopes


class Walk(ABC):
    """Steps ``c <- prox(c - rate (share A' changes + drift))``, with the penalty and the pull in the proximal map.

    ``drift`` is a gradient of the mean loss, shape (size,); after a step, ``kept A' changes`` is added to it.
    """

    def __init__(self, objective: LocalObjective, start: np.ndarray, drift: np.ndarray, rate: float) -> None:
        problem, pull = objective.problem, objective.pull
        self.problem, self.rate = problem, rate
        self.coef = grid(problem, start.copy())
        # the pull is strength / 2 c^2 - strength centre' c: its linear part stands with the gradient
        self._linear = np.zeros_like(start) if pull is None else pull.strength * pull.centre
        self._drift = grid(problem, drift - self._linear)
        self._ridge = np.full(len(self.coef), 0.0 if pull is None else pull.strength)
        self._ridge[: problem.features] += problem.penalty.curvature()[:, 0]
        self._l1, l1 = np.zeros(len(self.coef)), problem.penalty.l1()
        if l1 is not None:
            self._l1[: problem.features] = l1[:, 0]

    @property
    def drift(self) -> np.ndarray:
        return self._drift.ravel() + self._linear

    @abstractmethod
    def margins(self, batch: Batch) -> np.ndarray:
        """Where the walk is, shape (rows, K)."""

    @abstractmethod
    def step(self, batch: Batch, changes: np.ndarray, share: float, kept: float) -> None:
        """One step, of the batch whose margins were asked for last; ``changes`` has shape (rows, K)."""

    def point(self) -> np.ndarray:
        """Where the walk is, shape (size,)."""
        return self.coef.ravel()


class EagerWalk(Walk):
    """Every step moves every coefficient."""

    def margins(self, batch: Batch) -> np.ndarray:
        return margins_of(self.problem, batch, self.coef.ravel())

    def step(self, batch: Batch, changes: np.ndarray, share: float, kept: float) -> None:
        sums = np.zeros_like(self.coef)
        add_scaled(self.problem, batch, changes, sums)
        kernels.step_all(sums, share, kept, self.coef, self._drift, self._l1, self._ridge, self.rate)


class LazyWalk(Walk):
    """A coefficient moves when a batch needs it, by all the steps that it has missed."""

    def __init__(self, objective: LocalObjective, start: np.ndarray, drift: np.ndarray, rate: float) -> None:
        super().__init__(objective, start, drift, rate)
        self._now, self._sums = 0, np.zeros_like(self.coef)
        self._last = np.zeros(objective.problem.features, np.int64)
        self._inverse_std = np.ascontiguousarray(objective.problem.scaling.inverse_std[:, 0])

    def margins(self, batch: Batch) -> np.ndarray:
        block = batch.block
        assert isinstance(block, SparseBlock)
        self._catch_up(block.indices[block.indptr[batch.start] : block.indptr[batch.stop]])
        out = np.empty((batch.stop - batch.start, self.coef.shape[1]))
        kernels.lazy_margins(
            block.indptr, block.indices, block.values, batch.start, batch.stop, self._inverse_std, self.coef, out
        )
        return out

    def step(self, batch: Batch, changes: np.ndarray, share: float, kept: float) -> None:
        block = batch.block
        assert isinstance(block, SparseBlock)
        kernels.lazy_step(
            block.indptr, block.indices, block.values, batch.start, batch.stop, self._inverse_std, changes, share, kept,
            self._now, self._last, self._sums, self.coef, self._drift, self._l1, self._ridge, self.rate,
        )  # fmt: skip
        self._now += 1

    def point(self) -> np.ndarray:
        self._catch_up(np.arange(self.problem.features, dtype=np.int32))
        return super().point()

    def _catch_up(self, features: np.ndarray) -> None:
        kernels.catch_up(
            features, self._now, self._last, self.coef, self._drift, self._l1, self._ridge, self.rate
        )  # fmt: skip


def walk(objective: LocalObjective, start: np.ndarray, drift: np.ndarray, rate: float) -> Walk:
    """From ``start``; see :class:`Walk`."""
    return (LazyWalk if is_lazy(objective) else EagerWalk)(objective, start, drift, rate)
