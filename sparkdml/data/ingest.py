"""One partition of a DataFrame or of Parquet files, written as blocks by the task that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa

from sparkdml.data.block import DenseBlock, SparseBlock
from sparkdml.data.handle import Handle
from sparkdml.data.moments import RowTotals, SparseMoments, dense_statistics
from sparkdml.data.reader import BadInputError, BatchReader, Columns
from sparkdml.data.routing import NAME as ROUTING
from sparkdml.data.routing import routed_by, write_table
from sparkdml.data.rows import DenseRows, Rows, to_sparse
from sparkdml.data.statistics import FEATURE_ARRAYS, WIDE_FEATURES, Statistics, add_ragged
from sparkdml.data.store import FileSpec, local_directories, open_block
from sparkdml.data.writer import PartitionWriter, StoreFullError

#: How a partition's outcome travels as one record: a handle, or why there is none.
OUTCOME = pa.schema([("record", pa.binary())])


@dataclass(frozen=True)
class Refusal:
    """Why a partition could not be ingested: ``kind`` is ``input`` or ``storage``."""

    kind: str
    partition: int
    message: str

    def to_error(self) -> Exception:
        return BadInputError(self.message) if self.kind == "input" else StoreFullError(self.message)


def encode(outcome: Handle | Refusal) -> bytes:
    if isinstance(outcome, Handle):
        return outcome.to_bytes()
    return json.dumps({"refusal": [outcome.kind, outcome.partition, outcome.message]}).encode()


def decode(record: bytes) -> Handle | Refusal:
    if bytes(record).startswith(b'{"refusal"'):
        return Refusal(*json.loads(bytes(record))["refusal"])
    return Handle.from_bytes(record)


def ingest_partition(
    dataset: str, columns: Columns, partition: int, batches: Iterable[pa.RecordBatch]
) -> Handle | Refusal | None:
    """Check, measure and write the rows of one partition; None if it has none."""
    try:
        with PartitionWriter(dataset, partition, local_directories()) as writer:
            reader = BatchReader(columns, partition)
            gathered: _Gathered | _GatheredWide | None = None
            for batch in batches:
                rows = reader.read(batch)
                if rows is None:
                    continue
                if rows.features > WIDE_FEATURES:
                    rows = to_sparse(rows)
                if gathered is None:
                    wide = columns.wide or rows.features > WIDE_FEATURES
                    gathered = (_GatheredWide if wide else _Gathered)(columns.classes)
                writer.add(rows, gathered.add(rows))
            if gathered is None:
                return None
            writer.flush()
            return writer.finish(gathered.result(writer.blocks))
    except BadInputError as error:
        # returned, not raised: bad rows stay bad, so Spark must not try them four times
        return Refusal("input", partition, str(error))
    except StoreFullError as error:
        return Refusal("storage", partition, str(error))


def arrow_ingester(dataset: str, columns: Columns) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark runs over the Arrow batches of each partition."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        outcome = ingest_partition(dataset, columns, context.partitionId(), batches)
        if outcome is not None:
            yield pa.RecordBatch.from_arrays([pa.array([encode(outcome)], pa.binary())], schema=OUTCOME)

    return run


class _Gathered:
    """Statistics of a partition's rows, dense and sparse batches apart."""

    def __init__(self, classes: bool) -> None:
        self._classes = classes
        self._histogram = np.zeros(0)
        self._dense: Statistics | None = None
        self._sparse: SparseMoments | None = None

    def add(self, rows: Rows) -> float:
        """Take in ``rows``; returns how many of their values are not 0."""
        self._histogram = _counted(self._histogram, rows, self._classes)
        if isinstance(rows, DenseRows):
            batch = dense_statistics(rows.values, rows.labels, rows.weights, rows.offsets)
            self._dense = batch if self._dense is None else self._dense.merge(batch)
            return float(batch.nonzeros.sum())
        if self._sparse is None:
            self._sparse = SparseMoments(rows.features)
        self._sparse.add(rows.indptr, rows.indices, rows.values, rows.labels, rows.weights, rows.offsets)
        return float(len(rows.values))

    def result(self, written: Sequence[FileSpec]) -> Statistics:
        """Of all rows, which are ``written``."""
        statistics = _together([part for part in (self._dense, self._sparse and self._sparse.result()) if part])
        statistics.histogram = self._histogram
        return statistics


class _GatheredWide:
    """The same where features are many: what is told of them waits until it is known which of them occur."""

    def __init__(self, classes: bool) -> None:
        self._classes = classes
        self._histogram = np.zeros(0)
        self._totals = RowTotals()
        self._features = 0

    def add(self, rows: Rows) -> float:
        """Take in ``rows``; returns how many of their values are not 0."""
        self._features = rows.features
        self._histogram = _counted(self._histogram, rows, self._classes)
        # one digest for a row, however it is stored
        rows = to_sparse(rows)
        self._totals.add(rows.indptr, rows.indices, rows.values, rows.labels, rows.weights, rows.offsets)
        return float(np.count_nonzero(rows.values))

    def result(self, written: Sequence[FileSpec]) -> Statistics:
        """Of all rows, which are ``written``; their routing table is left beside them."""
        stored = [open_block(file) for file in written]
        table = write_table(Path(written[0].path).parent / ROUTING, self._features, stored)
        routed = routed_by(table, stored)
        dense = [
            dense_statistics(b.values, b.labels, b.weights) for b in routed.blocks if isinstance(b, DenseBlock)
        ]  # fmt: skip
        moments = SparseMoments(len(routed.columns))
        sparse = [block for block in routed.blocks if isinstance(block, SparseBlock)]
        for block in sparse:
            moments.add(block.indptr, block.indices, block.values, block.labels, block.weights)
        told = _together([*dense, *([moments.result()] if sparse else [])])
        arrays = {name: getattr(told, name) for name in FEATURE_ARRAYS}
        columns = None if dense else routed.columns
        totals = self._totals.result()
        return replace(totals, features=self._features, histogram=self._histogram, columns=columns, **arrays)


def _counted(histogram: np.ndarray, rows: Rows, classes: bool) -> np.ndarray:
    """``histogram`` with the weights of the classes in ``rows``."""
    return add_ragged(histogram, np.bincount(rows.labels.astype(np.int64), rows.weights)) if classes else histogram


def _together(parts: Sequence[Statistics]) -> Statistics:
    return reduce(Statistics.merge, parts) if parts else Statistics(0)
