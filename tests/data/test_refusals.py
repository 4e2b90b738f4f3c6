"""What cannot be trained on is refused: types before any job, values by the only pass over the rows."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkdml.data import from_dataframe
from sparkdml.data.reader import BadInputError

NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def good(make_frame):
    """Columns of many types beside good features, label and weight."""
    df = make_frame(np.eye(4), [0, 1, 0, 1], np.ones(4), partitions=2)
    return df.select(
        "*",
        F.lit("one").alias("text"),
        F.lit(True).alias("truth"),
        F.current_date().alias("day"),
        F.array(F.lit("a")).alias("texts"),
        F.array(F.array(F.lit(1.0))).alias("nested"),
        F.struct("label").alias("pair"),
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"features": "text"}, ["text", "string", "vector"]),
        ({"features": "texts"}, ["texts", "array<string>"]),
        ({"features": "nested"}, ["nested", "array<array<double>>"]),
        ({"features": "pair"}, ["pair", "struct"]),
        ({"features": "label"}, ["label", "double", "featuresCols"]),
        ({"features": ["label", "text"]}, ["text", "string", "numeric"]),
        ({"features": ["features"]}, ["features", "numeric"]),
        ({"label": "text"}, ["label column 'text'", "string"]),
        ({"label": "truth"}, ["label column 'truth'", "boolean"]),
        ({"label": "features"}, ["label column 'features'", "numeric"]),
        ({"label": "day"}, ["label column 'day'", "date"]),
        ({"weight": "text"}, ["weight column 'text'", "string"]),
        ({"weight": "truth"}, ["weight column 'truth'", "boolean"]),
    ],
    ids=str,
)
def test_wrong_types_are_refused_before_any_job(good, jobs_started, arguments, words) -> None:
    with pytest.raises(TypeError) as raised:
        from_dataframe(good, **arguments)
    assert not [word for word in words if word not in str(raised.value)]
    assert jobs_started() == 0


@pytest.mark.parametrize(
    "arguments",
    [{"features": "no"}, {"features": ["label", "no"]}, {"label": "no"}, {"weight": "no"}],
    ids=str,
)
def test_absent_columns_are_refused_before_any_job(good, jobs_started, arguments) -> None:
    with pytest.raises(ValueError, match="'no'") as raised:
        from_dataframe(good, **arguments)
    assert "truth" in str(raised.value)  # the columns that there are
    assert jobs_started() == 0


def test_an_empty_list_of_columns_is_refused_before_any_job(good, jobs_started) -> None:
    with pytest.raises(ValueError, match="featuresCols"):
        from_dataframe(good, [])
    assert jobs_started() == 0


def test_vectors_of_mllib_are_refused_with_the_conversion_to_use(spark, jobs_started) -> None:
    from pyspark.mllib.linalg import Vectors as OldVectors
    from pyspark.mllib.linalg import VectorUDT as OldVectorUDT

    schema = T.StructType([T.StructField("old", OldVectorUDT()), T.StructField("label", T.DoubleType())])
    df = spark.createDataFrame([(OldVectors.dense([1.0, 2.0]), 0.0)], schema)
    with pytest.raises(TypeError, match="convertVectorColumnsToML") as raised:
        from_dataframe(df, "old")
    assert "'old'" in str(raised.value)
    assert jobs_started() == 0


def test_the_jobs_of_a_good_frame_are_counted(good, jobs_started) -> None:
    """Else a count of 0 would mean nothing."""
    with from_dataframe(good, weight="weight"):
        assert jobs_started() > 0


SCHEMA = T.StructType(
    [
        T.StructField("my features", VectorUDT()),
        T.StructField("my label", T.DoubleType()),
        T.StructField("my weight", T.DoubleType()),
    ]
)
DENSE, SPARSE = Vectors.dense([1.0, 2.0, 3.0]), Vectors.sparse(3, [1], [1.0])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((None, 0.0, 1.0), ["'my features'", "null"]),
        ((DENSE, None, 1.0), ["'my label'", "null"]),
        ((DENSE, 0.0, None), ["'my weight'", "null"]),
        ((Vectors.dense([1.0, NAN, 1.0]), 0.0, 1.0), ["'my features'", "nan"]),
        ((Vectors.sparse(3, [2], [-INF]), 0.0, 1.0), ["'my features'", "-inf"]),
        ((Vectors.dense([1.0]), 0.0, 1.0), ["'my features'", "1 features", "3"]),
        ((Vectors.sparse(4, [2], [1.0]), 0.0, 1.0), ["'my features'", "4 features", "3"]),
        ((DENSE, NAN, 1.0), ["'my label'", "nan"]),
        ((DENSE, -1.0, 1.0), ["'my label'", "-1"]),
        ((DENSE, 0.5, 1.0), ["'my label'", "0.5"]),
        ((DENSE, 0.0, -2.0), ["'my weight'", "-2"]),
        ((DENSE, 0.0, INF), ["'my weight'", "inf"]),
    ],
    ids=str,
)
def test_bad_values_are_named_with_their_column(spark, row: tuple, words: list[str]) -> None:
    rows = [(DENSE, 1.0, 1.0), (SPARSE, 0.0, 1.0)] * 8
    rows[14] = row
    df = spark.createDataFrame(rows, SCHEMA)
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        from_dataframe(df, "my features", "my label", "my weight")
    assert not [word for word in words if word not in str(raised.value)]
    assert "row 6 of partition 1" in str(raised.value)


def test_null_inside_an_array(spark) -> None:
    schema = T.StructType(
        [T.StructField("features", T.ArrayType(T.DoubleType())), T.StructField("label", T.IntegerType())]
    )
    df = spark.createDataFrame([([1.0, 2.0], 0), ([1.0, None], 1)], schema)
    with pytest.raises(BadInputError, match="'features' has null"):
        from_dataframe(df)


def test_null_in_one_of_several_columns(spark) -> None:
    schema = T.StructType([T.StructField(name, T.DoubleType()) for name in ("a", "b", "label")])
    df = spark.createDataFrame([(1.0, 2.0, 0.0), (None, 2.0, 1.0)], schema)
    with pytest.raises(BadInputError, match="'a.*has null"):
        from_dataframe(df, ["a", "b"])


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_partitions_of_unlike_width_are_told_apart(spark, kind: str) -> None:
    """Each partition alone would do."""
    make = Vectors.dense if kind == "dense" else lambda row: Vectors.sparse(len(row), [0], [1.0])
    rows = [(make([1.0] * (3 if i < 4 else 5)), float(i % 2), 1.0) for i in range(8)]
    df = spark.createDataFrame(rows, SCHEMA)
    with pytest.raises(ValueError, match="3 features.*5") as raised:
        from_dataframe(df, "my features", "my label", "my weight")
    assert "partition 1" in str(raised.value)


def test_size_that_contradicts_the_columns_metadata(make_frame) -> None:
    df = make_frame(np.eye(5), [0, 1, 0, 1, 0])
    said = df.withMetadata("features", {"ml_attr": {"num_attrs": 4}})
    with pytest.raises(BadInputError, match="5 features.*metadata says 4"):
        from_dataframe(said)


@pytest.mark.parametrize("empty", ["filter", "limit", "emptyRDD", "weights of 0"])
def test_empty_data_is_refused(spark, good, empty: str, datasets_on_disk) -> None:
    frames = {
        "filter": lambda: good.where("label > 5"),
        "limit": lambda: good.limit(0),
        "emptyRDD": lambda: spark.createDataFrame(spark.sparkContext.emptyRDD(), good.schema),
        "weights of 0": lambda: good.withColumn("weight", F.lit(0)),
    }
    with pytest.raises(ValueError, match="empty"):
        from_dataframe(frames[empty](), weight="weight")
    assert datasets_on_disk() == []
