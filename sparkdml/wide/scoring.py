"""Transform: which stages rows go through. Nothing here starts a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkdml.data.reader import ColumnTypeError
from sparkdml.wide import records
from sparkdml.wide.answers import Answer
from sparkdml.wide.replicated import ScoreHere
from sparkdml.wide.routing import Finish, Pack, Score
from sparkdml.wide.rows import FeatureReader
from sparkdml.wide.scorer import Scorer
from sparkdml.wide.shards import Shards, map_in_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

#: Coefficients (features x C x 8 bytes) up to which every task gets all of them.
REPLICATED_BYTES = 8 * 2**20

#: The bits of Spark's ``monotonically_increasing_id`` that count the rows of a partition.
_ROW_BITS = 2**33 - 1


@dataclass(frozen=True)
class Scoring:
    """How rows are scored; ``fields`` are the columns that ``answer`` gives."""

    scorer: Scorer
    intercepts: np.ndarray
    answer: Answer
    fields: Sequence[T.StructField]


def transform(df: DataFrame, features: Sequence[str], shards: Shards, how: Scoring) -> DataFrame:
    """``df`` and the columns of ``how``.

    ``features`` names a column of vectors or arrays, or those of indices and values.

    Raises
    ------
    ValueError, TypeError : at once, for a column that is absent or of a wrong type, or one that is there already.
    """
    plain, reader, schema = opened(df, features, shards.features, how.fields)
    run = _replicated if shards.features * shards.columns * 8 <= REPLICATED_BYTES else _routed
    scored = run(plain, reader, shards, how, schema)
    return scored.toDF(*df.columns, *[field.name for field in how.fields])


def opened(
    df: DataFrame, features: Sequence[str], size: int, fields: Sequence[T.StructField]
) -> tuple[DataFrame, FeatureReader, T.StructType]:
    """``df`` by plain names, a reader of its rows of ``size`` features, and the schema with ``fields`` added.

    Raises as :func:`transform`.
    """
    for field in fields:
        if field.name in df.columns:
            raise ValueError(f"the column '{field.name}' is there already; drop it, or name the model's another way")
    reader = FeatureReader(tuple(_position(df, name) for name in features), tuple(features), size)
    _check_types(df, reader)
    # names may repeat after a join: positions do not
    plain = df.toDF(*[f"c{position}" for position in range(len(df.columns))])
    added = [T.StructField(f"a{n}", f.dataType, f.nullable, f.metadata) for n, f in enumerate(fields)]
    return plain, reader, T.StructType([*plain.schema.fields, *added])


def place(shards: Shards, session: SparkSession) -> DataFrame:
    """The shards as records, in the partitions that requests are sent to."""
    return shards.frame(session, _piece_bytes(session)).repartition(len(shards), "key")


def _placed(shards: Shards, session: SparkSession) -> DataFrame:
    return place(shards, session) if shards.placed is None else shards.placed


def _routed(df: DataFrame, reader: FeatureReader, shards: Shards, how: Scoring, schema: T.StructType) -> DataFrame:
    keys, limit = shards.keys, _piece_bytes(df.sparkSession)
    requests = map_in_arrow(df, Pack(reader, shards.bounds, keys, limit), records.COLUMNS)
    # Spark leaves out the outer repartition where it sees that both sides lie that way: shards then do not move
    placed = _placed(shards, df.sparkSession)
    met = placed.unionAll(requests.repartition(len(shards), "key")).repartition(len(shards), "key")
    met = met.sortWithinPartitions("shard", "kind", "batch", "piece")
    scored = map_in_arrow(met, Score(how.scorer, shards.columns, keys, limit), records.COLUMNS)
    answers = scored.repartition("batch").sortWithinPartitions("batch", "kind", "shard", "piece")
    finish = Finish(how.scorer, how.intercepts, how.answer, schema.names)
    return map_in_arrow(answers, finish, schema)


def _replicated(df: DataFrame, reader: FeatureReader, shards: Shards, how: Scoring, schema: T.StructType) -> DataFrame:
    # a scalar subquery runs once, as part of the job that reads the result
    chunks = _placed(shards, df.sparkSession).agg(F.collect_list("payload")).scalar()
    is_first = F.monotonically_increasing_id().bitwiseAND(F.lit(_ROW_BITS)) == 0
    told = df.select("*", F.when(is_first, chunks).alias("coefficients"))
    here = ScoreHere(reader, how.scorer, shards.columns, how.intercepts, how.answer, schema.names)
    return map_in_arrow(told, here, schema)


def _piece_bytes(session: SparkSession) -> int:
    at_once = session.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    return records.piece_bytes(int(at_once or 0))


def _position(df: DataFrame, name: str) -> int:
    found = [position for position, column in enumerate(df.columns) if column == name]
    if len(found) != 1:
        many = "is not there" if not found else f"is there {len(found)} times"
        raise ValueError(f"features column '{name}' {many}; the columns are {', '.join(df.columns)}")
    return found[0]


def _check_types(df: DataFrame, reader: FeatureReader) -> None:
    kinds = [df.schema.fields[position].dataType for position in reader.positions]
    if len(kinds) == 1:
        if not _is_list(kinds[0], T.NumericType) and not _is_vector(kinds[0]):
            raise ColumnTypeError(
                f"column '{reader.names[0]}' is {kinds[0].simpleString()}; features must be a vector "
                "(VectorAssembler makes one) or an array of numbers, or two columns (indicesCol, valuesCol)"
            )
        return
    for kind, name, allowed in zip(kinds, reader.names, (T.IntegralType, T.NumericType), strict=True):
        if not _is_list(kind, allowed):
            what = "array<bigint> or array<int>" if allowed is T.IntegralType else "an array of numbers"
            raise ColumnTypeError(f"column '{name}' is {kind.simpleString()}; it must be {what}")


def _is_list(kind: T.DataType, of: type) -> bool:
    return isinstance(kind, T.ArrayType) and isinstance(kind.elementType, of)


def _is_vector(kind: T.DataType) -> bool:
    return type(kind).__name__ == "VectorUDT" and type(kind).__module__.startswith("pyspark.ml")
