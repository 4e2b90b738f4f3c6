"""Every kind of column, and every spread of rows over partitions, give the same data set."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from cases import COLUMN_KINDS
from contents import assert_rows, assert_statistics, assert_sums
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkdml.data import from_dataframe

NAMES = [f"x{j}" for j in range(6)]


def features_of(kind: str) -> str | list[str]:
    return NAMES if kind == "scalars" else "features"


@pytest.mark.parametrize("kind", COLUMN_KINDS)
def test_every_kind_of_column_gives_the_same_rows_statistics_and_sums(make_frame, table, kind: str) -> None:
    df = make_frame(*table, kind=kind, partitions=3)
    with from_dataframe(df, features_of(kind), weight="weight") as dataset:
        assert_rows(dataset, table)
        assert_statistics(dataset, table)
        assert_sums(dataset, table)
        assert dataset.stored_bytes > 0


@pytest.mark.parametrize("kind", COLUMN_KINDS)
def test_values_that_float32_would_change_are_kept(make_frame, kind: str) -> None:
    X = np.random.default_rng(1).standard_normal((20, 3))
    X = np.sort(X.astype(np.float32).astype(float) if kind == "floats" else X, axis=0)
    df = make_frame(X, np.zeros(20), kind=kind)
    with from_dataframe(df, [*NAMES[:3]] if kind == "scalars" else "features") as dataset:
        assert_rows(dataset, (X, np.zeros(20), np.ones(20)))


@pytest.mark.parametrize("partitions", [1, 3, 40])
def test_the_number_of_partitions_does_not_matter(spark, make_frame, table, partitions: int) -> None:
    df = make_frame(*table, partitions=partitions)
    assert df.rdd.getNumPartitions() == partitions
    with from_dataframe(df, weight="weight") as dataset:
        assert dataset.partitions <= spark.sparkContext.defaultParallelism == 2
        assert_rows(dataset, table)
        assert_statistics(dataset, table)


def test_rows_left_over_by_a_filter(make_frame, table) -> None:
    """Ten rows in eight partitions, most of which are empty."""
    df = make_frame(*table, partitions=8).where(F.col("label") < 2)
    X, y, weights = (a[table[1] < 2][:10] for a in table)
    ten = df.where(F.element_at(F.unwrap_udt("features")["values"], 1) <= float(X[-1, 0]))
    with from_dataframe(ten, weight="weight") as dataset:
        assert_rows(dataset, (X, y, weights))
        assert_statistics(dataset, (X, y, weights))


@pytest.mark.parametrize("at", [0, 1, 7])
def test_all_rows_in_one_of_eight_partitions(spark, at: int) -> None:
    schema = T.StructType([T.StructField("x", T.DoubleType()), T.StructField("label", T.IntegerType())])
    slices = spark.sparkContext.parallelize(range(8), 8).flatMap(
        lambda p: [(1.0, 0), (2.0, 1), (4.0, 1)] if p == at else []
    )
    with from_dataframe(spark.createDataFrame(slices, schema), ["x"]) as dataset:
        assert dataset.partitions == 1
        assert_rows(dataset, (np.array([[1.0], [2], [4]]), np.array([0.0, 1, 1]), np.ones(3)))


def test_one_row(make_frame) -> None:
    X = np.array([[3.0, 0.0, -1.0]])
    with from_dataframe(make_frame(X, [1.0], partitions=4)) as dataset:
        assert_rows(dataset, (X, np.ones(1), np.ones(1)))
        assert dataset.statistics.std.tolist() == [0.0, 0.0, 0.0]
        assert dataset.statistics.histogram.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("size", [1, 3, 10000])
@pytest.mark.parametrize("kind", ["dense", "mixed"])
def test_the_size_of_arrow_batches_does_not_matter(make_frame, table, conf, kind: str, size: int) -> None:
    df = make_frame(*table, kind=kind)
    with (
        conf("spark.sql.execution.arrow.maxRecordsPerBatch", size),
        from_dataframe(df, weight="weight") as dataset,
    ):
        assert_rows(dataset, table)
        assert_statistics(dataset, table)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_rows_of_weight_0_are_absent(make_frame, table, kind: str) -> None:
    X, y, weights = table
    weights = np.where(np.arange(60) % 4 == 1, 0.0, weights)
    there = weights > 0
    with from_dataframe(make_frame(X, y, weights, kind=kind), weight="weight") as dataset:
        assert_rows(dataset, (X[there], y[there], weights[there]))
        assert_statistics(dataset, (X[there], y[there], weights[there]))


NUMERIC = [
    T.ByteType(),
    T.ShortType(),
    T.IntegerType(),
    T.LongType(),
    T.FloatType(),
    T.DoubleType(),
    T.DecimalType(10, 2),
]


@pytest.mark.parametrize("kind", NUMERIC, ids=lambda kind: kind.simpleString())
def test_labels_weights_and_columns_of_every_numeric_type(spark, kind: T.DataType) -> None:
    convert = {"decimal(10,2)": Decimal, "float": float, "double": float}.get(kind.simpleString(), int)
    values = [[1, 5, 0, 2], [2, 0, 1, 1], [3, 7, 1, 0]]
    fields = [T.StructField(name, kind) for name in ("a", "b", "label", "weight")]
    df = spark.createDataFrame([tuple(convert(v) for v in row) for row in values], T.StructType(fields))
    there = (np.array([[1.0, 5.0], [2.0, 0.0]]), np.array([0.0, 1.0]), np.array([2.0, 1.0]))
    with from_dataframe(df, ["a", "b"], weight="weight") as dataset:
        assert_rows(dataset, there)
    arrays = df.withColumn("features", F.array("a", "b"))
    with from_dataframe(arrays, weight="weight") as dataset:
        assert_rows(dataset, there)


def test_labels_that_are_not_classes(make_frame, table) -> None:
    X, _, _ = table
    y = np.linspace(-3.0, 0.5, 60)
    with from_dataframe(make_frame(X, y), classes=False) as dataset:
        assert_rows(dataset, (X, y, np.ones(60)))
        assert len(dataset.statistics.histogram) == 0


def test_columns_whose_names_hold_dots_ticks_and_the_fields_own_names(spark) -> None:
    names = ["a.b", "c`d", "values", "size", "label"]
    schema = T.StructType([T.StructField(name, T.DoubleType()) for name in [*names, "weight.of"]])
    df = spark.createDataFrame([(1.0, 2.0, 3.0, 0.0, 9.0, 2.0), (5.0, 6.0, 7.0, 1.0, 9.0, 1.0)], schema)
    with from_dataframe(df, names[:3], "size", "weight.of") as dataset:
        expected = (np.array([[1.0, 2, 3], [5, 6, 7]]), np.array([0.0, 1.0]), np.array([2.0, 1.0]))
        assert_rows(dataset, expected)


def test_very_wide_sparse_rows_stay_sparse_on_disk(spark) -> None:
    width, count = 100_000, 200
    rows = [(Vectors.sparse(width, [0, i + 1], [i + 1.0, 1.0]), i % 2) for i in range(count)]
    rows[0] = (Vectors.dense([1.0] + [0.0] * (width - 1)), 0)
    schema = T.StructType([T.StructField("features", VectorUDT()), T.StructField("label", T.LongType())])
    with from_dataframe(spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), schema)) as dataset:
        assert dataset.features == width
        assert dataset.stored_bytes < 100 * count
        assert dataset.statistics.nonzeros.sum() == 2 * count - 1
