"""Moments and digests of rows as they arrive, compiled.

No sum here may be reassociated: a constant column must come out with a variance of exactly 0, and two builds of the
same rows in the same order must agree to the last bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sparkdml.data.statistics import Statistics
from sparkdml.resources.compiled import compiled

_exact = compiled()


@_exact
def _mix(h):
    """The finaliser of splitmix64."""
    h ^= h >> np.uint64(30)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    h ^= h >> np.uint64(27)
    h *= np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@_exact
def _key(j):
    """An odd multiplier for feature j."""
    return _mix(np.uint64(j) + np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)


@_exact
def _keys(features):
    keys = np.empty(features, np.uint64)
    for j in range(features):
        keys[j] = _key(j)
    return keys


@_exact
def _dense(values, bits, weights, label_bits, keys, shift, sums, squares, nonzeros):
    """Weighted sums of ``x - shift`` and its square; returns the digest."""
    rows, features = values.shape
    digest = np.uint64(0)
    for i in range(rows):
        w = weights[i]
        h = label_bits[i]
        for j in range(features):
            x = values[i, j]
            delta = np.float64(x) - shift[j]
            scaled = w * delta
            sums[j] += scaled
            squares[j] += scaled * delta
            nonzeros[j] += 1.0 if x != 0 else 0.0
        for j in range(features):
            h += np.uint64(bits[i, j]) * keys[j]
        digest += _mix(h)
    return digest


# columns of the sparse accumulator; 8 of them fill one cache line
_STORED, _SEEN, _SHIFT, _SUM, _SQUARE, _NONZERO, _COLUMNS = 0, 1, 2, 3, 4, 5, 8


@_exact
def _sparse(indptr, indices, values, bits, weights, label_bits, columns):
    """As ``_dense`` over stored values, into ``columns`` (features, 8)."""
    digest = np.uint64(0)
    for i in range(len(indptr) - 1):
        w = weights[i]
        h = label_bits[i]
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            x = np.float64(values[p])
            if columns[j, _STORED] == 0.0:
                columns[j, _SHIFT] = x
            delta = x - columns[j, _SHIFT]
            scaled = w * delta
            columns[j, _STORED] += 1.0
            columns[j, _SEEN] += w
            columns[j, _SUM] += scaled
            columns[j, _SQUARE] += scaled * delta
            columns[j, _NONZERO] += 1.0 if x != 0.0 else 0.0
            h += np.uint64(bits[p]) * _key(j)
        digest += _mix(h)
    return digest


@_exact
def _digest(indptr, indices, bits, label_bits):
    """The digest of ``_sparse`` alone."""
    digest = np.uint64(0)
    for i in range(len(indptr) - 1):
        h = label_bits[i]
        for p in range(indptr[i], indptr[i + 1]):
            h += np.uint64(bits[p]) * _key(indices[p])
        digest += _mix(h)
    return digest


def dense_statistics(
    values: np.ndarray, labels: np.ndarray, weights: np.ndarray, offsets: np.ndarray | None = None
) -> Statistics:
    """Statistics (without histogram) of rows ``values`` (n, d), all of positive weight."""
    rows, features = values.shape
    if rows == 0:
        return Statistics(features)
    shift = values[0].astype(np.float64)
    sums, squares, nonzeros = np.zeros((3, features))
    digest = _dense(
        values, _bits(values), weights, _row_bits(labels, weights, offsets), _keys(features),
        shift, sums, squares, nonzeros,
    )  # fmt: skip
    targets = _target_statistics(labels, weights)
    offset = sums / targets["weight_sum"]
    return Statistics(
        features,
        **targets,
        mean=shift + offset,
        m2=squares - sums * offset,
        nonzeros=nonzeros,
        digest=int(digest),
    )


class RowTotals:
    """Statistics of rows that are not of single features: weights, labels, digest."""

    def __init__(self) -> None:
        self._targets = Statistics(0)
        self._digest = 0

    def add(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        values: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
        offsets: np.ndarray | None = None,
    ) -> None:
        """Compressed sparse rows, as :class:`SparseMoments` takes them."""
        self.count(_digest(indptr, indices, _bits(values), _row_bits(labels, weights, offsets)), labels, weights)

    def count(self, digest: int, labels: np.ndarray, weights: np.ndarray) -> None:
        """Rows whose digest is known."""
        self._digest = (self._digest + int(digest)) % 2**64
        if len(labels):
            self._targets = self._targets.merge(Statistics(0, **_target_statistics(labels, weights)))

    def result(self) -> Statistics:
        return replace(self._targets, digest=self._digest)


class SparseMoments:
    """Statistics (without histogram) of compressed sparse rows, added batch by batch; absent values count as 0.

    One accumulator for all batches of a partition: its size is features, not batches x features.
    """

    def __init__(self, features: int) -> None:
        self._features = features
        self._columns = np.zeros((features, _COLUMNS))
        self._rows = RowTotals()

    def add(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        values: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
        offsets: np.ndarray | None = None,
    ) -> None:
        """Rows of positive weight; ``indptr`` starts anywhere in ``indices`` and ``values``."""
        row_bits = _row_bits(labels, weights, offsets)
        digest = _sparse(indptr, indices, values, _bits(values), weights, row_bits, self._columns)
        self._rows.count(digest, labels, weights)

    def result(self) -> Statistics:
        stored, seen, shift, sums, squares, nonzeros = self._columns.T[:6]
        used = stored > 0.0
        offset = np.divide(sums, seen, out=np.zeros(self._features), where=used)
        mean = np.where(used, shift + offset, 0.0)
        m2 = squares - sums * offset
        # a column stored in every row has no zeros to merge, whatever the two sums of weights rounded to
        totals = self._rows.result()
        absent = np.where(stored == totals.rows, 0.0, np.maximum(totals.weight_sum - seen, 0.0))
        total = seen + absent
        share = np.divide(seen, total, out=np.zeros(self._features), where=total > 0.0)
        return replace(
            totals,
            features=self._features,
            mean=np.where(absent == 0.0, mean, mean * share),
            m2=m2 + mean * mean * absent * share,
            nonzeros=nonzeros.copy(),
        )


def _target_statistics(labels: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
    """What :class:`Statistics` says of labels and weights; constant labels have a variance of exactly 0."""
    weight_sum = float(np.add.reduce(weights))
    deltas = labels - labels[0]
    offset = float(weights @ deltas) / weight_sum
    deltas -= offset
    return {
        "rows": len(labels),
        "weight_sum": weight_sum,
        "weight_square_sum": float(weights @ weights),
        "label_mean": float(labels[0]) + offset,
        "label_m2": float(weights @ (deltas * deltas)),
        "label_min": float(labels.min()),
        "label_max": float(labels.max()),
    }


def _bits(values: np.ndarray) -> np.ndarray:
    return values.view(np.uint64 if values.dtype == np.float64 else np.uint32)


def _row_bits(labels: np.ndarray, weights: np.ndarray, offsets: np.ndarray | None) -> np.ndarray:
    """One word a row for label, weight and offset, to start its hash."""
    key = np.uint64(0x9E3779B97F4A7C15)
    bits = labels.view(np.uint64) * key + weights.view(np.uint64) * _key(2**32)
    return bits if offsets is None else bits + offsets.view(np.uint64) * _key(2**32 + 1)
