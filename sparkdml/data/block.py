"""Rows stacked: the only place that knows sparse from dense."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from sparkdml.data import kernels

#: Features of one chunk stay within a core's second-level cache.
CHUNK_BYTES = 512 * 1024


@dataclass(frozen=True)
class Block(ABC):
    """Features of shape (rows, features), with labels and weights, float64 (rows,)."""

    labels: np.ndarray
    weights: np.ndarray
    features: int

    @property
    def rows(self) -> int:
        return len(self.labels)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the stored features."""

    @abstractmethod
    def margins(
        self, start: int, stop: int, coefficients: np.ndarray, out: np.ndarray
    ) -> np.ndarray:
        """``out = X[start:stop] @ coefficients``; out has shape (stop - start, K).

        ``coefficients`` has shape (features, lanes(K)), zero beyond column K.
        """

    @abstractmethod
    def accumulate(self, start: int, stop: int, slopes: np.ndarray, gradient: np.ndarray) -> None:
        """``gradient += X[start:stop].T @ slopes``; gradient has shape (features, lanes(K))."""

    def lanes(self, outputs: int) -> int:
        """Columns that arrays of ``outputs`` coefficients a feature are padded to."""
        return outputs

    def chunk_rows(self, outputs: int) -> int:
        """Rows whose features, margins and slopes fit the cache together."""
        row_bytes = self.nbytes / max(self.rows, 1) + 16 * outputs
        return int(min(max(CHUNK_BYTES // max(row_bytes, 1), 32), 16384))


@dataclass(frozen=True)
class DenseBlock(Block):
    """``values``: float32 or float64, shape (rows, features), C order."""

    values: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def margins(
        self, start: int, stop: int, coefficients: np.ndarray, out: np.ndarray
    ) -> np.ndarray:
        values = self.values[start:stop]
        if coefficients.shape[1] == 1:
            kernels.dense_margins(values, coefficients[:, 0], out[:, 0])
        else:
            np.matmul(values.astype(np.float64, copy=False), coefficients, out=out)
        return out

    def accumulate(self, start: int, stop: int, slopes: np.ndarray, gradient: np.ndarray) -> None:
        values = self.values[start:stop]
        if gradient.shape[1] == 1:
            kernels.dense_accumulate(values, slopes[:, 0], gradient[:, 0])
        else:
            gradient += values.astype(np.float64, copy=False).T @ slopes

    def chunk_rows(self, outputs: int) -> int:
        rows = super().chunk_rows(outputs)
        # a matrix product wants more rows than a cache-sized chunk of very wide ones has
        return rows if outputs == 1 else max(rows, 128)


@dataclass(frozen=True)
class SparseBlock(Block):
    """Compressed sparse rows: ``indptr`` int64 (rows + 1,), ``indices`` int32 and ``values`` (non-zeros,).

    Indices within a row are increasing.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.indptr.nbytes + self.indices.nbytes + self.values.nbytes

    def margins(
        self, start: int, stop: int, coefficients: np.ndarray, out: np.ndarray
    ) -> np.ndarray:
        indptr = self.indptr[start : stop + 1]
        if coefficients.shape[1] == 1:
            kernels.sparse_margins(indptr, self.indices, self.values, coefficients[:, 0], out[:, 0])
        else:
            kernels.sparse_margins_multi(indptr, self.indices, self.values, coefficients, out)
        return out

    def accumulate(self, start: int, stop: int, slopes: np.ndarray, gradient: np.ndarray) -> None:
        indptr = self.indptr[start : stop + 1]
        if gradient.shape[1] == 1:
            kernels.sparse_accumulate(
                indptr, self.indices, self.values, slopes[:, 0], gradient[:, 0]
            )
        else:
            kernels.sparse_accumulate_multi(indptr, self.indices, self.values, slopes, gradient)

    def lanes(self, outputs: int) -> int:
        """Full vector registers: the kernels then have no scalar remainder, which halves their time."""
        return outputs if outputs == 1 else -(-outputs // 8) * 8
