"""Objectives of one's own: trained as on one machine under every placement; what goes wrong ends with a traceback."""

from __future__ import annotations

import re

import numpy as np
import pytest
from pyspark.ml import Pipeline
from pyspark.ml.linalg import Vectors

import sparkdml
from sparkdml.classification import LogisticRegression

FEATURES = 4


@pytest.fixture(scope="module")
def frame(spark):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((300, FEATURES))
    labels = (X @ [1.0, -2.0, 0.5, 0.0] + 0.3 + rng.logistic(size=300) > 0).astype(float)
    rows = [(Vectors.dense(x), float(y), 1.0 + (n % 3)) for n, (x, y) in enumerate(zip(X, labels, strict=True))]
    cached = spark.createDataFrame(rows, ["features", "label", "weight"]).repartition(2).cache()
    cached.count()
    yield cached
    cached.unpersist()


def loss(params, batch):
    margins = batch.features @ params["coefficients"] + params["intercept"]
    slopes = batch.weights * (1.0 / (1.0 + np.exp(-margins)) - batch.labels)
    losses = np.logaddexp(0.0, margins) - batch.labels * margins
    return losses, {"coefficients": batch.features.T @ slopes, "intercept": slopes.sum()}


def predict(params, features):
    return (features @ params["coefficients"] + params["intercept"] > 0).astype(float)


def objective(**how):
    start = {"coefficients": np.zeros(FEATURES), "intercept": 0.0}
    return sparkdml.Objective(**{"loss": loss, "initial": start, "predict": predict, "library": "numpy", **how})


@pytest.mark.parametrize("placement", ["local", "broadcast", "allreduce"])
def test_it_finds_what_the_built_in_estimator_does(frame, placement):
    fitted = sparkdml.Estimator(objective=objective(), weightCol="weight", tol=1e-10, placement=placement).fit(frame)
    expected = LogisticRegression(weightCol="weight", tol=1e-10, placement="local").fit(frame)
    np.testing.assert_allclose(fitted.parameters["coefficients"], expected.coefficients.toArray(), atol=1e-4)
    assert fitted.parameters["intercept"] == pytest.approx(expected.intercept, abs=1e-4)
    assert fitted.report.objective == pytest.approx(expected.report.objective, abs=1e-7)
    assert placement in fitted.report.placement


@pytest.mark.parametrize("staleness", [0, -1])
def test_it_is_trained_beside_servers(frame, staleness):
    best = LogisticRegression(placement="local").fit(frame).report.objective
    how = {"solver": "sgd", "optimizer": "adam", "stepSize": 0.05, "maxIter": 15, "miniBatchFraction": 0.2}
    fitted = sparkdml.Estimator(objective=objective(), placement="server", staleness=staleness, **how).fit(frame)
    assert fitted.report.objective < best + 1e-2


@pytest.mark.parametrize("solver", ["sgd", "model-averaging", "bmuf", "easgd"])
def test_every_method_comes_near(frame, solver):
    best = LogisticRegression(placement="local").fit(frame).report.objective
    how = {"solver": solver, "optimizer": "adam", "stepSize": 0.05, "maxIter": 25, "placement": "local", "tol": 0.0}
    more = {"miniBatchFraction": 0.2} if solver == "sgd" else {"batchSize": 16}
    fitted = sparkdml.Estimator(objective=objective(), **how, **more).fit(frame)
    assert fitted.report.objective < best + 2e-2


def test_it_scores_saves_and_loads(frame, tmp_path):
    fitted = sparkdml.Estimator(objective=objective(), predictionCol="guess").fit(frame)
    scored = fitted.transform(frame)
    right = scored.where("guess = label").count()
    assert right > 0.75 * 300
    path = str(tmp_path / "model")
    fitted.save(path)
    with pytest.raises(Exception, match="exist"):
        fitted.save(path)
    fitted.write().overwrite().save(path)
    again = sparkdml.ObjectiveModel.load(path, objective())
    assert again.transform(frame).where("guess = label").count() == right
    np.testing.assert_array_equal(again.parameters["coefficients"], fitted.parameters["coefficients"])
    with pytest.raises(ValueError, match="shapes"):
        sparkdml.ObjectiveModel.load(path, objective(initial={"coefficients": np.zeros(2), "intercept": 0.0}))


def test_predictions_may_be_vectors(frame):
    both = objective(predict=lambda params, features: np.stack([features @ params["coefficients"]] * 2, axis=1))
    row = sparkdml.Estimator(objective=both, maxIter=2).fit(frame).transform(frame).first()
    assert len(row["prediction"]) == 2


def test_it_goes_into_pipelines_and_copies_keep_it(frame):
    estimator = sparkdml.Estimator(objective=objective(), maxIter=3)
    assert Pipeline(stages=[estimator]).fit(frame).stages[0].report.iterations <= 3
    again = estimator.copy({estimator.maxIter: 1})
    assert again.fit(frame).report.iterations <= 1


def test_it_goes_on_from_a_model(frame):
    first = sparkdml.Estimator(objective=objective(), tol=1e-9).fit(frame)
    again = sparkdml.Estimator(objective=objective(), tol=1e-9).setInitialModel(first).fit(frame)
    assert again.report.iterations < first.report.iterations


def raising(params, batch):
    raise KeyError("there is no such thing")


@pytest.mark.parametrize("placement", ["local", "broadcast"])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (raising, ["there is no such thing"]),
        (lambda params, batch: (np.full(len(batch.labels), np.nan), params), ["NaN", "logarithms"]),
        (lambda params, batch: (batch.labels.sum(), params), ["one loss for each row"]),
    ],
)
def test_what_an_objective_raises_reaches_the_caller_and_the_session_lives(frame, placement, wrong, words):
    with pytest.raises(Exception, match="(?s)" + ".*".join(map(re.escape, words))):
        sparkdml.Estimator(objective=objective(loss=wrong), placement=placement).fit(frame)
    assert frame.count() == 300


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"objective": None}, ["objective is not set"]),
        ({"solver": "newton"}, ["newton", "l-bfgs"]),
        ({"solver": "cocoa"}, ["linear", "model-averaging"]),
        ({"placement": "partitioned"}, ["partitioned"]),
        ({"optimizer": "saga", "solver": "model-averaging"}, ["saga", "adam"]),
    ],
)
def test_what_it_cannot_do_is_refused_before_any_job(frame, change, words):
    with pytest.raises(ValueError, match=".*".join(map(re.escape, words))):
        sparkdml.Estimator(**{"objective": objective(), **change}).fit(frame)


def test_an_objective_of_another_kind_is_refused():
    with pytest.raises(TypeError, match=r"sparkdml\.Objective"):
        sparkdml.Estimator(objective=loss)
