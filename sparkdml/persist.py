"""From trained coefficients to Spark's own models and summaries in the JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pyspark.ml.common import _py2java
from pyspark.ml.linalg import DenseMatrix, DenseVector, Vector
from pyspark.ml.wrapper import JavaWrapper
from pyspark.sql import DataFrame, SparkSession

_CLASSIFICATION = "org.apache.spark.ml.classification."
_REGRESSION = "org.apache.spark.ml.regression."


def logistic_regression_model(
    uid: str, coefficients: np.ndarray, intercepts: np.ndarray, classes: int, multinomial: bool
) -> Any:
    """Spark's ``LogisticRegressionModel``.

    ``coefficients``: (K, d), K = 1 for a binomial model; ``intercepts``: (K,).
    """
    rows, features = coefficients.shape
    # the binomial model reads its coefficients from a row-major matrix
    values = np.ascontiguousarray(coefficients, np.float64).ravel()
    dense = _to_java(DenseMatrix(rows, features, values, isTransposed=True))
    matrix = dense.compressed() if multinomial else dense.compressedRowMajor()
    name = _CLASSIFICATION + "LogisticRegressionModel"
    return JavaWrapper._new_java_obj(name, uid, matrix, _to_java(DenseVector(intercepts)), classes, multinomial)


def logistic_regression_summary(
    predictions: DataFrame, columns: Sequence[str], objectives: Sequence[float], binary: bool
) -> Any:
    """Spark's training summary; ``columns`` are those of probability, prediction, label, features and weight."""
    name = "BinaryLogisticRegressionTrainingSummaryImpl" if binary else "LogisticRegressionTrainingSummaryImpl"
    return JavaWrapper._new_java_obj(_CLASSIFICATION + name, predictions._jdf, *columns, _doubles(objectives))


def linear_svc_model(uid: str, coefficients: np.ndarray, intercept: float) -> Any:
    """Spark's ``LinearSVCModel``; ``coefficients``: (d,)."""
    return JavaWrapper._new_java_obj(
        _CLASSIFICATION + "LinearSVCModel", uid, _to_java(DenseVector(coefficients)), float(intercept)
    )


def linear_svc_summary(predictions: DataFrame, columns: Sequence[str], objectives: Sequence[float]) -> Any:
    """Spark's training summary; ``columns`` are those of raw prediction, prediction, label and weight."""
    name = _CLASSIFICATION + "LinearSVCTrainingSummaryImpl"
    return JavaWrapper._new_java_obj(name, predictions._jdf, *columns, _doubles(objectives))


def linear_regression_model(uid: str, coefficients: np.ndarray, intercept: float, scale: float) -> Any:
    """Spark's ``LinearRegressionModel``; ``coefficients``: (d,)."""
    vector = _to_java(DenseVector(coefficients)).compressed()  # sparse where that is smaller, as Spark's own
    return JavaWrapper._new_java_obj(_REGRESSION + "LinearRegressionModel", uid, vector, float(intercept), float(scale))


def linear_regression_summary(
    predictions: DataFrame,
    columns: Sequence[str],
    coefficients: np.ndarray,
    fit_intercept: bool,
    inverse_diagonal: np.ndarray,
    objectives: Sequence[float],
) -> Any:
    """Spark's training summary.

    ``columns`` are those of prediction, label, features and weight; ``coefficients`` (d,) are followed by the
    intercept, if there is one.
    """
    return JavaWrapper._new_java_obj(
        _REGRESSION + "LinearRegressionTrainingSummary",
        predictions._jdf,
        *columns,
        len(coefficients) - fit_intercept,
        fit_intercept,
        _doubles(inverse_diagonal),
        _doubles(objectives),
        _doubles(coefficients),
    )


def generalized_linear_regression_model(uid: str, coefficients: np.ndarray, intercept: float) -> Any:
    """Spark's ``GeneralizedLinearRegressionModel``; ``coefficients``: (d,)."""
    name = _REGRESSION + "GeneralizedLinearRegressionModel"
    return JavaWrapper._new_java_obj(name, uid, _to_java(DenseVector(coefficients)), float(intercept))


def generalized_linear_regression_summary(
    frame: DataFrame, java_model: Any, inverse_diagonal: np.ndarray, iterations: int, solver: str
) -> Any:
    """Spark's training summary over the rows of ``frame``; ``java_model`` has its parameters set."""
    # with an offset, nullDeviance fits the model of the intercept alone: by the model's parent
    java_model.setParent(JavaWrapper._new_java_obj(_REGRESSION + "GeneralizedLinearRegression", java_model.uid()))
    name = _REGRESSION + "GeneralizedLinearRegressionTrainingSummary"
    return JavaWrapper._new_java_obj(name, frame._jdf, java_model, _doubles(inverse_diagonal), iterations, solver)


def multilayer_perceptron_model(uid: str, weights: np.ndarray) -> Any:
    """Spark's ``MultilayerPerceptronClassificationModel``; its parameter ``layers`` has to be set."""
    name = _CLASSIFICATION + "MultilayerPerceptronClassificationModel"
    return JavaWrapper._new_java_obj(name, uid, _to_java(DenseVector(weights)))


def multilayer_perceptron_summary(predictions: DataFrame, columns: Sequence[str], objectives: Sequence[float]) -> Any:
    """Spark's training summary; ``columns`` are those of prediction, label and weight."""
    name = _CLASSIFICATION + "MultilayerPerceptronClassificationTrainingSummaryImpl"
    return JavaWrapper._new_java_obj(name, predictions._jdf, *columns, _doubles(objectives))


def fm_classification_model(uid: str, intercept: float, linear: Vector, factors: np.ndarray) -> Any:
    """Spark's ``FMClassificationModel``; ``linear`` has d entries, ``factors`` shape (d, k)."""
    return _factorization_machine(_CLASSIFICATION + "FMClassificationModel", uid, intercept, linear, factors)


def fm_classification_summary(predictions: DataFrame, columns: Sequence[str], objectives: Sequence[float]) -> Any:
    """Spark's training summary; ``columns`` are those of probability, prediction, label and weight."""
    name = _CLASSIFICATION + "FMClassificationTrainingSummaryImpl"
    return JavaWrapper._new_java_obj(name, predictions._jdf, *columns, _doubles(objectives))


def fm_regression_model(uid: str, intercept: float, linear: Vector, factors: np.ndarray) -> Any:
    """Spark's ``FMRegressionModel``; ``linear`` has d entries, ``factors`` shape (d, k)."""
    return _factorization_machine(_REGRESSION + "FMRegressionModel", uid, intercept, linear, factors)


def _factorization_machine(name: str, uid: str, intercept: float, linear: Vector, factors: np.ndarray) -> Any:
    features, size = factors.shape
    values = np.ascontiguousarray(factors, np.float64).ravel()
    matrix = _to_java(DenseMatrix(features, size, values, isTransposed=True))  # feature by feature, as Spark has it
    return JavaWrapper._new_java_obj(name, uid, float(intercept), _to_java(linear), matrix)


def _to_java(value: Any) -> Any:
    return _py2java(SparkSession.active().sparkContext, value)


def _doubles(values: Sequence[float] | np.ndarray) -> Any:
    """An array in the JVM, sent in one piece."""
    return _to_java(DenseVector(np.asarray(values, np.float64))).values()
