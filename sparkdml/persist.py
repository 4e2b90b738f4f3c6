"""From trained coefficients to Spark's own models."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml.common import _py2java
from pyspark.ml.linalg import DenseMatrix, DenseVector
from pyspark.ml.wrapper import JavaWrapper
from pyspark.sql import SparkSession

_CLASSIFICATION = "org.apache.spark.ml.classification."


def logistic_regression_model(
    uid: str, coefficients: np.ndarray, intercepts: np.ndarray, classes: int, multinomial: bool
) -> Any:
    """Spark's ``LogisticRegressionModel`` in the JVM.

    ``coefficients``: (K, d), K = 1 for a binomial model; ``intercepts``: (K,).
    """
    sc = SparkSession.active().sparkContext
    rows, features = coefficients.shape
    # the binomial model reads its coefficients from a row-major matrix
    values = np.ascontiguousarray(coefficients, np.float64).ravel()
    dense = _py2java(sc, DenseMatrix(rows, features, values, isTransposed=True))
    matrix = dense.compressed() if multinomial else dense.compressedRowMajor()
    return JavaWrapper._new_java_obj(
        _CLASSIFICATION + "LogisticRegressionModel",
        uid,
        matrix,
        _py2java(sc, DenseVector(intercepts)),
        classes,
        multinomial,
    )
