"""Factorization machines by both libraries: the same coefficients, step by step."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cases import COLUMN_KINDS
from pyspark.ml import Pipeline
from pyspark.ml import classification as stock_classification
from pyspark.ml import regression as stock_regression
from pyspark.sql import DataFrame

from sparkdml import classification, regression
from sparkdml.data import from_dataframe

pytestmark = pytest.mark.slow

NAMES = ("FMClassifier", "FMRegressor")
every_estimator = pytest.mark.parametrize("name", NAMES)
SOLVERS = {
    "adamW": {"solver": "adamW", "stepSize": 1.0},
    "adamW-short": {"solver": "adamW", "stepSize": 0.05, "regParam": 0.01},
    "gd": {"solver": "gd", "stepSize": 0.2, "regParam": 0.1, "initStd": 0.3},
}


def ours(name: str) -> Any:
    return getattr(classification if name == "FMClassifier" else regression, name)


def stock(name: str) -> Any:
    return getattr(stock_classification if name == "FMClassifier" else stock_regression, name)


def stock_model(name: str) -> Any:
    module = stock_classification if name == "FMClassifier" else stock_regression
    return getattr(module, {"FMClassifier": "FMClassificationModel", "FMRegressor": "FMRegressionModel"}[name])


def learned(model: Any) -> np.ndarray:
    return np.concatenate([model.factors.toArray().ravel(), model.linear.toArray(), [model.intercept]])


def some_rows(rows: int = 150, features: int = 5, seed: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Features of which pairs matter, and what they add up to."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, features)) * (rng.random((rows, features)) < 0.7)
    return X, X @ rng.standard_normal(features) + 2.0 * X[:, 0] * X[:, 1] - X[:, 2] * X[:, 3] + 0.5


@dataclass(frozen=True)
class Data:
    X: np.ndarray
    frames: dict[str, DataFrame]


@pytest.fixture(scope="module")
def data(make_frame):
    X, y = some_rows()
    labels = {"FMClassifier": (y > 0.0).astype(float), "FMRegressor": y}
    frames = {name: make_frame(X, labels[name], kind="mixed").cache() for name in NAMES}
    yield Data(X, frames)
    for frame in frames.values():
        frame.unpersist()


@every_estimator
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    "terms", [{}, {"fitIntercept": False}, {"fitLinear": False}], ids=["all", "no-intercept", "no-linear"]
)
def test_coefficients_are_sparks_step_by_step(data, name, solver, terms) -> None:
    params = {"maxIter": 12, "factorSize": 3, "seed": -17, **SOLVERS[solver], **terms}
    found, expected = (each(name)(**params).fit(data.frames[name]) for each in (ours, stock))
    np.testing.assert_allclose(learned(found), learned(expected), rtol=1e-9, atol=1e-10)
    assert type(found.linear) is type(expected.linear)
    assert found.report.iterations == 12


@every_estimator
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("solver", ["adamW", "gd"])
def test_dense_and_sparse_rows_of_wide_frames(make_frame, name, kind, solver) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((80, 40)) * (rng.random((80, 40)) < 0.15)
    frame = make_frame(X, (X[:, :9].sum(axis=1) > 0.0).astype(float), kind=kind)
    params = {"maxIter": 10, "factorSize": 8, "seed": 4, **SOLVERS[solver]}
    found, expected = (each(name)(**params).fit(frame) for each in (ours, stock))
    np.testing.assert_allclose(learned(found), learned(expected), rtol=1e-9, atol=1e-10)


@every_estimator
def test_defaults_are_sparks_also_the_seed(data, name) -> None:
    found, expected = ours(name)(), stock(name)()
    for param in expected.params:
        assert found.hasDefault(param.name) == expected.hasDefault(param.name)
        if expected.hasDefault(param.name):
            assert found.getOrDefault(param.name) == expected.getOrDefault(param.name), param.name
    models = [each.setMaxIter(3).fit(data.frames[name]) for each in (found, expected)]
    np.testing.assert_allclose(learned(models[0]), learned(models[1]), rtol=1e-10)


@every_estimator
@pytest.mark.parametrize("tolerance", [0.05, 0.3])
def test_a_fit_ends_where_sparks_ends(data, name, tolerance) -> None:
    params = {"tol": tolerance, "maxIter": 60, "factorSize": 2, "seed": 5, **SOLVERS["gd"]}
    found, expected = (each(name)(**params).fit(data.frames[name]) for each in (ours, stock))
    assert found.report.stop.reason == "converged"
    assert 2 <= found.report.iterations < 60
    np.testing.assert_allclose(learned(found), learned(expected), rtol=1e-9, atol=1e-10)
    one_less = ours(name)(**{**params, "maxIter": found.report.iterations - 1}).fit(data.frames[name])
    assert np.abs(learned(one_less) - learned(expected)).max() > 1e-4


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_summary_is_sparks(data, solver) -> None:
    params = {"maxIter": 12, "factorSize": 2, "seed": 3, **SOLVERS[solver]}
    found, expected = (each("FMClassifier")(**params).fit(data.frames["FMClassifier"]) for each in (ours, stock))
    assert found.hasSummary
    found, expected = found.summary(), expected.summary()
    np.testing.assert_allclose(found.objectiveHistory, expected.objectiveHistory, rtol=1e-10)
    assert found.totalIterations == expected.totalIterations
    assert found.areaUnderROC == pytest.approx(expected.areaUnderROC, rel=1e-9)
    assert found.accuracy == expected.accuracy
    assert found.history.num_rows == 13


@every_estimator
def test_the_objective_is_of_the_answer(data, name) -> None:
    strength = 0.1
    model = ours(name)(maxIter=7, factorSize=2, seed=2, solver="gd", stepSize=0.2, regParam=strength).fit(
        data.frames[name]
    )
    labels = np.array([row.label for row in data.frames[name].select("label").collect()])
    V, x = model.factors.toArray(), data.X
    margins = model.intercept + x @ model.linear.toArray() + 0.5 * ((x @ V) ** 2 - x**2 @ V**2).sum(axis=1)
    losses = np.logaddexp(0, margins) - labels * margins if name == "FMClassifier" else (margins - labels) ** 2
    expected = losses.mean() + strength / 2.0 * (learned(model) ** 2).sum()
    assert model.report.objective == pytest.approx(expected, rel=1e-10)


@every_estimator
def test_partitions_and_placements_change_summation_order_alone(make_frame, name) -> None:
    X, y = some_rows(60)
    labels = (y > 0.0).astype(float)
    params = {"maxIter": 6, "factorSize": 2, "seed": 11, "stepSize": 0.1}
    expected = learned(stock(name)(**params).fit(make_frame(X, labels)))
    for partitions in (1, 2, 7):
        with from_dataframe(make_frame(X, labels, partitions=partitions), classes=name == "FMClassifier") as rows:
            for placement in ("local", "broadcast", "allreduce"):
                model = ours(name)(placement=placement, **params).fit(rows)
                assert model.report.placement.startswith(placement)
                np.testing.assert_allclose(learned(model), expected, rtol=1e-9, atol=1e-10)


@every_estimator
def test_samples_learn_as_well_as_sparks(make_frame, name) -> None:
    X, y = some_rows(2000)
    labels = (y > 0.0).astype(float) if name == "FMClassifier" else y
    frame = make_frame(X, labels).cache()
    params = {"maxIter": 80, "factorSize": 4, "seed": 1, "stepSize": 0.1, "miniBatchFraction": 0.1}

    def error(model: Any) -> float:
        found = np.array([row.prediction for row in model.transform(frame).select("prediction").collect()])
        return float(np.mean((found - labels) ** 2))

    found, again = (ours(name)(**params).fit(frame) for _ in range(2))
    expected = stock(name)(**params).fit(frame)
    assert error(found) <= 1.3 * error(expected) + 0.005
    assert error(found) < 0.3 * np.var(labels)
    np.testing.assert_array_equal(learned(found), learned(again))
    frame.unpersist()


@every_estimator
def test_models_score_save_and_load_as_sparks(data, name, tmp_path) -> None:
    frame = data.frames[name]
    params = {"maxIter": 5, "factorSize": 2, "seed": 6, "predictionCol": "guess"}
    found, expected = (each(name)(**params).fit(frame) for each in (ours, stock))
    assert isinstance(found, stock_model(name))
    found.write().overwrite().save(str(tmp_path / "model"))
    (metadata,) = (tmp_path / "model" / "metadata").glob("part-*")
    assert json.loads(metadata.read_text())["class"].startswith("org.apache.spark.ml.")
    loaded = stock_model(name).load(str(tmp_path / "model"))
    assert type(loaded) is stock_model(name)
    assert (loaded.uid, loaded.getFactorSize(), loaded.getSeed()) == (found.uid, 2, 6)
    columns = ["guess"] + (["rawPrediction", "probability"] if name == "FMClassifier" else [])
    rows = [model.transform(frame).select(*columns).collect() for model in (found, loaded, expected)]
    assert rows[0] == rows[1]
    for mine, theirs in zip(rows[0], rows[2], strict=True):
        for column in columns:
            np.testing.assert_allclose(np.array(mine[column]), np.array(theirs[column]), rtol=1e-9, atol=1e-12)
    assert not loaded.hasSummary if name == "FMClassifier" else not found.hasSummary


@every_estimator
def test_saved_estimators_keep_their_parameters(data, name, tmp_path) -> None:
    params = {
        "factorSize": 3, "fitIntercept": False, "fitLinear": False, "regParam": 0.25, "miniBatchFraction": 0.5,
        "initStd": 0.2, "maxIter": 4, "stepSize": 0.5, "tol": 1e-3, "solver": "gd", "seed": 99,
        "placement": "broadcast",
    }  # fmt: skip
    estimator = ours(name)(**params)
    estimator.save(str(tmp_path / "estimator"))
    loaded = ours(name).load(str(tmp_path / "estimator"))
    assert {param: loaded.getOrDefault(param) for param in params} == params
    assert loaded.uid == estimator.uid
    np.testing.assert_array_equal(
        learned(loaded.fit(data.frames[name])), learned(estimator.copy().fit(data.frames[name]))
    )
    stage = Pipeline(stages=[loaded]).fit(data.frames[name]).stages[0]
    assert isinstance(stage, stock_model(name))


@every_estimator
def test_an_initial_model_is_gone_on_from(data, name) -> None:
    """Gradient descent forgets nothing but how many steps there were."""
    frame = data.frames[name]
    first = ours(name)(maxIter=3, factorSize=2, seed=6).fit(frame)
    same = ours(name)(maxIter=0, factorSize=2).setInitialModel(first).fit(frame)
    np.testing.assert_array_equal(learned(same), learned(first))
    without = ours(name)(maxIter=0, factorSize=2, fitIntercept=False, fitLinear=False)
    kept = without.setInitialModel(first).fit(frame)
    assert (kept.intercept, kept.linear.numNonzeros()) == (0.0, 0)
    with pytest.raises(ValueError, match=r"5 features of 2 factors.*factorSize=3"):
        ours(name)(factorSize=3).setInitialModel(first).fit(frame)


@every_estimator
@pytest.mark.parametrize("kind", COLUMN_KINDS)
def test_every_kind_of_feature_column(make_frame, name, kind) -> None:
    X = np.round(some_rows(40)[0], 2).astype(np.float32)
    y = (X[:, 0] > 0).astype(float)
    params = {"maxIter": 4, "factorSize": 2, "seed": 1}
    expected = learned(stock(name)(**params).fit(make_frame(X, y)))
    more = {"featuresCols": [f"x{j}" for j in range(5)]} if kind == "scalars" else {}
    model = ours(name)(**params, **more).fit(make_frame(X, y, kind=kind))
    np.testing.assert_allclose(learned(model), expected, rtol=1e-9)
    if name == "FMClassifier":
        assert model.summary().accuracy <= 1.0


def test_callbacks_see_every_round_and_an_answer_ends_the_fit(data) -> None:
    seen: list[int] = []
    estimator = classification.FMClassifier(maxIter=9, seed=1)
    estimator.setOnRound(lambda history: seen.append(len(history.rounds)) or len(seen) == 4)
    model = estimator.fit(data.frames["FMClassifier"])
    assert seen == [1, 2, 3, 4]
    assert model.report.rounds == 4


@every_estimator
def test_an_interrupted_fit_goes_on_where_it_was(data, name, tmp_path) -> None:
    params = {"maxIter": 12, "factorSize": 2, "seed": 1, "miniBatchFraction": 0.5}
    expected = ours(name)(**params).fit(data.frames[name])

    def interrupt(history: Any) -> None:
        if len(history.rounds) == 7:
            raise KeyboardInterrupt

    kept = ours(name)(checkpointDir=str(tmp_path), checkpointInterval=3, **params)
    with pytest.raises(KeyboardInterrupt):
        kept.setOnRound(interrupt).fit(data.frames[name])
    resumed = kept.setOnRound(None).fit(data.frames[name])
    np.testing.assert_array_equal(learned(resumed), learned(expected))


@every_estimator
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"factorSize": 0}, "factorSize=0"),
        ({"miniBatchFraction": 0.0}, "miniBatchFraction=0.0"),
        ({"miniBatchFraction": 1.5}, "miniBatchFraction=1.5"),
        ({"solver": "l-bfgs"}, r"solver='l-bfgs' is not known; it can be adamW, gd"),
        ({"regParam": -1.0}, "regParam=-1.0"),
        ({"initStd": 0.0}, "initStd=0.0"),
        ({"stepSize": 0.0}, "stepSize=0.0"),
        ({"maxIter": -1}, "maxIter=-1"),
        ({"tol": -1.0}, "tol=-1.0"),
    ],
    ids=str,
)
def test_parameters_out_of_range_are_refused_before_any_job(name, params, message) -> None:
    with pytest.raises(ValueError, match=message):
        ours(name)(**params).fit(None)


@every_estimator
def test_weights_are_refused(name) -> None:
    estimator = ours(name)()
    estimator.set(estimator.weightCol, "weight")
    with pytest.raises(ValueError, match="take no weights"):
        estimator.fit(None)


@pytest.mark.parametrize("thresholds", [[0.5], [0.0, 0.0], [-1.0, 0.5], [0.2, 0.3, 0.5]], ids=str)
def test_wrong_thresholds_are_refused(thresholds) -> None:
    with pytest.raises(ValueError, match="thresholds"):
        classification.FMClassifier(thresholds=thresholds).fit(None)


def test_thresholds_are_sparks(data) -> None:
    frame = data.frames["FMClassifier"]
    params = {"maxIter": 5, "seed": 1, "thresholds": [0.9, 0.1]}
    found, expected = (each("FMClassifier")(**params).fit(frame) for each in (ours, stock))
    rows = [model.transform(frame).select("prediction").collect() for model in (found, expected)]
    assert rows[0] == rows[1]
    assert (
        rows[0]
        != classification.FMClassifier(maxIter=5, seed=1).fit(frame).transform(frame).select("prediction").collect()
    )


def test_other_labels_than_0_and_1_are_refused(make_frame) -> None:
    X = some_rows(6)[0]
    for labels, message in (([0, 1, 2, 0, 1, 0], "labels 0 and 1, but the largest label is 2"), ([0.5] * 6, "0.5")):
        with pytest.raises(ValueError, match=message):
            classification.FMClassifier().fit(make_frame(X, np.array(labels, float)))


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_alone_is_trained_on_as_spark_does(make_frame, label) -> None:
    frame = make_frame(some_rows(20)[0], np.full(20, label))
    found, expected = (each("FMClassifier")(maxIter=5, seed=1).fit(frame) for each in (ours, stock))
    np.testing.assert_allclose(learned(found), learned(expected), rtol=1e-9, atol=1e-10)


@every_estimator
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_features_that_are_no_numbers_are_refused(make_frame, name, bad) -> None:
    X, y = some_rows(6)[0], np.array([0.0, 1.0] * 3)
    X[4, 2] = bad
    with pytest.raises(ValueError, match="features"):
        ours(name)().fit(make_frame(X, y))


def test_a_fit_that_diverges_is_an_error_with_a_remedy(data) -> None:
    with pytest.raises(ValueError, match=r"diverged.*smaller stepSize"):
        regression.FMRegressor(solver="gd", stepSize=1e6, maxIter=200).fit(data.frames["FMRegressor"])
