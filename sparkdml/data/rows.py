"""Rows in memory, on their way from Arrow to a block file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdml.resources.compiled import compiled


@dataclass(frozen=True)
class DenseRows:
    """``values``: float32 or float64 (rows, features), C order; ``offsets`` only where the data set has them."""

    values: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    offsets: np.ndarray | None = None

    @property
    def features(self) -> int:
        return int(self.values.shape[1])

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, start: int, stop: int) -> DenseRows:
        chosen = slice(start, stop)
        return DenseRows(self.values[chosen], self.labels[chosen], self.weights[chosen], _pick(self.offsets, chosen))

    def fitting(self, start: int, budget: float) -> int:
        """How many rows from ``start`` on have at most ``budget`` bytes together."""
        row_bytes = max(self.nbytes / len(self), 1.0)
        return max(min(int(budget // row_bytes), len(self) - start), 0)

    def keep(self, mask: np.ndarray) -> DenseRows:
        return DenseRows(self.values[mask], self.labels[mask], self.weights[mask], _pick(self.offsets, mask))


@dataclass(frozen=True)
class SparseRows:
    """Compressed sparse rows; ``indptr`` (int64) starts at 0."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    features: int
    labels: np.ndarray
    weights: np.ndarray
    offsets: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        return self.indptr.nbytes + self.indices.nbytes + self.values.nbytes

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, start: int, stop: int) -> SparseRows:
        low, high = self.indptr[start], self.indptr[stop]
        return SparseRows(
            self.indptr[start : stop + 1] - low,
            self.indices[low:high],
            self.values[low:high],
            self.features,
            self.labels[start:stop],
            self.weights[start:stop],
            _pick(self.offsets, slice(start, stop)),
        )

    def fitting(self, start: int, budget: float) -> int:
        """How many rows from ``start`` on have at most ``budget`` bytes together."""
        ends = self.indptr[start + 1 :] - self.indptr[start]
        sizes = ends * (self.values.itemsize + 4) + 8 * np.arange(1, len(ends) + 1)
        return int(np.searchsorted(sizes, budget, side="right"))

    def keep(self, mask: np.ndarray) -> SparseRows:
        lengths = np.diff(self.indptr)
        stored = np.repeat(mask, lengths)
        return SparseRows(
            np.concatenate([[0], np.cumsum(lengths[mask])]).astype(np.int64),
            self.indices[stored],
            self.values[stored],
            self.features,
            self.labels[mask],
            self.weights[mask],
            _pick(self.offsets, mask),
        )


Rows = DenseRows | SparseRows


def _pick(offsets: np.ndarray | None, chosen: slice | np.ndarray) -> np.ndarray | None:
    return None if offsets is None else offsets[chosen]


def to_sparse(rows: Rows) -> SparseRows:
    """The same rows without their zeros."""
    if isinstance(rows, SparseRows):
        return rows
    row, column = np.nonzero(rows.values)
    counts = np.bincount(row, minlength=len(rows))
    return SparseRows(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        column.astype(np.int32),
        rows.values[row, column],
        rows.features,
        rows.labels,
        rows.weights,
        rows.offsets,
    )


def to_dense(rows: Rows) -> DenseRows:
    """The same rows with their zeros."""
    if isinstance(rows, DenseRows):
        return rows
    values = np.zeros((len(rows), rows.features), rows.values.dtype)
    _scatter(rows.indptr, rows.indices, rows.values, values)
    return DenseRows(values, rows.labels, rows.weights, rows.offsets)


@compiled()
def _scatter(indptr, indices, values, out):
    for i in range(out.shape[0]):
        for p in range(indptr[i], indptr[i + 1]):
            out[i, indices[p]] = values[p]


@compiled()
def _fits_float32(values):
    # in strides, so that an early exit and a vectorised test go together
    for start in range(0, values.shape[0], 1024):
        part = values[start : start + 1024]
        lossy = 0
        for i in range(part.shape[0]):
            if np.float64(np.float32(part[i])) != part[i]:
                lossy += 1
        if lossy:
            return False
    return True


def fits_float32(values: np.ndarray) -> bool:
    """Whether float32 holds every value exactly."""
    return values.dtype == np.float32 or bool(_fits_float32(values.reshape(-1)))
