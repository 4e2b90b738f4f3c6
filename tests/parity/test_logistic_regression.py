"""The same script with both imports: pyspark.ml is the oracle for meaning, numpy for the objective."""

from __future__ import annotations

import functools
from contextlib import ExitStack

import numpy as np
import pytest
from frames import Data, cached, make_frame, make_rows, predictions
from objective import logistic_objective
from pyspark.ml import classification as stock

from sparkdml import classification as ours

pytestmark = pytest.mark.slow
EXACT = {"tol": 1e-13, "maxIter": 1000}


@pytest.fixture(scope="module")
def data(spark):
    """``data(classes, form, weighted=True)``: the same rows of that many classes, in a frame made once."""
    with ExitStack() as stack:

        def made(classes: int, form: str, weighted: bool = True) -> Data:
            X, y, w = make_rows(classes)
            return stack.enter_context(cached(spark, X, y, w if weighted else np.ones(len(y)), form, partitions=3))

        yield functools.cache(made)


@pytest.fixture(scope="module")
def theirs(data):
    """``theirs(classes, form, **params)``: pyspark's model, fitted once."""
    return functools.cache(
        lambda classes, form, **params: stock.LogisticRegression(**params, **EXACT).fit(data(classes, form).frame)
    )


def compare(data: Data, params: dict, expected=None):
    """Both reach the same optimum and say the same of every row."""
    X, y, w, frame = data.X, data.y, data.w, data.frame
    expected = expected or stock.LogisticRegression(**params, **EXACT).fit(frame)
    found = ours.LogisticRegression(**params, **EXACT).fit(frame)
    reg = params.get("regParam", 0.0)
    standardization = params.get("standardization", True)

    def value(model):
        return logistic_objective(
            X, y, w, model.coefficientMatrix.toArray(), model.interceptVector.toArray(),
            reg, standardization,
        )  # fmt: skip

    assert value(found) <= value(expected) * (1 + 1e-9)
    assert value(found) == pytest.approx(value(expected), rel=1e-6)
    assert found.report.objective == pytest.approx(value(found), rel=1e-9)
    np.testing.assert_allclose(
        found.coefficientMatrix.toArray(), expected.coefficientMatrix.toArray(), rtol=1e-3, atol=2e-4
    )
    np.testing.assert_allclose(
        found.interceptVector.toArray(), expected.interceptVector.toArray(), rtol=1e-3, atol=2e-4
    )
    # a row on the boundary may fall to either side
    assert np.mean(predictions(found, frame) != predictions(expected, frame)) <= 1 / len(y)


@pytest.mark.parametrize("form", ["dense", "sparse", "mixed"])
@pytest.mark.parametrize("standardization", [True, False])
@pytest.mark.parametrize("reg", [0.01, 0.5])
@pytest.mark.parametrize("intercept", [True, False])
def test_binomial(data, theirs, form, standardization, reg, intercept):
    """Beside pyspark's model of the same rows as they are stored in "mixed"."""
    params = {"regParam": reg, "standardization": standardization, "fitIntercept": intercept, "weightCol": "weight"}
    compare(data(2, form), params, theirs(2, "mixed", **params))


@pytest.mark.parametrize("standardization", [True, False])
@pytest.mark.parametrize("reg", [0.0, 0.05])
@pytest.mark.parametrize("intercept", [True, False])
def test_multinomial(data, standardization, reg, intercept):
    params = {"regParam": reg, "standardization": standardization, "fitIntercept": intercept, "weightCol": "weight"}
    compare(data(4, "mixed"), params)


def test_binomial_data_as_multinomial(data):
    compare(data(2, "dense"), {"family": "multinomial", "weightCol": "weight"})


def test_unweighted_unregularised(data):
    compare(data(2, "dense", weighted=False), {})


