"""The estimators of the linear family beside their counterparts in pyspark.ml, and rows that suit each."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml import classification as stock_classification
from pyspark.ml import regression as stock_regression

from sparkdml.classification import LinearSVC, LogisticRegression
from sparkdml.regression import GeneralizedLinearRegression, LinearRegression

ESTIMATORS: dict[str, type] = {
    each.__name__: each for each in (LogisticRegression, LinearSVC, LinearRegression, GeneralizedLinearRegression)
}
CLASSIFIERS = ("LogisticRegression", "LinearSVC")


def stock(name: str) -> Any:
    """pyspark's class of that name."""
    return getattr(stock_classification if name in CLASSIFIERS else stock_regression, name)


#: Fits with several rounds: the estimator, its parameters, and how many classes its labels have (0: numbers).
ITERATED: dict[str, tuple[str, dict[str, Any], int]] = {
    "l-bfgs": ("LogisticRegression", {"regParam": 0.01, "solver": "l-bfgs", "tol": 1e-10}, 2),
    "l-bfgs-multinomial": ("LogisticRegression", {"regParam": 0.01, "tol": 1e-10}, 3),
    "newton": ("LogisticRegression", {"regParam": 0.001, "solver": "newton", "tol": 1e-12}, 2),
    "owl-qn": ("LogisticRegression", {"regParam": 0.01, "elasticNetParam": 0.3, "tol": 1e-10}, 2),
    "svc": ("LinearSVC", {"regParam": 0.05, "maxIter": 12}, 2),
    "linear-l-bfgs": ("LinearRegression", {"regParam": 0.01, "solver": "l-bfgs", "tol": 1e-12}, 0),
    "linear-owl-qn": (
        "LinearRegression",
        {"regParam": 0.01, "elasticNetParam": 0.5, "solver": "l-bfgs", "tol": 1e-12},
        0,
    ),
    "huber": ("LinearRegression", {"loss": "huber", "regParam": 0.01, "tol": 1e-10}, 0),
    "irls": ("GeneralizedLinearRegression", {"family": "poisson", "tol": 1e-10}, 1),
}


def iterated(name: str, **more: Any) -> Any:
    """A new estimator of :data:`ITERATED`."""
    estimator, params, _ = ITERATED[name]
    return ESTIMATORS[estimator](**{**params, **more})


def rows(kind: int, count: int = 120, features: int = 4, seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Features of unlike scales, and labels: of ``kind`` classes, counts for 1, or numbers for 0."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((count, features))
    X = Z * np.logspace(-1, 1, features) + np.arange(features)
    scores = Z @ rng.standard_normal((features, max(kind, 1)))
    if kind == 0:
        return X, scores[:, 0] * 2.0 + 3.0 + 0.5 * rng.standard_normal(count)
    if kind == 1:
        return X, rng.poisson(np.exp(0.4 * scores[:, 0])).astype(float)
    return X, (scores + 1.5 * rng.gumbel(size=scores.shape)).argmax(axis=1).astype(float)


def numbers(model: Any) -> list[float]:
    """All that a linear model learned."""
    if hasattr(model, "coefficientMatrix"):
        return [*model.coefficientMatrix.toArray().ravel().tolist(), *model.interceptVector.toArray().tolist()]
    scale = [float(model.scale)] if hasattr(model, "scale") else []
    return [*model.coefficients.toArray().tolist(), float(model.intercept), *scale]
