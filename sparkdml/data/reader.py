"""Arrow batches to checked rows, on the worker."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkdml.data.rows import DenseRows, Rows, SparseRows
from sparkdml.resources.compiled import compiled

#: Most classes that a label column may have.
MAX_CLASSES = 2**20


class ColumnTypeError(TypeError, ValueError):
    """A column is of a type that cannot be used."""


class BadInputError(ValueError):
    """The rows cannot be trained on; the message names column, value and what to change."""


@dataclass(frozen=True)
class Columns:
    """The user's names for what is read, for messages, and what is asked of them.

    ``classes``: labels must be 0, 1, 2, ...; ``expected`` features and ``label_values`` classes by the columns'
    metadata, if they say so. ``pairs``: features are a column of indices and one of values. ``wide``: nothing may be
    as long as there are features, however few they are.
    """

    features: str
    label: str
    weight: str | None = None
    classes: bool = True
    expected: int | None = None
    label_values: int | None = None
    offset: str | None = None
    pairs: bool = False
    wide: bool = False


class BatchReader:
    """Reads the batches of one partition; every row must have as many features as the first.

    Batches have the columns ``values`` (lists of numbers), ``label``, optionally ``weight`` and ``offset``, and for
    vectors also ``size`` (-1 in dense rows) and ``indices``; for pairs of columns ``indices`` alone.
    """

    def __init__(self, columns: Columns, partition: int) -> None:
        self._columns, self._partition = columns, partition
        self._seen = 0
        self.features = columns.expected

    def read(self, batch: pa.RecordBatch) -> Rows | None:
        """The batch's rows of non-zero weight, or None if there are none."""
        if batch.num_rows == 0:
            return None
        columns = self._columns
        labels = self._numbers(batch, "label", columns.label)
        weights = np.ones(len(labels))
        if columns.weight is not None:
            weights = self._numbers(batch, "weight", columns.weight)
            self._refuse(weights < 0, weights, columns.weight, "weights must be 0 or larger")
        if columns.classes:
            self._check_classes(labels)
        rows = self._features(batch, labels, weights)
        if columns.offset is not None:
            rows = replace(rows, offsets=self._numbers(batch, "offset", columns.offset))
        self._seen += batch.num_rows
        if weights.all():
            return rows
        present = weights > 0
        return rows.keep(present) if present.any() else None

    def _numbers(self, batch: pa.RecordBatch, field: str, name: str) -> np.ndarray:
        array = batch.column(field)
        self._refuse_nulls(array, name)
        numbers = np.ascontiguousarray(array.to_numpy(zero_copy_only=False), dtype=np.float64)
        self._refuse(~np.isfinite(numbers), numbers, name, "every value must be a finite number")
        return numbers

    def _check_classes(self, labels: np.ndarray) -> None:
        whole = (labels >= 0) & (labels < MAX_CLASSES) & (labels == np.floor(labels))
        self._refuse(
            ~whole,
            labels,
            self._columns.label,
            f"class labels must be whole numbers from 0 to {MAX_CLASSES - 1}; map them with "
            "StringIndexer, or with when() for labels such as -1 and 1",
        )

    def _features(self, batch: pa.RecordBatch, labels: np.ndarray, weights: np.ndarray) -> Rows:
        lists = batch.column("values")
        self._refuse_nulls(lists, self._columns.features)
        starts = lists.offsets.to_numpy().astype(np.int64)
        flat = lists.flatten()
        if flat.null_count:
            where = int(np.argmax(flat.is_null().to_numpy(zero_copy_only=False)))
            row = int(np.searchsorted(starts - starts[0], where, side="right")) - 1
            self._raise(row, self._columns.features, "null inside its features", "fill or drop it")
        values = _as_floats(flat)
        indptr = starts - starts[0]
        self._check_finite(values, indptr)
        if self._columns.pairs:
            return self._pairs(batch.column("indices"), values, indptr, labels, weights)
        if "size" not in batch.schema.names:
            return self._dense(values, indptr, labels, weights)
        size = batch.column("size").to_numpy(zero_copy_only=False)
        if (size < 0).all():
            return self._dense(values, indptr, labels, weights)
        lists = batch.column("indices")
        lengths = np.diff(lists.offsets.to_numpy())
        if lists.null_count:
            lengths = np.where(lists.is_null().to_numpy(zero_copy_only=False), 0, lengths)
        self._check_lengths(lengths, np.where(size < 0, 0, np.diff(indptr)))
        indices = lists.flatten().to_numpy(zero_copy_only=False)
        return self._mixed(size, indices, values, indptr, labels, weights)

    def _check_lengths(self, indices: np.ndarray, values: np.ndarray) -> None:
        unlike = indices != values
        if unlike.any():
            row = int(np.argmax(unlike))
            given = f"{indices[row]} indices and {values[row]} values"
            self._raise(row, self._columns.features, given, "give as many of each")

    def _pairs(
        self, lists: pa.Array, values: np.ndarray, indptr: np.ndarray, labels: np.ndarray, weights: np.ndarray
    ) -> SparseRows:
        """Rows by lists of indices, in any order and with repetitions, which add up."""
        self._refuse_nulls(lists, self._columns.features)
        self._check_lengths(np.diff(lists.offsets.to_numpy()), np.diff(indptr))
        flat = lists.flatten()
        if flat.null_count:
            where = int(np.argmax(flat.is_null().to_numpy(zero_copy_only=False)))
            row = int(np.searchsorted(indptr, where, side="right")) - 1
            self._raise(row, self._columns.features, "null inside its indices", "fill or drop it")
        indices = flat.to_numpy(zero_copy_only=False)
        assert self.features is not None
        wrong = (indices < 0) | (indices >= self.features)
        if wrong.any():
            where = int(np.argmax(wrong))
            row = int(np.searchsorted(indptr, where, side="right")) - 1
            self._raise(
                row,
                self._columns.features,
                f"the index {indices[where]}",
                f"indices must be from 0 to {self.features - 1}; raise numFeatures if more are meant",
            )
        if self.features <= 2**31:
            indices = indices.astype(np.int32)
        # one type whatever other rows of the batch are like: a row's digest is of its values as they are held
        values = values.astype(np.float64, copy=False)
        if _first_disordered(indptr, indices, self.features) >= 0:
            indptr, indices, values = _merged(indptr, indices, values)
        return SparseRows(indptr, indices, values, self.features, labels, weights)

    def _dense(self, values: np.ndarray, indptr: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> DenseRows:
        self._check_sizes(np.diff(indptr))
        return DenseRows(values.reshape(len(labels), -1), labels, weights)

    def _mixed(
        self,
        size: np.ndarray,
        indices: np.ndarray,
        values: np.ndarray,
        indptr: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
    ) -> SparseRows:
        lengths = np.diff(indptr)
        dense = size < 0
        self._check_sizes(np.where(dense, lengths, size))
        assert self.features is not None
        if dense.any():
            # an index of its own for every value of a dense row; its zeros are dropped below
            counted = np.arange(len(values)) - np.repeat(indptr[:-1], lengths)
            filled = counted.astype(np.int32)
            filled[~np.repeat(dense, lengths)] = indices
            indices = filled
        bad = _first_disordered(indptr, indices, self.features)
        if bad >= 0:
            self._raise(
                bad,
                self._columns.features,
                f"indices that are not increasing from 0 to {self.features - 1}",
                "build sparse vectors with Vectors.sparse, which sorts and checks them",
            )
        rows = SparseRows(indptr, indices, values, self.features, labels, weights)
        return _without_zeros(rows) if dense.any() else rows

    def _check_sizes(self, sizes: np.ndarray) -> None:
        if self.features is None:
            self.features = int(sizes[0])
            if self.features == 0:
                self._raise(0, self._columns.features, "no features", "give at least one feature")
        wrong = sizes != self.features
        if wrong.any():
            row = int(np.argmax(wrong))
            said = "its metadata says" if self._columns.expected else "earlier rows have"
            self._raise(
                row,
                self._columns.features,
                f"{int(sizes[row])} features where {said} {self.features}",
                "give every row the same number of features",
            )

    def _check_finite(self, values: np.ndarray, indptr: np.ndarray) -> None:
        # NaN and Inf survive a sum, so one pass without temporaries tells; huge finite values are looked at again
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(_sum(values)):
                return
        bad = ~np.isfinite(values)
        if bad.any():
            where = int(np.argmax(bad))
            row = int(np.searchsorted(indptr, where, side="right")) - 1
            self._raise(
                row,
                self._columns.features,
                f"the value {values[where]}",
                "replace or drop NaN and infinite values before fitting (Imputer, dropna)",
            )

    def _refuse(self, wrong: np.ndarray, values: np.ndarray, name: str, allowed: str) -> None:
        if wrong.any():
            row = int(np.argmax(wrong))
            self._raise(row, name, f"the value {values[row]:g}", allowed)

    def _refuse_nulls(self, array: pa.Array, name: str) -> None:
        if array.null_count:
            row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
            self._raise(row, name, "null", f"drop such rows (df.dropna(subset=['{name}'])) or fill them")

    def _raise(self, row: int, name: str, given: str, change: str) -> None:
        raise BadInputError(
            f"column '{name}' has {given} in row {self._seen + row} of partition {self._partition}; {change}"
        )


def _as_floats(flat: pa.Array) -> np.ndarray:
    """Values as float32 where their type fits it, else float64; no copy for floats."""
    if pa.types.is_float64(flat.type) or pa.types.is_float32(flat.type):
        return np.asarray(flat.to_numpy(zero_copy_only=False))
    if pa.types.is_decimal(flat.type):
        flat = pc.cast(flat, pa.float64())
    small = pa.types.is_integer(flat.type) and flat.type.bit_width <= 16
    return flat.to_numpy(zero_copy_only=False).astype(np.float32 if small else np.float64)


def _merged(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Rows with increasing indices: values of the same index add up."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.lexsort((indices, rows))
    rows, indices, values = rows[order], indices[order], values[order]
    first = np.ones(len(rows), bool)
    first[1:] = (indices[1:] != indices[:-1]) | (rows[1:] != rows[:-1])
    starts = np.flatnonzero(first)
    counts = np.bincount(rows[starts], minlength=len(indptr) - 1)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return ends, indices[starts], np.add.reduceat(values, starts) if len(starts) else values


def _without_zeros(rows: SparseRows) -> SparseRows:
    stored = rows.values != 0
    ends = np.concatenate([[0], np.cumsum(stored)]).astype(np.int64)
    return SparseRows(
        ends[rows.indptr],
        rows.indices[stored],
        rows.values[stored],
        rows.features,
        rows.labels,
        rows.weights,
    )


@compiled(fastmath={"reassoc"})
def _sum(values):
    total = 0.0
    for i in range(values.shape[0]):
        total += values[i]
    return total


@compiled()
def _first_disordered(indptr, indices, features):
    for i in range(len(indptr) - 1):
        previous = -1
        for p in range(indptr[i], indptr[i + 1]):
            if indices[p] <= previous or indices[p] >= features:
                return i
            previous = indices[p]
    return -1
