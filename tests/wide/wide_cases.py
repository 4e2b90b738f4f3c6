"""Models in shards from plain arrays, and rows for them."""

from __future__ import annotations

import numpy as np
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import types as T

from sparkdml.wide import (
    DistributedLinearRegressionModel,
    DistributedLinearSVCModel,
    DistributedLogisticRegressionModel,
)

FEATURES = 40
#: Shards of very unlike sizes, some without features.
BOUNDS = [0, 0, 3, 17, 17, 36, 40]


def coefficients_of(columns: int = 1, features: int = FEATURES, seed: int = 7) -> np.ndarray:
    """(features, columns), a third of the rows and some numbers beside zero."""
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(features, columns))
    found[rng.random(features) < 0.3] = 0
    found[rng.random(found.shape) < 0.1] = 0
    return found


def chunks_of(spark, coefficients: np.ndarray, bounds=BOUNDS):
    """An RDD of chunks, two a shard where there are rows enough."""
    shards = []
    for low, high in zip(bounds[:-1], bounds[1:], strict=True):
        indices = low + np.flatnonzero(coefficients[low:high].any(axis=1))
        halves = [part for part in np.array_split(indices, 2) if len(part)]
        shards.append([(part, coefficients[part]) for part in halves])
    return spark.sparkContext.parallelize(shards, len(shards)).flatMap(list)


def logistic(spark, **options):
    return DistributedLogisticRegressionModel(chunks_of(spark, coefficients_of()), BOUNDS, [0.3], **options)


def multinomial(spark, classes: int = 3):
    chunks = chunks_of(spark, coefficients_of(classes))
    return DistributedLogisticRegressionModel(chunks, BOUNDS, np.linspace(-0.2, 0.4, classes))


def svc(spark):
    return DistributedLinearSVCModel(chunks_of(spark, coefficients_of()), BOUNDS, [-0.1])


def regression(spark):
    return DistributedLinearRegressionModel(chunks_of(spark, coefficients_of()), BOUNDS, [1.5])


MODELS = {"logistic": logistic, "multinomial": multinomial, "svc": svc, "regression": regression}


def matrix(rows: int = 23, features: int = FEATURES, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features)) * (rng.random((rows, features)) < 0.4)
    X[0] = 0
    X[-1] = X[-2]  # twice the same row
    return X


def vectors(X: np.ndarray, kind: str) -> list:
    def vector(number: int, row: np.ndarray):
        if kind == "dense" or (kind == "mixed" and number % 3 == 1):
            return Vectors.dense(row)
        at = np.flatnonzero(row)
        return Vectors.sparse(len(row), at.tolist(), row[at].tolist())

    return [vector(number, row) for number, row in enumerate(X)]


def frame(spark, X: np.ndarray, kind: str = "mixed", partitions: int = 2):
    """Columns ``id``, ``note`` (with nulls), ``other`` (vectors, with nulls), ``features``, ``nested``."""
    features = vectors(X, kind) if kind in ("dense", "sparse", "mixed") else X.tolist()
    types = {"doubles": T.ArrayType(T.DoubleType()), "floats": T.ArrayType(T.FloatType())}
    rows = [
        (
            number % (len(X) - 1),
            None if number % 4 == 1 else f"note {number}",
            None if number % 5 == 2 else Vectors.dense([number, 1.0]),
            row,
            [(number, {"a": 1.5}), (None, None)],
        )
        for number, row in enumerate(features)
    ]
    nested = T.ArrayType(T.StructType().add("n", T.LongType()).add("m", T.MapType(T.StringType(), T.DoubleType())))
    schema = T.StructType(
        [
            T.StructField("id", T.LongType(), False),
            T.StructField("note", T.StringType()),
            T.StructField("other", VectorUDT()),
            T.StructField("features", types.get(kind, VectorUDT()), True, {"said": "by the user"}),
            T.StructField("nested", nested),
        ]
    )
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, partitions), schema, verifySchema=False)


def pairs(spark, rows: list, partitions: int = 2):
    """Columns ``id``, ``indices`` (long), ``values`` (double) from a list of pairs."""
    data = [
        (number, list(map(int, indices)), list(map(float, values))) for number, (indices, values) in enumerate(rows)
    ]
    return spark.createDataFrame(
        spark.sparkContext.parallelize(data, partitions), "id long, indices array<long>, values array<double>"
    )


def in_order(rows: list) -> list:
    return sorted(rows, key=lambda row: str(row[:3]))
