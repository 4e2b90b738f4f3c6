"""Where data sets come from: DataFrames, and Parquet files that skip the JVM."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from sparkdml.data import columns as column_choice
from sparkdml.data import parquet
from sparkdml.data.columns import Features
from sparkdml.data.dataset import Dataset
from sparkdml.data.ingest import arrow_ingester, encode, ingest_partition
from sparkdml.data.partition import Split
from sparkdml.data.reader import Columns
from sparkdml.resources.gpus.workers import Workers, workers_for
from sparkdml.resources.slots import task_slots

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def from_dataframe(
    df: DataFrame,
    features: Features = "features",
    label: str = "label",
    weight: str | None = None,
    classes: bool = True,
    offset: str | None = None,
    split: Split | None = None,
    wide: bool = False,
    workers: Workers | None = None,
) -> Dataset:
    """Prepare the rows of ``df``.

    Parameters
    ----------
    features : a column of vectors (dense, sparse or mixed) or of arrays of numbers, several numeric columns, or
        :class:`~sparkdml.data.columns.Pairs` of columns.
    label, weight : numeric columns. Rows of weight 0 are left out.
    offset : a numeric column that is added to every margin, for models that have one.
    classes : labels must be 0, 1, 2, ... (else any finite number).
    split : which worker gets which rows; as they come, if it is left out.
    workers : who will train on them; as many as there are slots, if it is left out.
    wide : prepare for models that are partitioned, as for more than about a million features it is done anyway.

    Raises
    ------
    TypeError, ValueError : before any job, if a column is absent or of the wrong type; from the only pass over the
        rows, if one holds null, NaN, an infinite value, a wrong size, a bad label or a negative weight.
    """
    picked, columns = column_choice.select(df, features, label, weight, classes, offset, wide)
    sc = df.sparkSession.sparkContext
    workers = workers or workers_for(sc)
    slots = workers.limited(task_slots(sc))
    split = split or Split()
    if split.how == "stratified" and not classes:
        raise ValueError("split='stratified' deals rows by their class, but labels are numbers here; use 'shuffled'")
    picked = split.apply(picked, slots, "label")
    identity = _new_id()
    ingester = UserDefinedFunction(
        arrow_ingester(identity, columns),
        returnType="record binary",
        evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    )
    # DataFrame.mapInArrow is this, and a demand for pandas that it does not use
    applied = ingester(*[picked[name] for name in picked.columns])
    frame = type(df)(picked._jdf.mapInArrow(applied._jc, False, None), df.sparkSession)
    return Dataset(identity, workers.reading(frame.rdd), columns)


def from_parquet(
    spark: SparkSession,
    path: str,
    features: str | Sequence[str] = "features",
    label: str = "label",
    weight: str | None = None,
    classes: bool = True,
    offset: str | None = None,
    workers: Workers | None = None,
) -> Dataset:
    """Prepare the rows of Parquet files, read by the tasks with Arrow: nothing crosses the JVM.

    ``path`` is a file or a folder that every executor can open. Otherwise as :func:`from_dataframe`.
    """
    sc = spark.sparkContext
    workers = workers or workers_for(sc)
    slots = workers.limited(task_slots(sc))
    files = parquet.find_files(path)
    parquet.check_schemas(files, features, [name for name in (label, weight, offset) if name])
    plan = parquet.plan_splits(files, slots)
    if not plan:
        raise ValueError(f"the data set is empty: {path} has no rows")
    name = features if isinstance(features, str) else ", ".join(features)
    metadata = parquet.column_metadata(files[0])
    expected = column_choice.size_in(metadata.get(features, {})) if isinstance(features, str) else len(features)
    values = column_choice.classes_in(metadata.get(label, {}))
    columns = Columns(name, label, weight, classes, expected, values, offset)
    identity = _new_id()
    records = sc.parallelize(plan, len(plan)).mapPartitionsWithIndex(_parquet_ingester(identity, features, columns))
    return Dataset(identity, workers.reading(records), columns)


def _parquet_ingester(
    dataset: str, features: str | Sequence[str], columns: Columns
) -> Callable[[int, Iterable[list[parquet.Split]]], Iterator[bytes]]:
    def run(partition: int, plans: Iterable[list[parquet.Split]]) -> Iterator[bytes]:
        splits = [split for plan in plans for split in plan]
        batches = parquet.read_batches(splits, features, columns)
        outcome = ingest_partition(dataset, columns, partition, batches)
        return iter([] if outcome is None else [encode(outcome)])

    return run


def _new_id() -> str:
    return uuid.uuid4().hex[:16]
