"""Generalized linear models by both libraries, step for step, and textbook formulas in numpy for both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from frames import Data, make_frame, make_rows
from pyspark.ml import regression as stock
from pyspark.sql import functions as F
from scipy.special import expit

from sparkdml import regression as ours

pytestmark = pytest.mark.slow
ROWS = 120


def make_counts(family: str):
    """Features of unit scale, labels whose mean is ``exp`` of a linear predictor, weights of at least 1."""
    X, binary, w = make_rows(2, rows=ROWS)
    X = X / np.logspace(-1, 1, X.shape[1])
    rng = np.random.default_rng(7)
    mean = np.exp(0.15 * X @ rng.standard_normal(X.shape[1]) + 1.5)
    y = {
        "gaussian": lambda: mean + 0.5 * rng.standard_normal(ROWS),
        "binomial": lambda: binary,
        "poisson": lambda: rng.poisson(mean),
        "gamma": lambda: rng.gamma(5.0, mean / 5.0),
        "tweedie": lambda: rng.gamma(5.0, mean / 5.0),
    }[family]()
    return X, y, w + 1.0


@pytest.fixture(scope="module")
def datasets(spark):
    """Rows for each family, with offsets that are a function of the weights and the first feature."""
    made = {}
    for family in ("gaussian", "binomial", "poisson", "gamma", "tweedie"):
        X, y, w = make_counts(family)
        frame = make_frame(spark, X, y, w, "mixed")
        made[family] = Data(X, y, w, frame.withColumn("offset", F.col("weight") * 0.03 - 0.05).cache())
    yield made
    for data in made.values():
        data.frame.unpersist()


WEIGHT, OFFSET = {"weightCol": "weight"}, {"offsetCol": "offset"}
#: Every family with each of its links, each under other options.
LINKS = [
    {"family": "gaussian", "link": "identity", **WEIGHT},
    {"family": "gaussian", "link": "log", **WEIGHT, **OFFSET},
    {"family": "gaussian", "link": "inverse"},
    {"family": "binomial", "link": "logit", **WEIGHT, **OFFSET},
    {"family": "binomial", "link": "probit", "regParam": 0.1},
    {"family": "binomial", "link": "cloglog", "fitIntercept": False, **OFFSET},
    {"family": "poisson", "link": "log", **WEIGHT, **OFFSET},
    {"family": "poisson", "link": "identity", "regParam": 0.1},
    {"family": "poisson", "link": "sqrt", **WEIGHT},
    {"family": "gamma", "link": "inverse", **WEIGHT},
    {"family": "gamma", "link": "identity"},
    {"family": "gamma", "link": "log", "regParam": 0.1, **WEIGHT},
    {"family": "tweedie", "variancePower": 1.5, **WEIGHT},
    {"family": "tweedie", "variancePower": 1.2, "linkPower": 0.0, "regParam": 0.1},
    {"family": "tweedie", "variancePower": 3.0, "linkPower": 1.0},
]
#: What else options may combine to; tweedie powers that have a name of their own.
MORE = [
    {"family": "gaussian", "regParam": 0.3, **WEIGHT, **OFFSET},
    {"family": "gaussian", "fitIntercept": False, "regParam": 0.3},
    {"family": "poisson", "fitIntercept": False, "regParam": 0.1, **OFFSET},
    {"family": "gamma", "link": "identity", **OFFSET},
    {"family": "tweedie", "variancePower": 0.0, "linkPower": 0.0},
    {"family": "tweedie", "variancePower": 1.0, "linkPower": 0.5, **OFFSET},
    {"family": "tweedie", "variancePower": 2.0, "linkPower": -1.0},
]


@dataclass
class Pair:
    params: dict
    found: ours.GeneralizedLinearRegressionModel
    expected: stock.GeneralizedLinearRegressionModel


@pytest.fixture(scope="module")
def fit_both(datasets) -> Callable[[dict], Pair]:
    """Fits each set of parameters once, whichever tests ask for it."""
    pairs: dict[str, Pair] = {}

    def fit(params: dict) -> Pair:
        if repr(params) not in pairs:
            frame = datasets[params["family"]].frame
            pairs[repr(params)] = Pair(
                params, *(each.GeneralizedLinearRegression(**params).fit(frame) for each in (ours, stock))
            )
        return pairs[repr(params)]

    return fit


@pytest.fixture(params=LINKS, ids=lambda p: "-".join(map(str, p.values())))
def pair(request, fit_both):
    return fit_both(request.param)


def assert_same_coefficients(pair: Pair) -> None:
    found, expected = (np.append(m.coefficients.toArray(), m.intercept) for m in (pair.found, pair.expected))
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_coefficients(pair):
    assert_same_coefficients(pair)


@pytest.mark.parametrize("params", MORE, ids=lambda p: "-".join(map(str, p.values())))
def test_coefficients_under_other_options(fit_both, params):
    assert_same_coefficients(fit_both(params))


NUMBERS = (
    "numIterations", "numInstances", "rank", "degreesOfFreedom", "residualDegreeOfFreedom",
    "residualDegreeOfFreedomNull", "deviance", "nullDeviance", "dispersion",
)  # fmt: skip


def test_the_summary_has_sparks_numbers(pair):
    found, expected = pair.found.summary, pair.expected.summary
    for name in NUMBERS:
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-8), name


def test_the_summary_has_sparks_aic(pair):
    found, expected = pair.found.summary, pair.expected.summary
    if pair.params["family"] == "tweedie":  # its likelihood has no closed form
        for each in (found, expected):
            with pytest.raises(Exception, match="No AIC available for the tweedie family"):
                _ = each.aic
    else:
        assert found.aic == pytest.approx(expected.aic, rel=1e-8)


def test_the_summary_has_sparks_tests_of_coefficients(pair):
    for name in ("coefficientStandardErrors", "tValues", "pValues"):
        found, expected = (getattr(each.summary, name) for each in (pair.found, pair.expected))
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson", "gamma", "tweedie"])
def test_the_summary_has_sparks_residuals(fit_both, family):
    pair = fit_both(next(p for p in LINKS if p["family"] == family))
    for kind in ("deviance", "pearson", "working", "response"):
        found, expected = (
            [row[0] for row in each.summary.residuals(kind).collect()] for each in (pair.found, pair.expected)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7, err_msg=kind)


ORACLES = {
    "binomial": (expit, lambda mu: mu * (1.0 - mu)),
    "poisson": (np.exp, lambda mu: mu),
}


@pytest.mark.parametrize("family", ORACLES)
def test_standard_errors_are_the_textbooks(datasets, family):
    """``sqrt(diag(inv(X' W X)))`` with W the information of each row: the links are canonical, the dispersion is 1."""
    data = datasets[family]
    model = ours.GeneralizedLinearRegression(family=family, tol=1e-10, **WEIGHT).fit(data.frame)
    mean, information = ORACLES[family]
    design = np.column_stack([data.X, np.ones(ROWS)])
    estimates = np.append(model.coefficients.toArray(), model.intercept)
    mu = mean(design @ estimates)
    score = design.T @ (data.w * (data.y - mu))
    np.testing.assert_allclose(score, 0.0, atol=1e-6)
    gram = design.T @ ((data.w * information(mu))[:, None] * design)
    errors = np.sqrt(np.diag(np.linalg.inv(gram)))
    np.testing.assert_allclose(model.summary.coefficientStandardErrors, errors, rtol=1e-6)
    np.testing.assert_allclose(model.summary.tValues, estimates / errors, rtol=1e-6)


def test_a_constant_offset_moves_only_the_intercept(datasets):
    frame = datasets["poisson"].frame.withColumn("half", F.lit(0.5))
    plain, moved = (
        ours.GeneralizedLinearRegression(family="poisson", tol=1e-10, **offset).fit(frame)
        for offset in ({}, {"offsetCol": "half"})
    )
    np.testing.assert_allclose(moved.coefficients.toArray(), plain.coefficients.toArray(), atol=1e-9)
    assert moved.intercept == pytest.approx(plain.intercept - 0.5, abs=1e-9)
