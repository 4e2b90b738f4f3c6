"""Networks through Spark: placements, solvers, models and their files, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml import PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.linalg import Vectors
from pyspark.ml.pipeline import Pipeline

from sparkdml.classification import (
    MultilayerPerceptronClassificationModel,
    MultilayerPerceptronClassifier,
    NetworkClassificationModel,
)
from sparkdml.data import from_dataframe
from sparkdml.network import shards
from sparkdml.regression import MultilayerPerceptronRegressor, NetworkRegressionModel

LAYERS = [4, 8, 3]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((400, 4)).astype(np.float32).astype(float)
    X[rng.random(X.shape) < 0.3] = 0.0
    y = (np.tanh(2 * X) @ rng.standard_normal((4, 3))).argmax(axis=1).astype(float)
    return X, y, rng.integers(1, 4, 400).astype(float)


@pytest.fixture(scope="module")
def frame(make_frame, rows):
    made = make_frame(*rows).cache()
    yield made
    made.unpersist()


def classifier(**params):
    return MultilayerPerceptronClassifier(**{"layers": LAYERS, "maxIter": 8, "tol": 0.0, "seed": 5, **params})


def objectives(model) -> np.ndarray:
    return np.array(model.report.objective_history)


SYNCHRONOUS = {
    "l-bfgs": {"activation": "tanh"},
    "gd": {"solver": "gd", "stepSize": 0.5},
    "sgd": {"solver": "sgd", "optimizer": "adam", "miniBatchFraction": 1.0},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_loss_curves_are_the_same_under_every_placement(frame, name) -> None:
    there = ["broadcast", "allreduce", "partitioned", *(["server"] if name == "sgd" else [])]
    curve = objectives(classifier(**SYNCHRONOUS[name], placement="local").fit(frame))
    assert curve[-1] < curve[0]
    for placement in there:
        other = objectives(classifier(**SYNCHRONOUS[name], placement=placement).fit(frame))
        np.testing.assert_allclose(other, curve, rtol=2e-3, err_msg=placement)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["sigmoid", "relu"])
@pytest.mark.parametrize("standardization", [False, True])
def test_shards_find_what_one_place_finds(make_frame, rows, activation, standardization) -> None:
    X, y, weights = rows
    X = np.hstack([3.0 * X + 1.0, np.zeros((len(X), 1))])  # and a feature that never occurs
    with from_dataframe(make_frame(X, y, weights), weight="weight") as blocks:
        how = {"layers": [5, 8, 6, 3], "activation": activation, "standardization": standardization, "maxIter": 4}
        for solver in ({}, {"solver": "sgd", "miniBatchFraction": 1.0, "stepSize": 0.1}):
            here, there = (
                classifier(**how, **solver, placement=place).fit(blocks) for place in ("local", "partitioned")
            )
            np.testing.assert_allclose(objectives(there), objectives(here), rtol=2e-3)
            np.testing.assert_allclose(there.weights.toArray(), here.weights.toArray(), atol=0.02)
            assert there.report.placement.startswith("partitioned")


def test_shards_go_on_from_initial_weights_and_serve_regression(make_frame, rows) -> None:
    X, y, _ = rows
    frame = make_frame(X, y)
    how = {"layers": [4, 6, 1], "activation": "tanh", "seed": 3, "tol": 0.0, "placement": "partitioned"}
    first = MultilayerPerceptronRegressor(**how, maxIter=3).fit(frame)
    again = MultilayerPerceptronRegressor(**how, maxIter=0, initialWeights=first.weights).fit(frame)
    assert again.report.objective == pytest.approx(first.report.objective, rel=1e-5)


def test_a_matrix_that_the_driver_could_not_hold_is_refused_before_it_is_trained(make_frame, rows, monkeypatch) -> None:
    monkeypatch.setattr(shards, "COEFFICIENTS_LIMIT", 31)
    with pytest.raises(ValueError, match="4 and 8 units: that matrix has 32 weights, and no more than 31"):
        classifier(placement="partitioned").fit(make_frame(*rows))


@pytest.mark.parametrize("solver", ["sgd", "model-averaging", "one-shot-averaging", "bmuf", "easgd"])
def test_every_solver_learns_and_repeats_itself(frame, solver) -> None:
    params = {"solver": solver, "optimizer": "adam", "stepSize": 0.02, "dropout": 0.1, "activation": "relu"}
    if solver != "sgd":
        params["blockSize"] = 16
    one, two = (classifier(**params).fit(frame) for _ in range(2))
    assert one.weights == two.weights
    assert one.report.objective < 0.8
    assert classifier(**params, regParam=0.1).fit(frame).weights != one.weights


def test_servers_take_steps_out_of_step_too(frame) -> None:
    params = {"solver": "sgd", "optimizer": "adam", "miniBatchFraction": 0.1, "regParam": 1e-3}
    model = classifier(**params, placement="server", staleness=-1).fit(frame)
    assert objectives(model).min() < objectives(model)[0]


def test_codecs_send_less_of_a_network(frame) -> None:
    params = {"solver": "model-averaging", "optimizer": "adam", "stepSize": 0.02}
    exact, coded = (classifier(**params, **more, placement="broadcast").fit(frame) for more in ({}, {"codec": "int8"}))
    assert coded.report.bytes["up"] < 0.4 * exact.report.bytes["up"]
    assert coded.report.objective == pytest.approx(exact.report.objective, rel=0.1)


def test_sigmoids_are_sparks_model_and_others_are_ours(frame, rows, tmp_path) -> None:
    X, y, _ = rows
    theirs, ours = classifier(maxIter=60).fit(frame), classifier(maxIter=60, activation="relu").fit(frame)
    assert type(theirs) is MultilayerPerceptronClassificationModel
    assert type(ours) is NetworkClassificationModel
    evaluator = MulticlassClassificationEvaluator(metricName="accuracy")
    for model in (theirs, ours):
        assert evaluator.evaluate(model.transform(frame)) > 0.9
        assert model.numFeatures == 4
        assert model.numClasses == 3
    # the same weights with the same activation score alike in Python and in the JVM
    mirrored = NetworkClassificationModel(classifier()._network(), theirs.weights.toArray())
    columns = ("rawPrediction", "probability", "prediction")
    for mine, stock in zip(
        mirrored.transform(frame).select(*columns).take(20), theirs.transform(frame).select(*columns).take(20),
        strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(mine.rawPrediction.toArray(), stock.rawPrediction.toArray(), rtol=1e-9)
        np.testing.assert_allclose(mine.probability.toArray(), stock.probability.toArray(), rtol=1e-9, atol=1e-12)
        assert mine.prediction == stock.prediction
    row = Vectors.dense(X[0])
    assert mirrored.predict(row) == theirs.predict(row)
    np.testing.assert_allclose(mirrored.predictRaw(row).toArray(), theirs.predictRaw(row).toArray(), rtol=1e-9)
    expected = theirs.predictProbability(row).toArray()
    np.testing.assert_allclose(mirrored.predictProbability(row).toArray(), expected, rtol=1e-9, atol=1e-12)


def test_models_of_ours_survive_saving_and_pipelines(frame, rows, tmp_path) -> None:
    model = Pipeline(stages=[classifier(activation="tanh", predictionCol="p", probabilityCol="")]).fit(frame)
    model.write().save(str(tmp_path / "pipeline"))
    (again,), (before,) = PipelineModel.load(str(tmp_path / "pipeline")).stages, model.stages
    assert type(again) is NetworkClassificationModel
    assert (again.uid, again.layers, again.activation) == (before.uid, LAYERS, "tanh")
    assert again.weights == before.weights
    assert again.report is None
    one, two = (each.transform(frame).select("p").collect() for each in (before, again))
    assert one == two
    assert "probability" not in again.transform(frame).columns
    with pytest.raises(ValueError, match="NetworkRegressionModel"):
        NetworkRegressionModel.load(str(tmp_path / "pipeline" / "stages" / f"0_{before.uid}"))


def test_estimators_survive_saving(tmp_path) -> None:
    estimator = classifier(activation="relu", dropout=0.2, solver="sgd", initialWeights=np.zeros(67).tolist())
    estimator.write().save(str(tmp_path / "mlp"))
    loaded = MultilayerPerceptronClassifier.load(str(tmp_path / "mlp"))
    for param in estimator.params:
        assert loaded.isSet(param) == estimator.isSet(param)
        if estimator.isDefined(param):
            assert loaded.getOrDefault(param) == estimator.getOrDefault(param), param.name


def test_sparse_dense_and_array_rows_are_the_same(make_frame, frame, rows) -> None:
    curve = objectives(classifier(activation="tanh").fit(frame))
    for kind in ("floats", "mixed"):
        other = classifier(activation="tanh").fit(make_frame(*rows, kind=kind))
        np.testing.assert_allclose(objectives(other), curve, rtol=2e-3)
    scored = other.transform(make_frame(*rows, kind="sparse")).select("prediction").collect()
    assert len(scored) == 400


def test_weights_count_rows(make_frame, rows) -> None:
    X, y, w = rows
    again = np.repeat(np.arange(len(y)), w.astype(int))
    weighted = classifier(weightCol="weight").fit(make_frame(X, y, w))
    repeated = classifier().fit(make_frame(X[again], y[again]))
    np.testing.assert_allclose(objectives(weighted), objectives(repeated), rtol=1e-4)


def test_standardization_makes_units_indifferent(make_frame, rows) -> None:
    X, y, _ = rows
    scaled = X * [1.0, 16.0, 1024.0, 0.25] + [0.0, 8.0, -512.0, 1.0]
    one, two = (classifier(standardization=True).fit(make_frame(values, y)) for values in (X, scaled))
    np.testing.assert_allclose(objectives(two), objectives(one), rtol=1e-3)
    ours, theirs = (
        model.transform(make_frame(values, y)).select("probability").head().probability.toArray()
        for model, values in ((one, X), (two, scaled))
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_validation_rows_stop_a_fit_and_checkpoints_resume_it(frame, tmp_path) -> None:
    from pyspark.sql import functions as F

    held = frame.withColumn("held", F.monotonically_increasing_id() % 4 == 0)
    model = classifier(validationIndicatorCol="held", patience=2, maxIter=200, activation="relu").fit(held)
    assert model.report.stop.reason in ("validation", "converged", "stalled")

    kept = classifier(checkpointDir=str(tmp_path / "kept"), checkpointInterval=1, placement="local")
    with pytest.raises(RuntimeError, match="interrupted"):
        kept.copy().setOnRound(_interrupt).fit(frame)
    assert kept.fit(frame).weights == classifier(placement="local").fit(frame).weights


def _interrupt(history) -> bool:
    if len(history.rounds) == 5:
        raise RuntimeError("interrupted")
    return False


def test_a_regressor_finds_a_curve(make_frame, tmp_path) -> None:
    X = np.linspace(-2.0, 2.0, 300)[:, None]
    y = np.sin(2.0 * X[:, 0])
    frame = make_frame(X, y)
    model = MultilayerPerceptronRegressor(layers=[1, 16, 1], activation="tanh", maxIter=300, tol=1e-9).fit(frame)
    assert type(model) is NetworkRegressionModel
    assert model.report.objective < 1e-3
    model.write().save(str(tmp_path / "model"))
    loaded = NetworkRegressionModel.load(str(tmp_path / "model"))
    found = np.array([row.prediction for row in loaded.transform(frame).select("prediction").collect()])
    assert np.mean((found - y) ** 2) == pytest.approx(2.0 * model.report.objective, rel=1e-3)
    assert loaded.predict(Vectors.dense([0.0])) == pytest.approx(model.predict(Vectors.dense([0.0])))


REFUSED = {
    "no layers": ({"layers": None}, "layers is not set"),
    "one layer": ({"layers": [4]}, r"layers=\[4\].*at least 2"),
    "an empty layer": ({"layers": [4, 0, 3]}, r"layers=\[4, 0, 3\].*1 unit or more"),
    "newton": ({"solver": "newton-cg"}, "newton-cg.*linear.*l-bfgs"),
    "cocoa": ({"solver": "cocoa"}, "cocoa.*linear.*sgd"),
    "hogwild": ({"solver": "hogwild"}, "hogwild.*linear"),
    "an unknown solver": ({"solver": "magic"}, "magic.*l-bfgs, gd, sgd"),
    "variance reduction": ({"solver": "model-averaging", "optimizer": "saga"}, "saga.*linear.*adam"),
    "dropout of sums": ({"dropout": 0.5}, "dropout=0.5.*l-bfgs.*sgd"),
    "all dropped": ({"dropout": 1.0, "solver": "sgd"}, "dropout=1.0"),
    "an unknown activation": ({"activation": "gelu"}, "gelu.*sigmoid, tanh, relu"),
    "initial weights": ({"initialWeights": [0.0, 1.0]}, "initialWeights has 2.*67"),
    "thresholds": ({"thresholds": [0.5, 0.5]}, "thresholds has 2 values.*3"),
    "shards of averages": ({"placement": "partitioned", "solver": "easgd"}, "easgd.*must see all weights.*sgd"),
    "shards and a penalty": ({"placement": "partitioned", "regParam": 0.1}, "regParam.*both to 0.0"),
    "shards and dropout": ({"placement": "partitioned", "solver": "sgd", "dropout": 0.1}, "dropout.*both to 0.0"),
    "servers of sums": ({"placement": "server"}, "solver='sgd'"),
    "a parameter without effect": ({"localSteps": 3}, "localSteps is set"),
    "a codec of sums": ({"codec": "int8"}, "codec='int8' needs a solver of steps"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_honoured_is_refused_before_any_job(frame, name) -> None:
    params, words = REFUSED[name]
    params = {key: value for key, value in {"layers": LAYERS, **params}.items() if value is not None}
    with pytest.raises(ValueError, match=words):
        MultilayerPerceptronClassifier(**params).fit(frame)


def test_layers_that_are_no_whole_numbers_are_refused() -> None:
    with pytest.raises(TypeError, match="layers"):
        MultilayerPerceptronClassifier(layers=[4.5, 3])
    with pytest.raises(ValueError, match="one output"):
        MultilayerPerceptronRegressor(layers=[4, 3]).checkParams()


def test_rows_that_do_not_fit_the_layers_are_refused(frame, datasets_on_disk) -> None:
    with pytest.raises(ValueError, match="layers begins with 5 units, but rows have 4 features"):
        classifier(layers=[5, 3]).fit(frame)
    with pytest.raises(ValueError, match="layers ends with 2 units.*largest label is 2"):
        classifier(layers=[4, 2]).fit(frame)
    wrong = classifier(layers=[4, 3, 3]).fit(frame)
    with pytest.raises(ValueError, match="67"):
        classifier().setInitialModel(wrong).fit(frame)
    assert not datasets_on_disk()
