"""Logistic regression where it is more than smooth: elastic net, bounds, Newton's method; against pyspark.ml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from frames import Data, cached, make_rows, predictions
from objective import logistic_objective
from penalty import elastic_net
from pyspark.ml import classification as stock
from pyspark.ml.linalg import DenseMatrix, Vectors

from sparkdml import classification as ours

pytestmark = pytest.mark.slow
EXACT = {"tol": 1e-12, "maxIter": 2000}
FEATURES = 6


@dataclass
class Pair:
    """One fit by each library."""

    data: Data
    params: dict
    found: ours.LogisticRegressionModel
    expected: stock.LogisticRegressionModel

    def value(self, model) -> float:
        """The objective at ``model``, by its formula."""
        X, y = self.data.X, self.data.y
        w = self.data.w if "weightCol" in self.params else np.ones_like(y)
        coefficients = model.coefficientMatrix.toArray()
        loss = logistic_objective(X, y, w, coefficients, model.interceptVector.toArray(), 0.0, False)
        return loss + elastic_net(X, w, coefficients, self.params)


def fit_both(data: Data, params: dict) -> Pair:
    found = ours.LogisticRegression(**params, **EXACT).fit(data.frame)
    return Pair(data, params, found, stock.LogisticRegression(**params, **EXACT).fit(data.frame))


@pytest.fixture(scope="module")
def datasets(spark):
    with cached(spark, *make_rows(2)) as binary, cached(spark, *make_rows(3), form="sparse") as multinomial:
        yield {2: binary, 3: multinomial}


def assert_same_optimum(pair: Pair) -> None:
    found, expected = pair.value(pair.found), pair.value(pair.expected)
    assert found == pytest.approx(expected, rel=1e-6)
    assert found <= expected + 1e-9
    assert pair.found.report.objective == pytest.approx(found, rel=1e-9)


WEIGHTED = {"regParam": 0.05, "weightCol": "weight"}
LASSO = [
    (2, {**WEIGHTED, "elasticNetParam": share, "standardization": standardization, "fitIntercept": intercept})
    for share, standardization, intercept in (
        (0.3, True, True),
        (0.3, False, False),
        (1.0, True, False),
        (1.0, False, True),
    )
] + [
    (2, {"regParam": 0.01, "elasticNetParam": 0.5}),
    (3, {**WEIGHTED, "elasticNetParam": 0.3}),
    (3, {**WEIGHTED, "elasticNetParam": 1.0, "standardization": False}),
    (3, {"regParam": 0.05, "elasticNetParam": 0.3, "standardization": False, "fitIntercept": False}),
]


@pytest.fixture(scope="module", params=LASSO, ids=str)
def lasso(request, datasets):
    classes, params = request.param
    return fit_both(datasets[classes], params)


def test_lasso_reaches_the_same_optimum(lasso):
    assert_same_optimum(lasso)


def test_lasso_has_the_same_coefficients_and_zeros(lasso):
    found, expected = (model.coefficientMatrix.toArray() for model in (lasso.found, lasso.expected))
    np.testing.assert_array_equal(found == 0.0, expected == 0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_lasso_sets_some_coefficients_to_0(datasets):
    """And so the pattern that the other tests compare is there to be compared."""
    for data in datasets.values():
        model = ours.LogisticRegression(regParam=0.1, elasticNetParam=1.0).fit(data.frame)
        zeros = np.count_nonzero(model.coefficientMatrix.toArray() == 0.0)
        assert 0 < zeros < model.coefficientMatrix.toArray().size


def test_lasso_predicts_the_same(lasso):
    found, expected = (predictions(model, lasso.data.frame) for model in (lasso.found, lasso.expected))
    np.testing.assert_array_equal(found, expected)


def test_a_penalty_beyond_all_slopes_leaves_the_shares_of_the_classes(datasets):
    """Every coefficient is 0, and the intercepts alone give the labels' frequencies."""
    data = datasets[3]
    model = ours.LogisticRegression(regParam=5.0, elasticNetParam=1.0, **EXACT).fit(data.frame)
    assert not model.coefficientMatrix.toArray().any()
    shares = np.exp(model.interceptVector.toArray())
    np.testing.assert_allclose(shares / shares.sum(), np.bincount(data.y.astype(int)) / len(data.y), atol=1e-6)


def coefficient_bound(classes: int, value: float) -> DenseMatrix:
    rows = 1 if classes == 2 else classes
    return DenseMatrix(rows, FEATURES, [value] * rows * FEATURES)


