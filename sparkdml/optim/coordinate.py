"""Proximal coordinate descent over the columns that a worker owns, compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from sparkdml.data.block import Block, SparseBlock
from sparkdml.losses.base import Loss
from sparkdml.losses.logistic import Logistic
from sparkdml.losses.squared import Squared
from sparkdml.problem import Problem
from sparkdml.resources.compiled import compiled


def check_bounded_curvature(loss: Loss) -> None:
    """Raises ValueError unless ``loss.curvature`` bounds the second derivative of a loss of one margin."""
    if not isinstance(loss, (Logistic, Squared)):
        raise ValueError(
            "coordinate descent needs a loss of one margin whose second derivative has a bound, Logistic or Squared, "
            f"not {type(loss).__name__}; use one of these losses, or another solver"
        )


@dataclass(frozen=True)
class Columns:
    """A worker's columns ``A_k`` of all rows, in the problem's coordinates, for losses of one margin a row.

    ``A_k = matrix * scales`` with ``matrix`` (n, size) as stored: the columns of other workers have no entries, and the
    intercept's, if it is this worker's, is of ones. ``ridge`` and ``l1`` are what ``c_j^2 / 2`` and ``|c_j|`` cost.
    All three have shape (size,).
    """

    matrix: sparse.csc_array
    scales: np.ndarray
    ridge: np.ndarray
    l1: np.ndarray

    def margins(self, c: np.ndarray) -> np.ndarray:
        """``A_k c``, shape (n,)."""
        return np.asarray(self.matrix @ (self.scales * c))

    def descend(
        self, c: np.ndarray, slopes: np.ndarray, curvatures: np.ndarray, passes: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Lower ``sum_i slopes_i m_i + curvatures_i / 2 m_i^2 + penalty(c + delta)``, ``m = A_k delta``.

        Each pass minimises over one coordinate after another, in random order. Returns ``c + delta``, shape (size,),
        0 for columns that have no entries, and m, shape (n,).
        """
        own = np.flatnonzero(np.diff(self.matrix.indptr))
        following, moved = np.zeros(len(c)), np.zeros(len(slopes))
        following[own] = c[own]
        order = np.concatenate([rng.permutation(own) for _ in range(passes)])
        stored = (self.matrix.indptr, self.matrix.indices, self.matrix.data)
        _descend(*stored, self.scales, order, slopes, curvatures, self.ridge, self.l1, following, moved)
        return following, moved


def columns_of(problem: Problem, blocks: Sequence[Block], intercept: bool) -> Columns:
    """The columns that have entries in ``blocks``, which hold all rows, and the intercept's if ``intercept``.

    Sorting the entries by column, O(n + d + entries), takes about as long as four passes of :meth:`Columns.descend`.
    """
    first, *others = blocks
    # dense rows would own every column
    assert isinstance(first, SparseBlock)
    rows = first.joined(others)
    matrix = sparse.csr_array((rows.values, rows.indices, rows.indptr), (rows.rows, rows.features)).tocsc()
    l1, tail = problem.penalty.l1(), np.zeros(int(problem.fit_intercept))
    if problem.fit_intercept:
        count = rows.rows if intercept else 0
        matrix = sparse.csc_array(
            (
                np.append(matrix.data, np.ones(count, matrix.dtype)),
                np.append(matrix.indices, np.arange(count, dtype=matrix.indices.dtype)),
                np.append(matrix.indptr, int(matrix.indptr[-1]) + count),
            ),
            (rows.rows, rows.features + 1),
        )
    return Columns(
        matrix,
        scales=np.append(problem.scaling.inverse_std, tail + 1.0),
        ridge=np.append(problem.penalty.curvature(), tail),
        l1=np.append(np.zeros(problem.features) if l1 is None else l1, tail),
    )


@compiled()
def _descend(indptr, rows, values, scales, order, slopes, curvatures, ridge, l1, c, moved):
    """Minimise over the coordinates in ``order``; ``c`` and ``moved``, how far margins are from the start, follow.

    With the slope g and the curvature a of the quadratic along ``c_j``, the minimiser is
    ``shrink(a c_j - g, l1_j) / (a + ridge_j)``; 0 where nothing depends on it.
    """
    for j in order:
        slope = curvature = 0.0
        for p in range(indptr[j], indptr[j + 1]):
            i = np.uint32(rows[p])
            value = scales[j] * values[p]
            slope += value * (slopes[i] + curvatures[i] * moved[i])
            curvature += value * value * curvatures[i]
        pull = curvature * c[j] - slope
        kept = max(abs(pull) - l1[j], 0.0)
        target = np.copysign(kept, pull) / (curvature + ridge[j]) if kept > 0.0 else 0.0
        change = scales[j] * (target - c[j])
        c[j] = target
        if change == 0.0:
            continue
        for p in range(indptr[j], indptr[j + 1]):
            moved[np.uint32(rows[p])] += change * values[p]
