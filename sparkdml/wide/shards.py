"""Where a model's shards are: an RDD of chunks, or files; and what is computed from them without collecting them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from sparkdml.wide import records
from sparkdml.wide.shard import Chunk, Shard, from_bytes, small_chunks, to_bytes

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Shards(ABC):
    """Chunks of S shards with C = ``columns`` numbers a feature; ``bounds``: int64 (S + 1,) feature numbers."""

    def __init__(self, bounds: np.ndarray, columns: int) -> None:
        self.bounds, self.columns = np.asarray(bounds, np.int64), columns
        #: the chunks as records, cached where requests are sent to; whoever sets it, frees it
        self.placed: DataFrame | None = None

    @cached_property
    def keys(self) -> np.ndarray:
        """What records of each shard carry to get to its partition."""
        return records.place(len(self))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def features(self) -> int:
        """How many there are, with or without a stored row."""
        return int(self.bounds[-1])

    @property
    @abstractmethod
    def chunks(self) -> RDD[Chunk]:
        """Partition s has the chunks of shard s, in order."""

    @abstractmethod
    def frame(self, session: SparkSession, piece_bytes: int) -> DataFrame:
        """The chunks as records (:data:`records.COLUMNS`)."""


class InRDD(Shards):
    """Shards that an RDD of chunks computes."""

    def __init__(self, bounds: np.ndarray, columns: int, chunks: RDD[Chunk]) -> None:
        super().__init__(bounds, columns)
        self._chunks = chunks

    @property
    def chunks(self) -> RDD[Chunk]:
        return self._chunks

    def frame(self, session: SparkSession, piece_bytes: int) -> DataFrame:
        rows = self._chunks.mapPartitionsWithIndex(_as_rows(self.keys, piece_bytes))
        return session.createDataFrame(rows, records.COLUMNS, verifySchema=False)


class InFiles(Shards):
    """Shards in Parquet files: ``files`` has the columns shard, feature, values, in any order; ``path`` is the
    model's.
    """

    def __init__(self, bounds: np.ndarray, columns: int, files: DataFrame, path: str) -> None:
        super().__init__(bounds, columns)
        self._files, self.path = files, path

    @cached_property
    def chunks(self) -> RDD[Chunk]:
        columns = self.columns

        def payload(row: Any) -> tuple[int, bytes]:
            return row.shard, bytes(row.payload)

        def in_order(found: Iterable[tuple[int, bytes]]) -> Iterator[Chunk]:
            return Shard.of([from_bytes(payload, columns) for _, payload in found], columns).chunks()

        rows = self.frame(self._files.sparkSession, 2**20).select("shard", "payload").rdd.map(payload)
        return rows.partitionBy(len(self), int).mapPartitions(in_order)

    def frame(self, session: SparkSession, piece_bytes: int) -> DataFrame:
        return map_in_arrow(self._files, _FromFiles(self.columns, self.keys, piece_bytes), records.COLUMNS)


@dataclass(frozen=True)
class _FromFiles:
    columns: int
    keys: np.ndarray
    piece_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = records.Writer(self.keys, 2**30)
        for batch in batches:
            shards = batch.column("shard").to_numpy()
            indices = batch.column("feature").to_numpy()
            values = batch.column("values").flatten().to_numpy(zero_copy_only=False).reshape(-1, self.columns)
            for shard in np.unique(shards).tolist():
                chosen = shards == shard
                for part in small_chunks((indices[chosen], values[chosen]), self.piece_bytes):
                    writer.add(shard, records.COEFFICIENTS, 0, to_bytes(*part))
            if writer.full:
                yield from writer.flush()
        yield from writer.flush()


@dataclass(frozen=True)
class ToFiles:
    """Records of chunks to rows ``shard int, feature long, values array<double>``; ``columns`` is C."""

    columns: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for record in records.read(batches):
            indices, values = from_bytes(record.payload, self.columns)
            ends = np.arange(len(indices) + 1, dtype=np.int32) * self.columns
            lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(values.reshape(-1)))
            shard = pa.array(np.full(len(indices), record.shard, np.int32))
            yield pa.RecordBatch.from_arrays([shard, pa.array(indices), lists], ["shard", "feature", "values"])


def _as_rows(keys: np.ndarray, piece_bytes: int) -> Callable[[int, Iterable[Chunk]], Iterator[tuple[Any, ...]]]:
    keys = keys.tolist()

    def run(shard: int, chunks: Iterable[Chunk]) -> Iterator[tuple[Any, ...]]:
        parts = (part for chunk in chunks for part in small_chunks(chunk, piece_bytes))
        for number, part in enumerate(parts):
            yield keys[shard], shard, records.COEFFICIENTS, number, 0, bytearray(to_bytes(*part))

    return run


def map_in_arrow(
    df: DataFrame, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str | StructType
) -> DataFrame:
    """``df.mapInArrow``, which demands pandas and does not use it."""
    mapper = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    applied = mapper(*[F.col(f"`{name}`") for name in df.columns])
    return type(df)(df._jdf.mapInArrow(applied._jc, False, None), df.sparkSession)