two, three = (partial(coefficient_bound, classes) for classes in (2, 3))
BOUNDED = [
    (2, {"regParam": 0.01, "lowerBoundsOnCoefficients": two(-0.1)}),
    (2, {"upperBoundsOnCoefficients": two(0.2), "lowerBoundsOnIntercepts": Vectors.dense(0.3), "weightCol": "weight"}),
    (2, {"lowerBoundsOnCoefficients": two(0.0), "fitIntercept": False, "regParam": 0.1, "standardization": False}),
    (2, {"upperBoundsOnIntercepts": Vectors.dense(-0.5), "regParam": 0.01}),
    (3, {"regParam": 0.01, "lowerBoundsOnCoefficients": three(-0.1), "weightCol": "weight"}),
    (
        3,
        {
            "regParam": 0.01,
            "standardization": False,
            "lowerBoundsOnCoefficients": three(-0.3),
            "upperBoundsOnCoefficients": three(0.3),
            "lowerBoundsOnIntercepts": Vectors.dense(-0.1, -0.1, 0.2),
            "upperBoundsOnIntercepts": Vectors.dense(0.0, 0.1, 0.2),
        },
    ),
]


@pytest.fixture(scope="module", params=BOUNDED, ids=lambda case: f"{case[0]}-{'-'.join(case[1])}")
def bounded(request, datasets):
    classes, params = request.param
    return fit_both(datasets[classes], params)


def test_bounded_fits_reach_the_same_optimum(bounded):
    assert_same_optimum(bounded)


def test_bounds_hold_and_some_are_reached(bounded):
    model, params = bounded.found, bounded.params
    reached = 0
    for name, values in {"Coefficients": model.coefficientMatrix, "Intercepts": model.interceptVector}.items():
        # bounds are given in the features' own units; scaling there and back rounds
        given, slack = values.toArray(), 1e-12
        for side, sign in {"lower": 1.0, "upper": -1.0}.items():
            bound = params.get(f"{side}BoundsOn{name}")
            if bound is not None:
                distance = sign * (given - bound.toArray())
                assert (distance >= -slack).all()
                reached += np.count_nonzero(distance <= slack)
    assert reached > 0


def test_bounded_fits_say_the_same_of_every_row(bounded):
    """Probabilities, for without bounds on intercepts a constant may be added to those of all classes."""
    frame = bounded.data.frame
    found, expected = (
        np.array([row.probability.toArray() for row in model.transform(frame).select("probability").collect()])
        for model in (bounded.found, bounded.expected)
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_constant_column_has_coefficient_0_whatever_its_bounds(spark):
    X, y, w = make_rows(2, rows=60)
    params = {"regParam": 0.1, "lowerBoundsOnCoefficients": two(0.5)}
    X[:, 2] = 3.7
    with cached(spark, X, y, w) as data:
        pair = fit_both(data, params)
    assert pair.found.coefficients[2] == pair.expected.coefficients[2] == 0.0


NEWTON = [
    {"weightCol": "weight"},
    {"fitIntercept": False},
    {"regParam": 0.1},
    {"regParam": 0.1, "standardization": False, "weightCol": "weight"},
    {"regParam": 0.1, "standardization": False, "fitIntercept": False},
]


@pytest.mark.parametrize("params", NEWTON, ids=str)
def test_newton_finds_what_l_bfgs_finds(datasets, params):
    frame = datasets[2].frame
    one, other = (ours.LogisticRegression(solver=s, **params, **EXACT).fit(frame) for s in ("newton", "l-bfgs"))
    np.testing.assert_allclose(one.coefficients.toArray(), other.coefficients.toArray(), rtol=1e-6, atol=1e-7)
    assert one.intercept == pytest.approx(other.intercept, rel=1e-6, abs=1e-7)


def test_newton_is_for_binomial_models(datasets):
    for params in ({"family": "multinomial"}, {}):
        with pytest.raises(ValueError, match="solver='newton' is for binomial"):
            ours.LogisticRegression(solver="newton", **params).fit(datasets[2 if params else 3].frame)


def test_bounds_that_contradict_each_other_are_refused(datasets):
    params = {"lowerBoundsOnCoefficients": two(1.0), "upperBoundsOnCoefficients": two(0.0)}
    with pytest.raises(ValueError, match="above upper"):
        ours.LogisticRegression(**params).fit(datasets[2].frame)
