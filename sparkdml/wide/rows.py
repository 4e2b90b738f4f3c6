"""From Arrow batches to compressed sparse rows, on the worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.ml.linalg import DenseVector, SparseVector


class SparseBatch(NamedTuple):
    """``indptr`` int64 (rows + 1,) from 0, ``indices`` int64, ``values`` float64; indices of a row in any order."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class FeatureReader:
    """Reads rows of ``features`` numbers from the columns at ``positions``.

    One position is a column of vectors or of arrays of numbers, two are the indices and the values. ``names`` are the
    user's, for messages.

    Raises ValueError for null, for rows of another size, and for an index out of range.
    """

    positions: tuple[int, ...]
    names: tuple[str, ...]
    features: int

    def read(self, batch: pa.RecordBatch) -> SparseBatch:
        columns = [batch.column(position) for position in self.positions]
        for column, name in zip(columns, self.names, strict=True):
            if column.null_count:
                self._raise(_first_null(column), name, "null", "drop such rows or fill them")
        if len(columns) == 2:
            return self._pair(columns[0], columns[1])
        if pa.types.is_struct(columns[0].type):
            return self._vectors(columns[0])
        return self._dense(columns[0])

    def _pair(self, indices: pa.Array, values: pa.Array) -> SparseBatch:
        indptr, flat = self._flat(indices, self.names[0])
        other, numbers = self._flat(values, self.names[1])
        unlike = np.diff(indptr) != np.diff(other)
        if unlike.any():
            row = int(np.argmax(unlike))
            given = f"{indptr[row + 1] - indptr[row]} indices and {other[row + 1] - other[row]} values"
            self._raise(row, f"{self.names[0]}' and '{self.names[1]}", given, "give as many of each")
        found = SparseBatch(indptr, _numbers(flat, np.int64), _numbers(numbers, np.float64))
        self._check_range(found, self.names[0])
        return found

    def _dense(self, lists: pa.Array) -> SparseBatch:
        indptr, flat = self._flat(lists, self.names[0])
        self._check_sizes(np.diff(indptr))
        return self._without_zeros(indptr, np.tile(np.arange(self.features), len(lists)), _numbers(flat, np.float64))

    def _vectors(self, column: pa.Array) -> SparseBatch:
        is_dense = column.field("type").to_numpy(zero_copy_only=False) == 1
        indptr, flat = self._flat(column.field("values"), self.names[0])
        lengths, values = np.diff(indptr), _numbers(flat, np.float64)
        size = pc.fill_null(column.field("size"), 0).to_numpy(zero_copy_only=False)
        self._check_sizes(np.where(is_dense, lengths, size))
        stored = _numbers(column.field("indices").flatten(), np.int64)
        if not is_dense.any():
            found = SparseBatch(indptr, stored, values)
            self._check_range(found, self.names[0])
            return found
        of_dense = np.repeat(is_dense, lengths)
        indices = np.arange(len(values)) - np.repeat(indptr[:-1], lengths)
        indices[~of_dense] = stored
        self._check_range(SparseBatch(indptr, indices, values), self.names[0])
        return self._without_zeros(indptr, indices, values)

    def _flat(self, lists: pa.Array, name: str) -> tuple[np.ndarray, pa.Array]:
        offsets = lists.offsets.to_numpy().astype(np.int64)
        flat, indptr = lists.flatten(), offsets - offsets[0]
        if flat.null_count:
            row = int(np.searchsorted(indptr, _first_null(flat), side="right")) - 1
            self._raise(row, name, "null inside its numbers", "fill or drop it")
        return indptr, flat

    def _without_zeros(self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> SparseBatch:
        stored = values != 0
        ends = np.concatenate([[0], np.cumsum(stored)]).astype(np.int64)
        return SparseBatch(ends[indptr], indices[stored], values[stored])

    def _check_sizes(self, sizes: np.ndarray) -> None:
        wrong = sizes != self.features
        if wrong.any():
            row = int(np.argmax(wrong))
            self._raise(
                row,
                self.names[0],
                f"{sizes[row]} features where the model has {self.features}",
                "give rows like those that the model was trained on"
                + (", as columns of indices and values (indicesCol, valuesCol)" if self.features >= 2**31 else ""),
            )

    def _check_range(self, rows: SparseBatch, name: str) -> None:
        if not len(rows.indices) or (rows.indices.min() >= 0 and rows.indices.max() < self.features):
            return
        where = int(np.argmax((rows.indices < 0) | (rows.indices >= self.features)))
        row = int(np.searchsorted(rows.indptr, where, side="right")) - 1
        self._raise(
            row,
            name,
            f"the index {rows.indices[where]}",
            f"the model has {self.features} features, so indices go from 0 to {self.features - 1}",
        )

    def _raise(self, row: int, name: str, given: str, change: str) -> None:
        raise ValueError(f"column '{name}' has {given} in row {row} of a batch; {change}")


def concatenate(batches: list[SparseBatch]) -> SparseBatch:
    """All rows, in order."""
    if len(batches) == 1:
        return batches[0]
    ends = np.cumsum([0] + [len(batch.indices) for batch in batches])
    pointers = [batch.indptr[1:] + end for batch, end in zip(batches, ends[:-1], strict=True)]
    return SparseBatch(
        np.concatenate([[0], *pointers]).astype(np.int64),
        np.concatenate([batch.indices for batch in batches]),
        np.concatenate([batch.values for batch in batches]),
    )


def as_pair(value: Any, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices and values of one row: a vector, numbers, or the pair already.

    Raises ValueError unless it is a row of ``features`` numbers.
    """
    if isinstance(value, SparseVector):
        size, indices, values = value.size, value.indices, value.values
    elif isinstance(value, tuple):
        size, (indices, values) = features, value
    else:
        values = np.asarray(value.toArray() if isinstance(value, DenseVector) else value)
        size, indices = len(values), np.arange(len(values), dtype=np.int32)
    if size != features:
        raise ValueError(f"the row has {size} features where the model has {features}")
    indices, values = np.asarray(indices, np.int64), np.asarray(values, np.float64)
    if len(indices) != len(values) or ((indices < 0) | (indices >= features)).any():
        raise ValueError(f"a row needs as many values as indices, and indices from 0 to {features - 1}")
    return indices, values


def _numbers(flat: pa.Array, kind: type) -> np.ndarray:
    if pa.types.is_decimal(flat.type):
        flat = pc.cast(flat, pa.float64())
    return np.ascontiguousarray(flat.to_numpy(zero_copy_only=False), kind)


def _first_null(array: pa.Array) -> int:
    return int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
