"""One partition of a DataFrame or of Parquet files, written as blocks by the task that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparkdml.data.handle import Handle
from sparkdml.data.moments import SparseMoments, dense_statistics
from sparkdml.data.reader import BadInputError, BatchReader, Columns
from sparkdml.data.rows import DenseRows, Rows
from sparkdml.data.statistics import Statistics, add_ragged
from sparkdml.data.store import local_directories
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
            gathered = _Gathered(columns.classes)
            for batch in batches:
                rows = reader.read(batch)
                if rows is not None:
                    writer.add(rows, gathered.add(rows))
            statistics = gathered.result()
            return writer.finish(statistics) if statistics.rows else None
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
        if self._classes:
            self._histogram = add_ragged(self._histogram, np.bincount(rows.labels.astype(np.int64), rows.weights))
        if isinstance(rows, DenseRows):
            batch = dense_statistics(rows.values, rows.labels, rows.weights, rows.offsets)
            self._dense = batch if self._dense is None else self._dense.merge(batch)
            return float(batch.nonzeros.sum())
        if self._sparse is None:
            self._sparse = SparseMoments(rows.features)
        self._sparse.add(rows.indptr, rows.indices, rows.values, rows.labels, rows.weights, rows.offsets)
        return float(len(rows.values))

    def result(self) -> Statistics:
        parts = [part for part in (self._dense, self._sparse and self._sparse.result()) if part]
        if not parts:
            return Statistics(0)
        statistics = parts[0] if len(parts) == 1 else parts[0].merge(parts[1])
        statistics.histogram = self._histogram
        return statistics
