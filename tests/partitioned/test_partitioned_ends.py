"""How fits of models in shards begin, end, and give up."""

from __future__ import annotations

import numpy as np
import pytest
from sharded_family import EXACT, FITS, STEPS, D, assert_same, learned, partitioned, rows, whole

from sparkdml.classification import LinearSVC, LogisticRegression
from sparkdml.regression import LinearRegression


def test_no_iterations_leave_the_start(blocks) -> None:
    assert_same(LogisticRegression(maxIter=0), blocks(2), atol=1e-12)
    assert_same(LinearRegression(maxIter=0, solver="l-bfgs"), blocks(0), atol=1e-12)


@pytest.mark.parametrize("name", ["logistic", "softmax", "squared", "huber", "svc"])
def test_an_initial_model_is_where_the_fit_starts(blocks, name: str) -> None:
    classes, estimator = FITS[name] if name in FITS else (2, LinearSVC(regParam=0.1, tol=1e-6))
    data = blocks(classes)
    start = whole(estimator.copy().setMaxIter(3).setTol(0.0), data)
    again = estimator.copy().setMaxIter(0).setInitialModel(start)
    assert_same(again, data, atol=1e-10)
    with partitioned(again, data) as found:
        np.testing.assert_allclose(learned(found), learned(start), rtol=0.0, atol=1e-10)


def test_an_initial_model_may_be_in_shards(blocks) -> None:
    estimator = LogisticRegression(regParam=0.05, solver="l-bfgs", maxIter=4, tol=0.0)
    with partitioned(estimator, blocks(2)) as start:
        again = estimator.copy().setMaxIter(0).setInitialModel(start)
        with partitioned(again, blocks(2)) as found:
            np.testing.assert_allclose(learned(found), learned(start), rtol=0.0, atol=1e-12)


def test_an_initial_model_of_one_class_does_no_harm(blocks, make_frame) -> None:
    X, _ = rows()
    start = LogisticRegression().fit(make_frame(X, np.ones(60)))
    assert start.intercept == np.inf
    assert_same(LogisticRegression(regParam=0.2, **EXACT).setInitialModel(start), blocks(2))


def test_an_initial_model_of_other_features_is_refused(blocks, make_frame) -> None:
    X, y = rows()
    start = LogisticRegression(maxIter=1).fit(make_frame(X[:, :3], y))
    with pytest.raises(ValueError, match=r"initial model has coefficients of shape \(3, 1\), but the data need"):
        LogisticRegression(placement="partitioned").setInitialModel(start).fit(blocks(2))


def test_a_callback_ends_the_fit_with_the_best_point(blocks) -> None:
    estimator = LogisticRegression(regParam=0.05, standardization=False, tol=0.0, solver="l-bfgs")
    estimator.setOnRound(lambda history: len(history.rounds) == 4)
    with partitioned(estimator, blocks(2)) as model:
        assert (model.report.stop.reason, model.report.rounds) == ("callback", 4)
        X, y = rows()
        coefficients = model.coefficients.toArray()
        margins = X @ coefficients + model.intercept
        objective = np.mean(np.logaddexp(0.0, margins) - y * margins) + 0.025 * coefficients @ coefficients
        assert model.report.objective == pytest.approx(objective, rel=1e-12)
        assert objective < model.report.history[0].objective


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class(make_frame, label: float) -> None:
    X, _ = rows()
    data = make_frame(X, np.full(60, label), kind="sparse")
    model = LogisticRegression(placement="partitioned").fit(data)
    assert model.intercept == (np.inf if label else -np.inf)
    assert model.numFeatures == D
    assert model.sparsity == 1.0
    assert model.transform(data).where(f"prediction = {label}").count() == 60


def test_a_constant_label(make_frame) -> None:
    X, _ = rows()
    data = make_frame(X, np.full(60, 3.0), kind="sparse")
    model = LinearRegression(placement="partitioned").fit(data)
    assert (model.intercept, model.numFeatures, model.sparsity) == (3.0, D, 1.0)
    assert model.transform(data).where("prediction = 3.0").count() == 60
    free = LinearRegression(placement="partitioned", fitIntercept=False, **EXACT)
    with partitioned(free, data) as model:
        # a constant feature's coefficient is 0, as in Spark
        assert model.coefficients[3] == 0.0
        X[:, 3] = 0.0
        best = np.linalg.lstsq(X, np.full(60, 3.0), rcond=None)[0]
        np.testing.assert_allclose(model.coefficients.toArray(), best, atol=1e-6)


def test_a_constant_label_without_intercept_takes_no_penalty_here_either(make_frame) -> None:
    X, _ = rows()
    data = make_frame(X, np.full(60, 3.0), kind="sparse")
    estimator = LinearRegression(fitIntercept=False, regParam=0.1)
    with (
        pytest.raises(ValueError, match="every label is 3.*regParam=0.1.*fitIntercept"),
        partitioned(estimator, data),
    ):
        pass


def test_steps_that_diverge_say_what_to_change_and_leave_nothing(spark, make_frame, datasets_on_disk) -> None:
    before = spark.sparkContext._jsc.getPersistentRDDs().size()
    estimator = LogisticRegression(placement="partitioned", **{**STEPS, "optimizer": "sgd", "stepSize": 1e9})
    with pytest.raises(ValueError, match="use a smaller stepSize"):
        estimator.copy().setMaxIter(50).fit(make_frame(*rows()))
    assert datasets_on_disk() == []
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before


def test_values_whose_squares_overflow_are_refused(make_frame, datasets_on_disk) -> None:
    X, y = rows()
    X[17, 5] = 1e200
    estimator = LogisticRegression(placement="partitioned")
    with pytest.raises(ValueError, match="column 'features': feature 5 has values near"):
        estimator.fit(make_frame(X, y, kind="sparse"))
    assert datasets_on_disk() == []
