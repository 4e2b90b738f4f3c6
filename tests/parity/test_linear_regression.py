"""Linear regression by both libraries: the same optimum, and the same summary of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from frames import Data, cached, make_rows, predictions
from oracles import weighted_std
from penalty import elastic_net
from pyspark.ml import regression as stock

from sparkdml import regression as ours

pytestmark = pytest.mark.slow
EXACT = {"tol": 1e-12, "maxIter": 1000}


def make_targets(seed: int = 5):
    """Numbers that depend on the features, with noise, an offset and a few that are far off."""
    X, _, w = make_rows(2)
    rng = np.random.default_rng(seed)
    y = (X / np.logspace(-1, 1, X.shape[1])) @ rng.normal(size=X.shape[1]) * 3 + 7 + rng.normal(size=len(X))
    y[::25] += 20.0
    return X, y, w


@pytest.fixture(scope="module")
def data(spark):
    with cached(spark, *make_targets()) as data:
        yield data


@pytest.fixture(scope="module")
def positive(spark):
    """The same without rows of weight 0: Spark's summaries count them as instances."""
    X, y, w = make_targets()
    with cached(spark, X, y, w + 0.5) as data:
        yield data


def fit_both(data: Data, params: dict, **more):
    return tuple(each.LinearRegression(**params, **{**EXACT, **more}).fit(data.frame) for each in (ours, stock))


def population_std(X: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.sqrt(w @ (X - np.average(X, axis=0, weights=w)) ** 2 / w.sum())


def squared_objective(data: Data, params: dict, model) -> float:
    """``normal`` scales by population deviations, ``l-bfgs`` by sample deviations: so it is in Spark."""
    X, y, w = data.X, data.y, data.w
    spread = population_std if params["solver"] == "normal" else weighted_std
    coefficients = model.coefficients.toArray()
    residuals = y - X @ coefficients - model.intercept
    loss = 0.5 * (w @ residuals**2) / w.sum()
    return loss + elastic_net(X, w, coefficients, params, 1.0 / spread(y[:, None], w)[0], spread(X, w))


PENALTIES = [
    {"fitIntercept": True},
    {"fitIntercept": False},
    *(
        {"regParam": 0.5, "elasticNetParam": share, "standardization": standardization, "fitIntercept": intercept}
        for share, standardization, intercept in (
            (0.0, True, True),
            (0.0, False, False),
            (0.5, True, False),
            (0.5, False, True),
            (1.0, True, True),
        )
    ),
]
GRID = [{"solver": solver, "weightCol": "weight", **params} for solver in ("normal", "l-bfgs") for params in PENALTIES]


@pytest.mark.parametrize("params", GRID, ids=str)
def test_squared_error(data, params):
    found, expected = fit_both(data, params)
    value = squared_objective(data, params, found)
    assert value <= squared_objective(data, params, expected) * (1 + 1e-9)
    assert value == pytest.approx(squared_objective(data, params, expected), rel=1e-6)
    closed = params["solver"] == "normal" and not params.get("elasticNetParam")
    close = {"rtol": 1e-9, "atol": 1e-9} if closed else {"rtol": 1e-4, "atol": 1e-5}
    one, other = found.coefficients.toArray(), expected.coefficients.toArray()
    np.testing.assert_allclose(one, other, **close)
    np.testing.assert_allclose(found.intercept, expected.intercept, **close)
    np.testing.assert_array_equal(one == 0.0, other == 0.0)


@pytest.mark.parametrize(("solver", "share"), [("normal", 0.0), ("l-bfgs", 0.5)])
def test_without_weights_every_row_weighs_one(data, solver, share):
    found, expected = fit_both(data, {"solver": solver, "regParam": 0.5, "elasticNetParam": share})
    np.testing.assert_allclose(found.coefficients.toArray(), expected.coefficients.toArray(), rtol=1e-5, atol=1e-6)
    assert found.intercept == pytest.approx(expected.intercept, rel=1e-5)


@pytest.mark.parametrize("params", [GRID[0], GRID[5], GRID[9]], ids=str)
def test_how_features_are_stored_changes_nothing(spark, data, params):
    X, y, w = data.X, data.y, data.w
    models = [ours.LinearRegression(**params, **EXACT).fit(data.frame)]
    for form in ("dense", "sparse"):
        with cached(spark, X, y, w, form) as other:
            models.append(ours.LinearRegression(**params, **EXACT).fit(other.frame))
    for model in models[1:]:
        np.testing.assert_allclose(model.coefficients.toArray(), models[0].coefficients.toArray(), rtol=1e-6)
        assert model.intercept == pytest.approx(models[0].intercept, rel=1e-6, abs=1e-9)


def huber_objective(data: Data, params: dict, model) -> float:
    X, y = data.X, data.y
    w = data.w if "weightCol" in params else np.ones_like(y)
    coefficients, scale, epsilon = model.coefficients.toArray(), model.scale, params.get("epsilon", 1.35)
    sizes = np.abs(X @ coefficients + model.intercept - y) / scale
    losses = np.where(sizes <= epsilon, sizes**2, 2.0 * epsilon * sizes - epsilon**2)
    return 0.5 * (w @ (scale * (1.0 + losses))) / w.sum() + elastic_net(X, w, coefficients, params)


@pytest.mark.parametrize(
    "params",
    [
        {"weightCol": "weight"},
        {"epsilon": 2.5, "regParam": 0.2},
        {"epsilon": 1.1, "regParam": 0.2, "standardization": False, "weightCol": "weight"},
        {"fitIntercept": False, "regParam": 0.1, "weightCol": "weight"},
    ],
    ids=str,
)
def test_huber(data, params):
    found, expected = fit_both(data, {"loss": "huber", **params})
    value = huber_objective(data, params, found)
    assert value <= huber_objective(data, params, expected) * (1 + 1e-9)
    assert found.report.objective == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(found.coefficients.toArray(), expected.coefficients.toArray(), rtol=1e-3, atol=1e-4)
    assert found.intercept == pytest.approx(expected.intercept, rel=1e-4)
    assert found.scale == pytest.approx(expected.scale, rel=1e-4)


def test_a_large_epsilon_makes_huber_least_squares(data):
    huber = ours.LinearRegression(loss="huber", epsilon=1e3, **EXACT).fit(data.frame)
    squares = ours.LinearRegression(**EXACT).fit(data.frame)
    np.testing.assert_allclose(huber.coefficients.toArray(), squares.coefficients.toArray(), rtol=1e-5, atol=1e-6)


@dataclass
class Summaries:
    params: dict
    found: object
    expected: object


SUMMARISED = [
    {"solver": "normal", "weightCol": "weight"},
    {"solver": "normal", "regParam": 0.3, "fitIntercept": False},
    {"solver": "l-bfgs", "weightCol": "weight", "regParam": 0.3, "elasticNetParam": 0.5},
]


@pytest.fixture(scope="module", params=SUMMARISED, ids=str)
def summaries(request, positive):
    found, expected = fit_both(positive, request.param)
    return Summaries(request.param, found.summary, expected.summary)


NUMBERS = (
    "r2", "r2adj", "rootMeanSquaredError", "meanSquaredError", "meanAbsoluteError", "explainedVariance",
    "degreesOfFreedom", "numInstances", "devianceResiduals",
)  # fmt: skip


def test_the_summary_has_sparks_numbers(summaries):
    for name in NUMBERS:
        found, expected = getattr(summaries.found, name), getattr(summaries.expected, name)
        assert found == pytest.approx(expected, rel=1e-6), name


def test_the_summary_has_sparks_residuals(summaries):
    found, expected = ([row[0] for row in each.residuals.collect()] for each in (summaries.found, summaries.expected))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["coefficientStandardErrors", "tValues", "pValues"])
