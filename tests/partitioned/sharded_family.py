"""Fits of models in shards beside fits of whole models, and rows that are hard for both."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from sparkdml.classification import LogisticRegression
from sparkdml.regression import LinearRegression

D = 8
#: What solvers of whole models are compared by, to the last digits.
EXACT = {"tol": 1e-10, "maxIter": 200}
STEPS = {"solver": "sgd", "miniBatchFraction": 1.0, "maxIter": 3, "tol": 0.0, "stepSize": 0.1}


def rows(classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """A feature never seen (2), one constant (3), one in every row (4); empty rows; a row that has all but one."""
    rng = np.random.default_rng(12)
    X = rng.standard_normal((60, D)) * np.array([1.0, 3.0, 1.0, 1.0, 0.5, 1.0, 10.0, 1.0])
    X[rng.random(X.shape) < 0.6] = 0.0
    X[:, 4] = rng.standard_normal(60) + 2.0
    X[5:8] = 0.0
    X[59] = rng.standard_normal(D)
    X[:, 2], X[:, 3] = 0.0, 1.5
    margins = X[:, :3] @ np.array([1.0, -0.5, 0.0]) + 0.1 * X[:, 6] + rng.standard_normal(60)
    if classes == 0:
        return X, 7.0 + 3.0 * margins
    return X, np.digitize(margins, np.linspace(-1.0, 1.0, classes + 1)[1:-1]).astype(float)


def learned(model) -> np.ndarray:
    """Intercepts, then coefficients."""
    if hasattr(model, "coefficientMatrix"):
        return np.concatenate([model.interceptVector.toArray(), model.coefficientMatrix.toArray().ravel()])
    return np.append(model.intercept, model.coefficients.toArray())


@contextmanager
def partitioned(estimator, data):
    """The model in shards, which are freed at the end of the block."""
    model = estimator.copy().setPlacement("partitioned").fit(data)
    try:
        yield model
    finally:
        model.coefficientsRDD.unpersist()


def whole(estimator, data):
    """``local`` takes the steps of ``broadcast`` (see test_cooperation.py), without a job a round."""
    return estimator.copy().setPlacement("local").fit(data)


def assert_same(estimator, data, whole_data=None, atol: float = 1e-6) -> None:
    expected = whole(estimator, data if whole_data is None else whole_data)
    with partitioned(estimator, data) as found:
        assert found.report.placement.startswith("partitioned: asked for")
        assert found.numFeatures == expected.numFeatures
        np.testing.assert_allclose(learned(found), learned(expected), rtol=0.0, atol=atol)
        assert found.report.objective == pytest.approx(expected.report.objective, rel=1e-6, abs=1e-9)


def as_pairs(spark, X, y, features=None, repeat: bool = False):
    """Non-zero values in a falling order of features; with ``repeat`` in two halves each, which add up."""
    features = np.arange(X.shape[1]) if features is None else np.asarray(features)
    data = []
    for row, label in zip(X, y, strict=True):
        at = np.flatnonzero(row)[::-1]
        indices, values = features[at].tolist(), row[at].tolist()
        if repeat:
            indices, values = indices + indices, [0.25 * v for v in values] + [0.75 * v for v in values]
        data.append((indices, values, float(label)))
    return spark.createDataFrame(
        spark.sparkContext.parallelize(data, 2), "indices array<long>, values array<double>, label double"
    )


def by_pairs(size: int, **params):
    estimator = LogisticRegression(regParam=0.2, **params)
    return estimator._set(indicesCol="indices", valuesCol="values", numFeatures=size)


RAW = {"standardization": False, "fitIntercept": False, **EXACT}
FITS = {
    "logistic": (2, LogisticRegression(regParam=0.2, **EXACT)),
    "logistic-l1": (2, LogisticRegression(regParam=0.1, elasticNetParam=0.7, **EXACT)),
    "logistic-raw": (2, LogisticRegression(regParam=0.5, **RAW)),
    "softmax": (3, LogisticRegression(regParam=0.2, **EXACT)),
    "softmax-l1": (3, LogisticRegression(regParam=0.1, elasticNetParam=0.5, **EXACT)),
    "softmax-free": (2, LogisticRegression(family="multinomial", **EXACT)),
    "squared": (0, LinearRegression(regParam=0.5, solver="l-bfgs", **EXACT)),
    "squared-l1": (0, LinearRegression(regParam=0.5, elasticNetParam=0.5, solver="l-bfgs", **EXACT)),
    "squared-raw": (0, LinearRegression(regParam=3.0, solver="l-bfgs", **RAW)),
    "huber": (0, LinearRegression(loss="huber", regParam=0.2, **EXACT)),
}