@pytest.mark.parametrize("max_iter", [0, 5])
def test_max_iter_counts_as_in_spark(data, max_iter):
    """``totalIterations`` of Spark's summary is what our report counts; the first objective is the same."""
    frame = data(2, "dense").frame
    params = {"maxIter": max_iter, "tol": 0.0, "regParam": 0.01}
    expected = stock.LogisticRegression(**params).fit(frame)
    found = ours.LogisticRegression(**params).fit(frame)
    assert found.report.iterations == expected.summary.totalIterations == max_iter
    assert len(found.report.objective_history) == max_iter + 1
    assert found.report.objective_history[0] == pytest.approx(expected.summary.objectiveHistory[0], rel=1e-9)
    assert np.all(np.diff(found.report.objective_history) <= 1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_constant_and_empty_columns_change_nothing(spark, data, classes):
    given = data(classes, "dense")
    y = given.y
    wider = np.column_stack([given.X[:, :2], np.full(len(y), 3.7), given.X[:, 2:], np.zeros(len(y))])
    for standardization in (True, False):
        params = {"regParam": 0.02, "standardization": standardization, **EXACT}
        narrow = ours.LogisticRegression(**params).fit(given.frame).coefficientMatrix.toArray()
        for form in ("dense", "sparse"):
            wide_frame = make_frame(spark, wider, y, given.w, form)
            wide = ours.LogisticRegression(**params).fit(wide_frame).coefficientMatrix.toArray()
            assert not wide[:, [2, 7]].any()
            np.testing.assert_allclose(np.delete(wide, [2, 7], axis=1), narrow, atol=1e-6)


def test_thresholds_are_sparks(data):
    compare(data(3, "dense", weighted=False), {"regParam": 0.02, "thresholds": [0.9, 0.05, 0.3]})


def test_a9a_reaches_the_known_optimum(spark, shared_data):
    """F* = 0.32441304 was computed by others to 1e-9; AUC and accuracy are theirs too."""
    from pyspark.ml.evaluation import BinaryClassificationEvaluator
    from pyspark.sql import functions as F

    def read(name: str):
        frame = spark.read.format("libsvm").option("numFeatures", "123").load(str(shared_data / name))
        return frame.withColumn("label", F.when(F.col("label") > 0, 1.0).otherwise(0.0)).cache()

    train, test = read("a9a"), read("a9a.t")
    model = ours.LogisticRegression(regParam=1e-4, standardization=False, tol=1e-9, maxIter=1000).fit(train)
    assert model.report.objective == pytest.approx(0.32441304, abs=1e-8)
    scored = model.transform(test)
    accuracy = scored.where("prediction = label").count() / test.count()
    assert accuracy == pytest.approx(0.8498, abs=2e-4)
    assert BinaryClassificationEvaluator().evaluate(scored) == pytest.approx(0.9024, abs=2e-4)
    for standardization in (True, False):
        params = {"regParam": 1e-3, "standardization": standardization, "tol": 1e-12, "maxIter": 1000}
        expected = stock.LogisticRegression(**params).fit(train)
        found = ours.LogisticRegression(**params).fit(train)
        np.testing.assert_allclose(found.coefficients.toArray(), expected.coefficients.toArray(), atol=2e-4)
        assert found.intercept == pytest.approx(expected.intercept, abs=2e-4)
    train.unpersist()
    test.unpersist()


def test_digits_against_scikit_learn(spark):
    """Softmax on real images: the optimum that scikit-learn finds from the same arrays."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression as Reference

    X, y = load_digits(return_X_y=True)
    frame = make_frame(spark, X, y.astype(float), np.ones(len(y)), "mixed")
    reg = 1e-2
    found = ours.LogisticRegression(regParam=reg, standardization=False, tol=1e-9, maxIter=1000).fit(frame)
    reference = Reference(C=1 / (reg * len(y)), tol=1e-10, max_iter=10000).fit(X, y)
    ones = np.ones(len(y))
    value = logistic_objective(
        X, y, ones, found.coefficientMatrix.toArray(), found.interceptVector.toArray(), reg, False
    )
    best = logistic_objective(X, y, ones, reference.coef_, reference.intercept_, reg, False)
    assert value == pytest.approx(best, rel=1e-6)