def test_the_summary_has_sparks_tests_of_coefficients(summaries, name):
    if summaries.params["solver"] == "l-bfgs":
        for each in (summaries.found, summaries.expected):
            with pytest.raises(Exception, match="available for this LinearRegressionModel"):
                getattr(each, name)
    else:
        np.testing.assert_allclose(getattr(summaries.found, name), getattr(summaries.expected, name), rtol=1e-6)


def test_the_objective_runs_from_sparks_first_value_to_its_last(summaries):
    found, expected = summaries.found.objectiveHistory, summaries.expected.objectiveHistory
    assert [found[0], found[-1]] == pytest.approx([expected[0], expected[-1]], rel=1e-6)
    assert summaries.found.totalIterations == len(found) - 1


def test_standard_errors_are_the_textbooks(positive):
    """``sqrt(sigma^2 diag(inv(X' W X)))`` with sigma^2 from the residuals and n - d - 1 degrees of freedom."""
    X, y, w = positive.X, positive.y, positive.w
    model = ours.LinearRegression(solver="normal", weightCol="weight").fit(positive.frame)
    design = np.column_stack([X, np.ones(len(y))])
    gram = design.T @ (w[:, None] * design)
    solution = np.linalg.solve(gram, design.T @ (w * y))
    variance = w @ (y - design @ solution) ** 2 / (len(y) - design.shape[1])
    np.testing.assert_allclose(np.append(model.coefficients.toArray(), model.intercept), solution, rtol=1e-9)
    errors = np.sqrt(variance * np.diag(np.linalg.inv(gram)))
    np.testing.assert_allclose(model.summary.coefficientStandardErrors, errors, rtol=1e-9)


@pytest.mark.parametrize("max_iter", [0, 3])
def test_max_iter_counts_as_in_spark(data, max_iter):
    params = {"solver": "l-bfgs", "regParam": 0.1, "elasticNetParam": 0.5, "weightCol": "weight"}
    found, expected = fit_both(data, params, maxIter=max_iter, tol=0.0)
    assert found.summary.totalIterations == expected.summary.totalIterations == max_iter
    history = found.summary.objectiveHistory
    assert len(history) == max_iter + 1
    assert history[0] == pytest.approx(expected.summary.objectiveHistory[0], rel=1e-9)
    assert np.all(np.diff(history) <= 1e-12)


def test_solvers_agree_where_nothing_is_penalised(data):
    one, other = (
        ours.LinearRegression(solver=solver, weightCol="weight", **EXACT).fit(data.frame)
        for solver in ("normal", "l-bfgs")
    )
    np.testing.assert_allclose(predictions(one, data.frame), predictions(other, data.frame), rtol=1e-6)
