"""Linear support vector machines by both libraries.

The hinge loss has corners, where both work with subgradients: neither reaches the last digits of the optimum, so
objectives are compared, and not coefficients.
"""

from __future__ import annotations

import numpy as np
import pytest
from frames import Data, cached, make_rows
from oracles import weighted_std
from penalty import elastic_net
from pyspark.ml import classification as stock
from pyspark.sql import functions as F

from sparkdml import classification as ours

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(spark):
    with cached(spark, *make_rows(2, rows=120, features=4)) as data:
        yield data


def value(data: Data, params: dict, model) -> float:
    """The objective that both minimise, by its formula."""
    X, w = data.X, data.w if "weightCol" in params else np.ones_like(data.y)
    margins = X @ model.coefficients.toArray() + model.intercept
    losses = np.maximum(0.0, 1.0 - (2.0 * data.y - 1.0) * margins)
    return w @ losses / w.sum() + elastic_net(X, w, model.coefficients.toArray(), params)


@pytest.mark.parametrize(
    ("seed", "params"),
    [
        (6, {"regParam": 0.05, "weightCol": "weight", "tol": 1e-6}),
        (3, {"regParam": 1.0, "fitIntercept": False, "tol": 1e-8}),
    ],
    ids=str,
)
def test_the_objective_is_not_above_sparks(spark, seed, params):
    """Few cases, because Spark's line search runs hundreds of jobs a fit.

    With a penalty. Without one, either may come to rest above the other, by up to some 3e-4 of the objective.
    """
    X, y, w = make_rows(2, seed, rows=40, features=4)
    with cached(spark, X, y, w, partitions=1) as data:
        found, expected = (each.LinearSVC(**params).fit(data.frame) for each in (ours, stock))
    assert value(data, params, found) <= value(data, params, expected) * (1 + 1e-6)
    assert found.report.objective == pytest.approx(value(data, params, found), rel=1e-9)


@pytest.mark.parametrize("tol", [1e-6, 1e-8])
@pytest.mark.parametrize(("standardization", "weighted"), [(True, True), (True, False), (False, True)])
def test_the_objective_is_libsvms(data, tol, standardization, weighted):
    """Scikit-learn's ``SVC`` solves the dual, where the hinge has no corners: the optimum to many digits."""
    from sklearn.svm import SVC

    X, y, w = data.X, data.y, data.w if weighted else np.ones_like(data.y)
    scale = weighted_std(X, w) if standardization else np.ones(X.shape[1])
    params = {"regParam": 0.1, "standardization": standardization, **({"weightCol": "weight"} if weighted else {})}
    model = ours.LinearSVC(**params, tol=tol).fit(data.frame)
    cost = 1.0 / (params["regParam"] * w.sum())
    reference = SVC(kernel="linear", C=cost, tol=1e-10).fit(X / scale, y, sample_weight=w)
    margins = reference.decision_function(X / scale)
    losses = np.maximum(0.0, 1.0 - (2.0 * y - 1.0) * margins)
    best = w @ losses / w.sum() + 0.5 * params["regParam"] * (reference.coef_**2).sum()
    assert value(data, params, model) == pytest.approx(best, rel=1e-4)
    assert value(data, params, model) >= best * (1 - 1e-7)


def test_weight_two_is_the_row_twice(spark, data):
    """And weight 0 no row: objectives agree, without a penalty because deviations differ in their last term."""
    times = data.w.astype(int)
    X, y = np.repeat(data.X, times, axis=0), np.repeat(data.y, times)
    params = {"tol": 1e-9, "maxIter": 300}
    weighted = ours.LinearSVC(weightCol="weight", **params).fit(data.frame)
    with cached(spark, X, y, np.ones_like(y)) as repeated:
        twice = ours.LinearSVC(**params).fit(repeated.frame)
    assert weighted.report.objective == pytest.approx(twice.report.objective, rel=1e-4)


@pytest.fixture(scope="module")
def model(data):
    return ours.LinearSVC(regParam=0.1, weightCol="weight").fit(data.frame)


@pytest.mark.parametrize("threshold", [-0.5, 0.0, 5.0])
def test_the_threshold_compares_the_raw_score(data, model, threshold):
    copy = model.copy({model.threshold: threshold})
    margins = data.X @ model.coefficients.toArray() + model.intercept
    rows = copy.transform(data.frame).select("rawPrediction", "prediction").collect()
    np.testing.assert_allclose([row.rawPrediction.toArray() for row in rows], np.column_stack([-margins, margins]))
    assert [row.prediction for row in rows] == (margins > threshold).astype(float).tolist()


def test_the_thresholds_of_the_estimator_reach_the_model(data):
    model = ours.LinearSVC(regParam=0.1, threshold=1e9, maxIter=3).fit(data.frame)
    assert model.getThreshold() == 1e9
    assert model.transform(data.frame).where("prediction != 0").count() == 0


def test_the_summary_is_what_spark_says_of_that_model(data, model):
    """Spark's class evaluates its own predictions, so its judge is the model's evaluation of the same rows."""
    summary, evaluated = model.summary(), model.evaluate(data.frame)
    assert summary.accuracy == pytest.approx(evaluated.accuracy)
    assert summary.areaUnderROC == pytest.approx(evaluated.areaUnderROC)
    right = data.y == (data.X @ model.coefficients.toArray() + model.intercept > 0)
    assert summary.accuracy == pytest.approx(data.w @ right / data.w.sum())
    assert summary.totalIterations == len(summary.objectiveHistory) - 1 == model.report.iterations
    assert summary.objectiveHistory[-1] == pytest.approx(model.report.objective)
    assert np.all(np.diff(summary.objectiveHistory) <= 1e-12)


def test_the_first_objective_is_sparks(data):
    params = {"regParam": 0.1, "maxIter": 0}
    found, expected = (each.LinearSVC(**params).fit(data.frame).summary() for each in (ours, stock))
    assert found.objectiveHistory == pytest.approx(expected.objectiveHistory, rel=1e-12)
    assert found.totalIterations == expected.totalIterations == 0


@pytest.mark.parametrize(("label", "largest"), [(2.0, 2), (0.0, 0)])
def test_labels_other_than_0_and_1_are_refused_as_spark_does(data, label, largest):
    frame = data.frame.withColumn("label", F.lit(0.0) if label == 0.0 else F.col("label") + 1.0)
    with pytest.raises(ValueError, match=f"labels 0 and 1, but the largest label is {largest}; .*OneVsRest"):
        ours.LinearSVC().fit(frame)
    with pytest.raises(Exception, match=r"Labels MUST be in \{0, 1\}|1 classes detected"):
        stock.LinearSVC().fit(frame)
