"""Rows stacked: the only place that knows sparse from dense."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse

from sparkdml.data import kernels

#: Features of one chunk stay within a core's second-level cache.
CHUNK_BYTES = 1024 * 1024
#: Where more than this share of rows is stored, products with matrices are faster of dense rows.
DENSE_SHARE = 0.125


@dataclass(frozen=True)
class Block(ABC):
    """Features of shape (rows, features), with labels and weights, float64 (rows,).

    ``offsets``, float64 (rows,), are added to each row's margin by models that have them.
    """

    labels: np.ndarray
    weights: np.ndarray
    features: int
    offsets: np.ndarray | None = field(default=None, kw_only=True)

    @property
    def rows(self) -> int:
        return len(self.labels)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the stored features."""

    @abstractmethod
    def margins(
        self,
        start: int,
        stop: int,
        coefficients: np.ndarray,
        intercepts: np.ndarray,
        out: np.ndarray,
    ) -> None:
        """``out = X[start:stop] @ coefficients + intercepts``; out has shape (stop - start, K).

        ``coefficients`` has at least lanes(K) columns, zero beyond column K; ``intercepts`` has shape (K,).
        """

    @abstractmethod
    def accumulate(self, start: int, stop: int, slopes: np.ndarray, gradient: np.ndarray) -> None:
        """``gradient += X[start:stop].T @ slopes``; gradient has at least lanes(K) columns."""

    @abstractmethod
    def add_gram(self, start: int, stop: int, weights: np.ndarray, centre: np.ndarray, total: np.ndarray) -> None:
        """``total += sum_i weights_i (x_i - centre)(x_i - centre)'`` over rows start to stop, its lower triangle.

        ``weights`` has shape (stop - start,) and is never negative; ``centre`` has shape (features,).
        """

    @abstractmethod
    def float32(self, start: int, stop: int) -> np.ndarray | sparse.csr_matrix:
        """Features of rows start to stop as float32 (n, features), a view where it can be.

        Compressed rows where those are faster to multiply with a matrix, else dense.
        """

    @abstractmethod
    def between(self, start: int, stop: int) -> Block:
        """Rows start to stop as a block of its own, which shares this one's arrays."""

    @abstractmethod
    def take(self, rows: np.ndarray) -> Block:
        """The rows of these numbers, int64 (n,), gathered in that order; a number may occur several times."""

    @abstractmethod
    def compact(self) -> tuple[np.ndarray, Block]:
        """The features that these rows can be other than 0 in, and the same rows over those features alone.

        Features are sorted numbers, int64 (n,). Dense rows keep all of them, and nothing is copied.
        """

    @abstractmethod
    def joined(self, others: Sequence[Block]) -> Block:
        """These rows, then those of ``others``, blocks of the same class; values of two precisions become float64."""

    def lanes(self, outputs: int) -> int:
        """Columns that arrays of ``outputs`` coefficients a feature are padded to."""
        return outputs

    def chunk_rows(self, outputs: int) -> int:
        """Rows whose features, margins and slopes fit the cache together."""
        row_bytes = self.nbytes / max(self.rows, 1) + 16 * outputs
        return int(min(max(CHUNK_BYTES // max(row_bytes, 1), 32), 16384))


#: Rows start to stop of a block.
Part = tuple[Block, int, int]


@dataclass(frozen=True)
class DenseBlock(Block):
    """``values``: float32 or float64, shape (rows, features), C order."""

    values: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def margins(
        self,
        start: int,
        stop: int,
        coefficients: np.ndarray,
        intercepts: np.ndarray,
        out: np.ndarray,
    ) -> None:
        outputs = out.shape[1]
        if outputs == 1:
            kernels.dense_margins(self.values, start, stop, coefficients, intercepts, out)
        else:
            values = self.values[start:stop].astype(np.float64, copy=False)
            np.matmul(values, coefficients[:, :outputs], out=out)
            out += intercepts

    def accumulate(self, start: int, stop: int, slopes: np.ndarray, gradient: np.ndarray) -> None:
        outputs = slopes.shape[1]
        if outputs == 1:
            kernels.dense_accumulate(self.values, start, stop, slopes, gradient)
        else:
            values = self.values[start:stop].astype(np.float64, copy=False)
            gradient[:, :outputs] += values.T @ slopes

    def float32(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop].astype(np.float32, copy=False)

    def between(self, start: int, stop: int) -> DenseBlock:
        return replace(
            self,
            labels=self.labels[start:stop],
            weights=self.weights[start:stop],
            offsets=None if self.offsets is None else self.offsets[start:stop],
            values=self.values[start:stop],
        )

    def take(self, rows: np.ndarray) -> DenseBlock:
        return DenseBlock(
            self.labels[rows],
            self.weights[rows],
            self.features,
            self.values[rows],
            offsets=None if self.offsets is None else self.offsets[rows],
        )

    def compact(self) -> tuple[np.ndarray, DenseBlock]:
        return np.arange(self.features), self

    def joined(self, others: Sequence[Block]) -> DenseBlock:
        labels, weights, offsets = _joined_rows(self, others)
        values = np.concatenate([self.values, *(block.values for block in others if isinstance(block, DenseBlock))])
        return DenseBlock(labels, weights, self.features, values, offsets=offsets)

    def add_gram(self, start: int, stop: int, weights: np.ndarray, centre: np.ndarray, total: np.ndarray) -> None:
        values = (self.values[start:stop] - centre) * np.sqrt(weights)[:, None]
        total += values.T @ values

    def chunk_rows(self, outputs: int) -> int:
        rows = super().chunk_rows(outputs)
        # a matrix product wants more rows than a cache-sized chunk of very wide ones has
        return rows if outputs == 1 else max(rows, 128)


@dataclass(frozen=True)
class SparseBlock(Block):
    """Compressed sparse rows: ``indptr`` int64 (rows + 1,), ``indices`` int32 and ``values`` (non-zeros,).

    Indices within a row are increasing. ``indptr`` need not start at 0: a part of a block shares its arrays.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    @property
    def nbytes(self) -> int:
        nonzeros = int(self.indptr[-1] - self.indptr[0])
        return nonzeros * (self.indices.itemsize + self.values.itemsize) + self.indptr.nbytes

    def margins(
        self,
        start: int,
        stop: int,
        coefficients: np.ndarray,
        intercepts: np.ndarray,
        out: np.ndarray,
    ) -> None:
        kernel = kernels.sparse_margins if out.shape[1] == 1 else kernels.sparse_margins_multi
        kernel(self.indptr, self.indices, self.values, start, stop, coefficients, intercepts, out)

    def accumulate(self, start: int, stop: int, slopes: np.ndarray, gradient: np.ndarray) -> None:
        single = slopes.shape[1] == 1
        kernel = kernels.sparse_accumulate if single else kernels.sparse_accumulate_multi
        kernel(self.indptr, self.indices, self.values, start, stop, slopes, gradient)

    def add_gram(self, start: int, stop: int, weights: np.ndarray, centre: np.ndarray, total: np.ndarray) -> None:
        kernels.sparse_gram(self.indptr, self.indices, self.values, weights, start, stop, total)
        if not centre.any():
            return
        # rows stay sparse: what centring takes away is known from their weighted sum
        sums = np.zeros((self.features, 1))
        self.accumulate(start, stop, weights[:, None], sums)
        cross = np.outer(centre, sums[:, 0] - 0.5 * weights.sum() * centre)
        total -= cross + cross.T

    def chunk_rows(self, outputs: int) -> int:
        # Margins and gradient both reach all over the coefficients: taking turns in large chunks, each of them has the
        # cache for its own array, which is worth more than finding a row's values there.
        rows = super().chunk_rows(outputs)
        return 8 * rows if outputs == 1 else rows

    def float32(self, start: int, stop: int) -> np.ndarray | sparse.csr_matrix:
        ends = self.indptr[start : stop + 1]
        stored = slice(ends[0], ends[-1])
        values, shape = self.values[stored].astype(np.float32, copy=False), (stop - start, self.features)
        rows = sparse.csr_matrix((values, self.indices[stored], ends - ends[0]), shape)
        return rows.toarray() if len(values) > DENSE_SHARE * shape[0] * shape[1] else rows

    def between(self, start: int, stop: int) -> SparseBlock:
        return replace(
            self,
            labels=self.labels[start:stop],
            weights=self.weights[start:stop],
            offsets=None if self.offsets is None else self.offsets[start:stop],
            indptr=self.indptr[start : stop + 1],
        )

    def take(self, rows: np.ndarray) -> SparseBlock:
        indptr = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(self.indptr[rows + 1] - self.indptr[rows], out=indptr[1:])
        indices, values = np.empty(indptr[-1], self.indices.dtype), np.empty(indptr[-1], self.values.dtype)
        kernels.sparse_take(self.indptr, self.indices, self.values, rows, indices, values)
        offsets = None if self.offsets is None else self.offsets[rows]
        labels, weights = self.labels[rows], self.weights[rows]
        return SparseBlock(labels, weights, self.features, indptr, indices, values, offsets=offsets)

    def compact(self) -> tuple[np.ndarray, SparseBlock]:
        first, last = self.indptr[0], self.indptr[-1]
        # sorting each index together with its place finds the features without an array over all of them
        keys = self.indices[first:last].astype(np.int64)
        keys <<= 32
        keys |= np.arange(len(keys))
        keys.sort()
        columns, local = np.empty(len(keys), np.int64), np.empty(len(keys), np.int32)
        count = kernels.sparse_compact(keys, columns, local)
        indptr, values = self.indptr - first, self.values[first:last]
        return columns[:count], SparseBlock(
            self.labels, self.weights, count, indptr, local, values, offsets=self.offsets
        )

    def joined(self, others: Sequence[Block]) -> SparseBlock:
        labels, weights, offsets = _joined_rows(self, others)
        blocks = [self, *(block for block in others if isinstance(block, SparseBlock))]
        spans = [slice(block.indptr[0], block.indptr[-1]) for block in blocks]
        starts = np.cumsum([0, *(span.stop - span.start for span in spans)])
        ends = [
            block.indptr[1:] + (start - span.start)
            for block, start, span in zip(blocks, starts[:-1], spans, strict=True)
        ]
        indptr = np.concatenate([np.zeros(1, np.int64), *ends])
        indices, values = (
            np.concatenate([part[span] for part, span in zip(parts, spans, strict=True)])
            for parts in ([block.indices for block in blocks], [block.values for block in blocks])
        )
        return SparseBlock(labels, weights, self.features, indptr, indices, values, offsets=offsets)

    def lanes(self, outputs: int) -> int:
        """Full vector registers: the kernels then have no scalar remainder, which halves their time."""
        return outputs if outputs == 1 else -(-outputs // 8) * 8


def _joined_rows(block: Block, others: Sequence[Block]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Labels, weights and offsets of all these rows."""
    assert all(type(other) is type(block) for other in others)
    blocks = [block, *others]
    offsets = [each.offsets for each in blocks if each.offsets is not None]
    assert len(offsets) in (0, len(blocks))
    return (
        np.concatenate([each.labels for each in blocks]),
        np.concatenate([each.weights for each in blocks]),
        np.concatenate(offsets) if offsets else None,
    )
