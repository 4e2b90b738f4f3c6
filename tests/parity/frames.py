"""Rows and frames that both libraries are fitted on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import DataFrame
from pyspark.sql.types import DoubleType, StructField, StructType

FIELDS = [
    StructField("features", VectorUDT()),
    StructField("label", DoubleType()),
    StructField("weight", DoubleType()),
]


def make_rows(classes: int, seed: int = 3, rows: int = 300, features: int = 6):
    """Features of unlike scales and offsets, with zeros, and labels that no hyperplane separates."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, features)) * np.logspace(-1, 1, features)
    X[:, 3] += 2.0
    X[rng.random(X.shape) < 0.3] = 0.0
    scores = (X / np.logspace(-1, 1, features)) @ rng.standard_normal((features, classes))
    y = (scores + rng.gumbel(size=scores.shape) * 1.5).argmax(axis=1).astype(float)
    w = rng.integers(0, 4, rows).astype(float)
    return X, y, w


def make_frame(spark, X, y, w, form: str, partitions: int = 3):
    def vector(i: int, row: np.ndarray):
        dense = form == "dense" or (form == "mixed" and i % 2)
        stored = np.flatnonzero(row)
        return Vectors.dense(row) if dense else Vectors.sparse(len(row), stored, row[stored])

    rows = [(vector(i, X[i]), float(y[i]), float(w[i])) for i in range(len(y))]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, partitions), StructType(FIELDS))


@dataclass(frozen=True)
class Data:
    X: np.ndarray
    y: np.ndarray
    w: np.ndarray
    frame: DataFrame


@contextmanager
def cached(spark, X, y, w, form: str = "mixed", partitions: int = 2) -> Iterator[Data]:
    """The rows, and a frame of them that many fits read without making it again."""
    frame = make_frame(spark, X, y, w, form, partitions).cache()
    yield Data(X, y, w, frame)
    frame.unpersist()


def predictions(model, frame) -> np.ndarray:
    return np.array([row.prediction for row in model.transform(frame).select("prediction").collect()])
