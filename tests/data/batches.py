"""Arrow batches as the data plane gets them, and what it made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from sparkdml.data.block import Block, SparseBlock
from sparkdml.data.reader import Columns
from sparkdml.data.rows import DenseRows, Rows, SparseRows, to_dense

#: Names that are not the fields' own, so that a message which names a field shows.
COLUMNS = Columns("my features", "my label")
WEIGHTED = Columns("my features", "my label", "my weight")

#: A dense row is its values; a sparse row is (size, indices, values).
Vector = Sequence[float] | tuple[int, Sequence[int], Sequence[float]]


def list_batch(
    rows: Sequence[object],
    labels: Sequence[object],
    weights: Sequence[object] | None = None,
    element: pa.DataType | None = None,
) -> pa.RecordBatch:
    """Features as lists of ``element`` (double)."""
    fields = {
        "values": pa.array(rows, pa.list_(element or pa.float64())),
        "label": pa.array(labels, pa.float64()),
    }
    if weights is not None:
        fields["weight"] = pa.array(weights, pa.float64())
    return pa.RecordBatch.from_pydict(fields)


def vector_batch(
    rows: Sequence[Vector],
    labels: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
) -> pa.RecordBatch:
    """Features as unwrapped vectors, some of them sparse."""
    parts = [row if isinstance(row, tuple) else (-1, [], row) for row in rows]
    labels = [0.0] * len(rows) if labels is None else labels
    batch = list_batch([list(values) for _, _, values in parts], labels, weights)
    sizes = pa.array([size for size, _, _ in parts], pa.int32())
    indices = pa.array([list(at) for _, at, _ in parts], pa.list_(pa.int32()))
    return batch.append_column("size", sizes).append_column("indices", indices)


def sparse_vector(row: np.ndarray) -> Vector:
    at = np.flatnonzero(row)
    return len(row), at.tolist(), row[at].tolist()


def dense_rows(X: np.ndarray, dtype: type = np.float64) -> DenseRows:
    values = np.ascontiguousarray(X, dtype)
    return DenseRows(values, np.arange(len(X), dtype=float), np.ones(len(X)))


def sparse_rows(X: np.ndarray, dtype: type = np.float64) -> SparseRows:
    row, column = np.nonzero(X)
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(X, axis=1))]).astype(np.int64)
    labels, weights = np.arange(len(X), dtype=float), np.ones(len(X))
    values = X[row, column].astype(dtype)
    return SparseRows(indptr, column.astype(np.int32), values, X.shape[1], labels, weights)


def matrix(rows: Rows | Block) -> np.ndarray:
    """The dense float64 matrix of rows or of a block."""
    if isinstance(rows, SparseBlock):
        rows = SparseRows(rows.indptr, rows.indices, rows.values, rows.features, rows.labels, rows.weights)
    values = to_dense(rows).values if isinstance(rows, SparseRows) else rows.values
    return np.asarray(values, np.float64)


def stacked(blocks: Iterable[Block]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, y, weights of all blocks, in order."""
    blocks = list(blocks)
    return (
        np.vstack([matrix(block) for block in blocks]),
        np.concatenate([block.labels for block in blocks]),
        np.concatenate([block.weights for block in blocks]),
    )
