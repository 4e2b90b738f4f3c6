"""What surrounds a fit: warm starts, early stopping, class weights, callbacks, checkpoints, summaries."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from interpreters import environment
from linear_family import ESTIMATORS, ITERATED, iterated, numbers, rows, stock
from pyspark.ml.linalg import DenseMatrix, DenseVector
from pyspark.sql import functions as F

from sparkdml.classification import LinearSVC, LogisticRegression
from sparkdml.data import from_dataframe
from sparkdml.estimator import IGNORED, USED
from sparkdml.fit.checkpoint import NAME
from sparkdml.regression import GeneralizedLinearRegression, LinearRegression
from sparkdml.report.history import Round

ROOT = Path(__file__).resolve().parents[1]
every_estimator = pytest.mark.parametrize("cls", ESTIMATORS.values(), ids=ESTIMATORS.keys())
every_fit = pytest.mark.parametrize("name", ITERATED)
#: Without that of least squares, which a Gram matrix solves in two rounds.
every_long_fit = pytest.mark.parametrize("name", [name for name in ITERATED if name != "linear-l-bfgs"])
both_placements = pytest.mark.parametrize("placement", ["local", "broadcast"])


@pytest.fixture(scope="module")
def frames(make_frame):
    """Frames of rows of every kind, with a column ``held`` that is true for a third of them."""
    return {kind: make_frame(*rows(kind)).withColumn("held", F.rand(4) < 0.33).cache() for kind in range(4)}


@pytest.fixture(scope="module")
def datasets(frames):
    """The same as blocks."""
    made = {kind: from_dataframe(frame, classes=kind > 1) for kind, frame in frames.items()}
    yield made
    for dataset in made.values():
        dataset.close()


def arrays(frame) -> tuple[np.ndarray, np.ndarray]:
    found = frame.select("features", "label").collect()
    return np.array([row.features.toArray() for row in found]), np.array([row.label for row in found])


def log_loss(model, X: np.ndarray, y: np.ndarray) -> float:
    margins = X @ model.coefficients.toArray() + model.intercept
    return float(np.mean(np.logaddexp(0.0, margins) - y * margins))


class Interrupted(BaseException):
    """As KeyboardInterrupt, which no code of ours may swallow either."""


def interrupt_after(rounds: int):
    def callback(history) -> None:
        if len(history.rounds) == rounds:
            raise Interrupted

    return callback


# Warm starts


@pytest.mark.parametrize("name", [name for name in ITERATED if name != "irls"])
def test_a_warm_start_needs_fewer_rounds_and_ends_at_the_same_optimum(datasets, name) -> None:
    dataset = datasets[ITERATED[name][2]]
    cold = iterated(name).fit(dataset)
    warm = iterated(name).setInitialModel(cold).fit(dataset)
    assert warm.report.objective_history[0] == pytest.approx(cold.report.objective, rel=1e-9)
    if name == "svc":  # at a corner of the hinge loss no step shows that the optimum is reached
        assert warm.report.objective <= cold.report.objective * (1 + 1e-9)
        return
    assert warm.report.rounds < cold.report.rounds
    assert warm.report.objective == pytest.approx(cold.report.objective, rel=1e-6)
    np.testing.assert_allclose(numbers(warm), numbers(cold), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["l-bfgs", "l-bfgs-multinomial", "owl-qn", "svc", "linear-l-bfgs", "huber"])
def test_no_iteration_returns_the_initial_model_unchanged(datasets, name) -> None:
    dataset = datasets[ITERATED[name][2]]
    model = iterated(name, maxIter=3).fit(dataset)
    same = iterated(name, maxIter=0).setInitialModel(model).fit(dataset)
    np.testing.assert_allclose(numbers(same), numbers(model), rtol=1e-12, atol=1e-12)
    assert same.report.iterations == 0
    assert same.report.objective == pytest.approx(model.report.objective, rel=1e-12)


def test_iterations_before_and_after_a_warm_start_add_up(datasets) -> None:
    ten = LogisticRegression(solver="l-bfgs", tol=0.0, maxIter=10).fit(datasets[2])
    five = LogisticRegression(solver="l-bfgs", tol=0.0, maxIter=5).fit(datasets[2])
    five_more = LogisticRegression(solver="l-bfgs", tol=0.0, maxIter=8).setInitialModel(five).fit(datasets[2])
    assert five_more.report.objective <= ten.report.objective * (1 + 1e-6)


def test_pysparks_model_is_an_initial_model_too(frames) -> None:
    theirs = stock("LogisticRegression")(regParam=0.01).fit(frames[2])
    model = iterated("l-bfgs").setInitialModel(theirs).fit(frames[2])
    assert model.report.rounds < iterated("l-bfgs").fit(frames[2]).report.rounds


@pytest.mark.parametrize("name", ["l-bfgs", "newton", "l-bfgs-multinomial", "svc", "linear-l-bfgs", "huber", "owl-qn"])
def test_an_initial_model_of_another_size_is_refused(spark, make_frame, datasets, name) -> None:
    kind = ITERATED[name][2]
    narrow = iterated(name, maxIter=2).fit(make_frame(*rows(kind, 60, 3)))
    with pytest.raises(ValueError, match=r"initial model has 3 features.*4"):
        iterated(name).setInitialModel(narrow).fit(datasets[kind])


def test_an_initial_model_of_other_classes_is_refused(datasets) -> None:
    binary = iterated("l-bfgs").fit(datasets[2])
    with pytest.raises(ValueError, match="initial model has 4 features and 1 sets"):
        iterated("l-bfgs-multinomial").setInitialModel(binary).fit(datasets[3])


# Early stopping

STOPPED = ["l-bfgs", "newton", "owl-qn", "svc", "linear-l-bfgs"]


@pytest.mark.parametrize("name", STOPPED)
def test_validation_rows_tell_when_to_stop_and_nothing_else(frames, name) -> None:
    """The model is that of the other rows, stopped at the iteration with the best validation loss."""
    frame = frames[ITERATED[name][2]]
    params = {"regParam": 0.0, "tol": 0.0, "elasticNetParam": 0.0} if name == "l-bfgs" else {"tol": 0.0}
    stopped = iterated(name, validationIndicatorCol="held", patience=1, **params).fit(frame)
    history = stopped.report.history
    losses = {entry.iteration: entry.validation for entry in history}
    best = min(losses, key=losses.get)
    rest = iterated(name, **params, maxIter=best).fit(frame.filter(~F.col("held")))
    assert numbers(stopped) == numbers(rest)
    assert stopped.report.objective == rest.report.objective
    assert [entry.objective for entry in history if entry.iteration <= best] == [
        entry.objective for entry in rest.report.history if entry.iteration <= best
    ][: sum(entry.iteration <= best for entry in history)]


def test_the_best_point_is_kept_and_history_has_both_losses(frames) -> None:
    frame = frames[2].filter("not held").limit(25).union(frames[2].filter("held")).cache()  # few rows: it overfits
    estimator = LogisticRegression(solver="l-bfgs", tol=0.0, validationIndicatorCol="held", patience=3)
    model = estimator.fit(frame)
    assert model.report.stop.reason == "validation"
    assert "3 iterations" in model.report.stop.message
    history = model.report.history
    assert all(math.isfinite(entry.validation) and math.isfinite(entry.objective) for entry in history)
    losses = {entry.iteration: entry.validation for entry in history}
    best = min(losses, key=losses.get)
    assert history[-1].iteration == best + 3
    X, y = arrays(frame.filter("held"))
    assert log_loss(model, X, y) == pytest.approx(losses[best], rel=1e-12)
    frame.unpersist()


def test_more_patience_goes_further_and_is_no_worse(frames) -> None:
    fits = [
        LogisticRegression(solver="l-bfgs", tol=0.0, validationIndicatorCol="held", patience=p).fit(frames[2])
        for p in (1, 4)
    ]
    best = [min(entry.validation for entry in model.report.history) for model in fits]
    assert best[1] <= best[0]
    assert fits[1].report.rounds >= fits[0].report.rounds


def test_validation_has_no_part_where_it_is_not_asked_for(frames) -> None:
    assert all(math.isnan(entry.validation) for entry in iterated("l-bfgs").fit(frames[2]).report.history)


def test_null_in_the_validation_column_means_a_row_to_train_on(frames) -> None:
    with_null = frames[2].withColumn("held", F.when(F.col("held"), True))
    estimator = iterated("l-bfgs", validationIndicatorCol="held")
    assert numbers(estimator.fit(with_null)) == numbers(estimator.fit(frames[2]))


@pytest.mark.parametrize("kind", ["int", "string", "double"])
def test_a_validation_column_that_is_not_boolean_is_refused_before_any_job(spark, frames, kind) -> None:
    frame = frames[2].withColumn("held", F.col("held").cast("int").cast(kind))
    spark.sparkContext.setJobGroup("validation", "none may start")
    try:
        with pytest.raises(TypeError, match=f"'held' is {kind}; it must be a boolean"):
            iterated("l-bfgs", validationIndicatorCol="held").fit(frame)
        with pytest.raises(TypeError, match="'nowhere' is not there"):
            iterated("l-bfgs", validationIndicatorCol="nowhere").fit(frame)
        assert not spark.sparkContext.statusTracker().getJobIdsForGroup("validation")
    finally:
        spark.sparkContext._jsc.clearJobGroup()


@pytest.mark.parametrize("held", [True, False], ids=["all-held", "none-held"])
def test_nothing_to_train_on_or_to_validate_with_is_refused(frames, held, datasets_on_disk) -> None:
    frame = frames[2].withColumn("held", F.lit(held))
    with pytest.raises(ValueError, match="(?i)no row|empty"):
        iterated("l-bfgs", validationIndicatorCol="held").fit(frame)
    assert datasets_on_disk() == []


# Class weights


@pytest.mark.parametrize("name", ["l-bfgs", "svc", "l-bfgs-multinomial"])
def test_class_weights_are_weights(frames, name) -> None:
    frame = frames[ITERATED[name][2]].withColumn("w", F.rand(7) + 0.5)
    factors = {0: 1.0, 1: 3.0, 2: 0.25}
    factor = F.element_at(F.create_map(*[F.lit(float(v)) for pair in factors.items() for v in pair]), F.col("label"))
    frame = frame.withColumn("factor", factor).withColumn("both", F.col("w") * F.col("factor"))
    for given, weights in (({}, "factor"), ({"weightCol": "w"}, "both")):
        found = iterated(name, classWeight=factors, **given).fit(frame)
        assert numbers(found) == numbers(iterated(name, weightCol=weights).fit(frame))


@pytest.mark.parametrize("name", ["l-bfgs", "svc", "l-bfgs-multinomial"])
def test_balanced_classes_weigh_the_same_and_as_much_as_before(frames, name) -> None:
    frame = frames[ITERATED[name][2]].withColumn("w", F.rand(7) + 0.5).cache()
    for given, weight in (({}, F.lit(1.0)), ({"weightCol": "w"}, F.col("w"))):
        sums = {row.label: row.w for row in frame.groupBy("label").agg(F.sum(weight).alias("w")).collect()}
        factors = {label: sum(sums.values()) / len(sums) / amount for label, amount in sums.items()}
        balanced = iterated(name, classWeight="balanced", **given).fit(frame)
        told = iterated(name, classWeight=factors, **given).fit(frame)
        np.testing.assert_allclose(numbers(balanced), numbers(told), rtol=1e-9)
        assert numbers(balanced) != numbers(iterated(name, **given).fit(frame))
    frame.unpersist()


def test_the_summary_counts_class_weights(frames) -> None:
    factors = {0: 1.0, 1: 3.0}
    weighted = frames[2].withColumn("w", F.when(F.col("label") == 1, 3.0).otherwise(1.0))
    found = iterated("l-bfgs", classWeight=factors).fit(frames[2]).summary
    expected = iterated("l-bfgs", weightCol="w").fit(weighted).summary
    assert found.accuracy == pytest.approx(expected.accuracy, rel=1e-12)
    assert found.areaUnderROC == pytest.approx(expected.areaUnderROC, rel=1e-12)


@pytest.mark.parametrize("value", ["heavy", 3, [1.0, 2.0]], ids=str)
def test_class_weights_of_another_kind_are_refused(spark, value) -> None:
    with pytest.raises((TypeError, ValueError), match="classWeight"):
        LogisticRegression(classWeight=value)


# Callbacks


@both_placements
@every_fit
def test_a_callback_sees_every_round(datasets, name, placement) -> None:
    seen = []

    def callback(history):
        seen.append((len(history.rounds), history.rounds[-1].round, history.rounds[-1].objective))

    model = iterated(name, placement=placement).setOnRound(callback).fit(datasets[ITERATED[name][2]])
    assert [(count, number) for count, number, _ in seen] == [(i + 1, i) for i in range(model.report.rounds)]
    assert [objective for _, _, objective in seen] == [entry.objective for entry in model.report.history]


@both_placements
@every_long_fit
def test_a_callback_that_returns_true_ends_the_fit_with_what_it_has(datasets, name, placement) -> None:
    dataset = datasets[ITERATED[name][2]]
    model = iterated(name, placement=placement).setOnRound(lambda history: len(history.rounds) == 3).fit(dataset)
    assert model.report.stop.reason == "callback"
    assert model.report.rounds == 3
    assert np.isfinite(numbers(model)).all()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@both_placements
def test_an_exception_in_a_callback_ends_the_fit_and_nothing_else(
    spark, frames, datasets_on_disk, placement, error
) -> None:
    before = spark.sparkContext._jsc.getPersistentRDDs().size()

    def callback(history):
        if len(history.rounds) == 2:
            raise error("from the callback")

    estimator = iterated("l-bfgs", placement=placement)
    with pytest.raises(error, match="from the callback"):
        estimator.setOnRound(callback).fit(frames[2])
    assert datasets_on_disk() == []
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before
    assert frames[2].count() == 120
    assert estimator.setOnRound(None).fit(frames[2]).report.stop.reason == "converged"


# Checkpoints


@both_placements
@every_long_fit
def test_an_interrupted_fit_goes_on_bit_for_bit(datasets, tmp_path, name, placement) -> None:
    dataset = datasets[ITERATED[name][2]]
    straight = iterated(name, placement=placement).fit(dataset)
    assert straight.report.rounds > 3, "too few rounds to interrupt"
    estimator = iterated(name, placement=placement, checkpointDir=str(tmp_path), checkpointInterval=2)
    with pytest.raises(Interrupted):
        estimator.setOnRound(interrupt_after(4)).fit(dataset)
    assert NAME in os.listdir(tmp_path)
    seen = []
    resumed = estimator.setOnRound(lambda history: seen.append(len(history.rounds))).fit(dataset)
    assert seen[0] > 2, "it began at the start again"
    assert numbers(resumed) == numbers(straight)
    assert resumed.report.rounds == straight.report.rounds
    assert resumed.report.objective_history == straight.report.objective_history
    assert resumed.report.stop == straight.report.stop
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("every", [1, 2, 100])
def test_a_fit_may_be_interrupted_again_and_again(datasets, tmp_path, every) -> None:
    straight = iterated("owl-qn").fit(datasets[2])
    estimator = iterated("owl-qn", checkpointDir=str(tmp_path), checkpointInterval=every)
    model, attempts = None, 0
    while model is None:
        attempts += 1
        begun = []

        def callback(history, begun=begun, attempts=attempts):
            begun.append(len(history.rounds))
            if len(begun) == 3 and attempts < 4:
                raise Interrupted

        try:
            model = estimator.setOnRound(callback).fit(datasets[2])
        except Interrupted:
            assert (NAME in os.listdir(tmp_path)) == (every < 100)
    assert attempts >= 3
    assert numbers(model) == numbers(straight)
    assert model.report.objective_history == straight.report.objective_history
    assert not list(tmp_path.iterdir())


def test_a_fit_that_was_begun_under_one_placement_ends_under_another(datasets, tmp_path) -> None:
    straight = iterated("l-bfgs").fit(datasets[2])
    params = {"checkpointDir": str(tmp_path), "checkpointInterval": 1}
    with pytest.raises(Interrupted):
        iterated("l-bfgs", placement="broadcast", **params).setOnRound(interrupt_after(4)).fit(datasets[2])
    resumed = iterated("l-bfgs", placement="local", predictionCol="p", threshold=0.3, **params).fit(datasets[2])
    np.testing.assert_allclose(numbers(resumed), numbers(straight), atol=1e-7)
    assert resumed.getPredictionCol() == "p"


@both_placements
def test_early_stopping_goes_on_where_it_was(frames, tmp_path, placement) -> None:
    """The best point may lie before the interruption, and patience is not counted anew."""
    frame = frames[2].filter("not held").limit(25).union(frames[2].filter("held")).cache()
    params = {"tol": 0.0, "regParam": 0.0, "validationIndicatorCol": "held", "patience": 5, "placement": placement}
    straight = iterated("l-bfgs", **params).fit(frame)
    losses = {entry.iteration: entry.validation for entry in straight.report.history}
    best = min(losses, key=losses.get)
    after = sum(entry.iteration <= best + 2 for entry in straight.report.history)
    kept = iterated("l-bfgs", **params, checkpointDir=str(tmp_path), checkpointInterval=1)
    with pytest.raises(Interrupted):
        kept.setOnRound(interrupt_after(after + 1)).fit(frame)
    resumed = kept.setOnRound(None).fit(frame)
    assert numbers(resumed) == numbers(straight)
    assert [entry.validation for entry in resumed.report.history] == [
        entry.validation for entry in straight.report.history
    ]
    assert resumed.report.stop == straight.report.stop
    frame.unpersist()


CHANGES = {
    "regParam": ({"regParam": 0.5}, "regParam: 0.01 then, 0.5 now"),
    "tol": ({"tol": 1e-3}, "tol: 1e-10 then, 0.001 now"),
    "solver": ({"solver": "newton"}, "solver: 'l-bfgs' then, 'newton' now"),
    "fitIntercept": ({"fitIntercept": False}, "fitIntercept: True then, False now"),
}


@pytest.mark.parametrize(("change", "told"), CHANGES.values(), ids=CHANGES.keys())
def test_other_parameters_are_refused_and_named(datasets, tmp_path, change, told) -> None:
    params = {"checkpointDir": str(tmp_path), "checkpointInterval": 1}
    with pytest.raises(Interrupted):
        iterated("l-bfgs", **params).setOnRound(interrupt_after(3)).fit(datasets[2])
    with pytest.raises(ValueError, match=f"another fit.*{told}"):
        iterated("l-bfgs", **{**params, **change}).fit(datasets[2])
    assert NAME in os.listdir(tmp_path), "the refused checkpoint is still there for the fit that it belongs to"


def test_other_data_other_estimators_and_other_starts_are_refused(frames, datasets, tmp_path) -> None:
    params = {"checkpointDir": str(tmp_path), "checkpointInterval": 1}
    with pytest.raises(Interrupted):
        iterated("l-bfgs", **params).setOnRound(interrupt_after(3)).fit(datasets[2])
    changed = frames[2].withColumn("label", F.when(F.col("held"), 1 - F.col("label")).otherwise(F.col("label")))
    with pytest.raises(ValueError, match="another fit.*digest"):
        iterated("l-bfgs", **params).fit(changed)
    with pytest.raises(ValueError, match=r"another fit.*rows: 120 then, 119 now"):
        iterated("l-bfgs", **params).fit(frames[2].limit(119))
    with pytest.raises(ValueError, match="another fit.*estimator: LogisticRegression then, LinearSVC now"):
        iterated("svc", **params).fit(datasets[2])
    with pytest.raises(ValueError, match="another fit.*start"):
        iterated("l-bfgs", **params).setInitialModel(iterated("l-bfgs", maxIter=2).fit(datasets[2])).fit(datasets[2])


def test_a_file_that_is_no_checkpoint_is_refused(datasets, tmp_path) -> None:
    (tmp_path / NAME).write_bytes(b"not ours")
    with pytest.raises(ValueError):  # noqa: PT011 - numpy's message
        iterated("l-bfgs", checkpointDir=str(tmp_path)).fit(datasets[2])


def test_fits_with_several_maps_keep_their_checkpoints_apart(frames, tmp_path) -> None:
    estimator = iterated("l-bfgs", checkpointDir=str(tmp_path), checkpointInterval=1)
    maps = [{estimator.regParam: value} for value in (0.01, 0.1)]
    expected = [numbers(iterated("l-bfgs", regParam=value).fit(frames[2])) for value in (0.01, 0.1)]
    with pytest.raises(Interrupted):
        estimator.setOnRound(interrupt_after(4)).fit(frames[2], maps)
    assert [numbers(model) for model in estimator.setOnRound(None).fit(frames[2], maps)] == expected
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_driver_that_is_killed_leaves_a_fit_that_another_finishes(frames, tmp_path) -> None:
    directory, placement = tmp_path / "kept", "local"
    script = Path(__file__).with_name("killed_driver.py")
    done = subprocess.run(
        [sys.executable, str(script), "owl-qn", str(directory), placement, "5"],
        capture_output=True, text=True, timeout=240, cwd=tmp_path,
        env=environment(SPARK_LOCAL_DIRS=str(tmp_path / "scratch")),
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr[-3000:]
    assert NAME in os.listdir(directory)
    straight = iterated("owl-qn", placement=placement).fit(frames[2])
    seen = []
    estimator = iterated("owl-qn", placement=placement, checkpointDir=str(directory), checkpointInterval=2)
    resumed = estimator.setOnRound(lambda history: seen.append(len(history.rounds))).fit(frames[2])
    assert seen[0] == 5
    assert numbers(resumed) == numbers(straight)
    assert resumed.report.objective_history == straight.report.objective_history
    assert not list(directory.iterdir())


# Parameters


@every_estimator
def test_every_parameter_of_pysparks_class_is_treated_and_no_other(spark, cls) -> None:
    theirs = {param.name for param in stock(cls.__name__)().params}
    assert set(cls.SPARK_PARAMS) == theirs
    assert set(cls.SPARK_PARAMS.values()) <= {USED, IGNORED}
    assert theirs <= {param.name for param in cls().params}


@every_estimator
def test_defaults_are_pysparks(spark, cls) -> None:
    theirs, ours = stock(cls.__name__)(), cls()
    for param in theirs.params:
        assert ours.hasDefault(param.name) == theirs.hasDefault(param), param.name
        if theirs.hasDefault(param):
            assert ours.getOrDefault(param.name) == theirs.getOrDefault(param), param.name


@every_estimator
def test_ignored_parameters_change_nothing(frames, cls) -> None:
    values = {"aggregationDepth": 5, "maxBlockSizeInMB": 0.001}
    ignored = {name for name, treated in cls.SPARK_PARAMS.items() if treated == IGNORED}
    assert ignored <= set(values)
    frame = frames[2]
    plain, told = cls(regParam=0.1).fit(frame), cls(regParam=0.1, **{name: values[name] for name in ignored}).fit(frame)
    assert numbers(told) == numbers(plain)
    assert told.report.rounds == plain.report.rounds
    assert all(told.getOrDefault(name) == values[name] for name in ignored)


# Models and summaries


@pytest.mark.parametrize("params", [{"threshold": 0.95}, {"thresholds": [0.02, 0.98]}], ids=str)
def test_a_model_predicts_single_rows_by_the_parameters_of_its_fit(frames, params) -> None:
    """``predict`` asks the JVM's model alone, before any ``transform`` could have told it its parameters."""
    estimator = iterated("l-bfgs", **params)
    model, told = estimator.fit(frames[2]), estimator.fit(frames[2])
    rows = told.transform(frames[2]).select("features", "prediction").collect()
    assert [model.predict(row.features) for row in rows] == [row.prediction for row in rows]


@pytest.mark.parametrize("params", [{"family": "poisson"}, {"family": "poisson", "link": "sqrt"}], ids=str)
def test_a_generalized_model_predicts_single_rows_by_its_link(frames, params) -> None:
    estimator = GeneralizedLinearRegression(regParam=0.1, **params)
    model, told = estimator.fit(frames[1]), estimator.fit(frames[1])
    row = told.transform(frames[1]).select("features", "prediction").first()
    assert model.predict(row.features) == row.prediction


def test_a_support_vector_machine_predicts_single_rows_by_its_threshold(frames) -> None:
    model = iterated("svc", threshold=50.0).fit(frames[2])
    assert model.predict(frames[2].first().features) == 0.0


@every_estimator
def test_a_model_evaluates_columns_of_other_names(frames, cls) -> None:
    frame = frames[2].select(F.col("features").alias("x"), F.col("label").alias("y"))
    model = cls(featuresCol="x", labelCol="y", predictionCol="p", regParam=0.1).fit(frame)
    assert model.evaluate(frame).predictionCol == "p"


def test_a_summary_is_of_the_model_as_it_was_trained(frames) -> None:
    expected = iterated("l-bfgs").fit(frames[2]).summary
    model = iterated("l-bfgs").fit(frames[2])
    model.setThreshold(0.99).setProbabilityCol("other").transform(frames[2]).collect()
    assert model.summary.accuracy == expected.accuracy
    assert model.summary.probabilityCol == "probability"
    assert model.getThreshold() == 0.99


def training_summary(model):
    return model.summary() if callable(model.summary) else model.summary


@every_fit
def test_a_summarys_history_is_a_table_with_one_line_a_round(frames, name) -> None:
    model = iterated(name).fit(frames[ITERATED[name][2]])
    table = training_summary(model).history
    assert isinstance(table, pa.Table)
    assert table.column_names == list(Round.__dataclass_fields__)
    assert table.num_rows == model.report.rounds == len(model.report.history)
    assert table["round"].to_pylist() == list(range(model.report.rounds))
    assert table["objective"].to_pylist() == [entry.objective for entry in model.report.history]


def test_one_round_is_a_history_too(frames) -> None:
    for model in (LinearRegression(solver="normal").fit(frames[0]), GeneralizedLinearRegression().fit(frames[0])):
        assert model.summary.history.num_rows == 1


@pytest.mark.parametrize("name", [name for name in ITERATED if name != "irls"])
def test_objective_history_has_a_value_before_and_one_after_each_iteration(frames, name) -> None:
    model = iterated(name).fit(frames[ITERATED[name][2]])
    summary = training_summary(model)
    objectives = summary.objectiveHistory
    assert len(objectives) == summary.totalIterations + 1 == model.report.iterations + 1
    assert objectives == model.report.objective_history
    assert objectives[-1] == model.report.objective
    assert all(later <= earlier for earlier, later in zip(objectives, objectives[1:], strict=False))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["l-bfgs", "l-bfgs-multinomial", "owl-qn", "linear-l-bfgs", "linear-owl-qn"])
def test_objective_history_starts_and_ends_where_pysparks_does(frames, name) -> None:
    estimator, params, kind = ITERATED[name]
    found = training_summary(iterated(name).fit(frames[kind])).objectiveHistory
    theirs = {key: value for key, value in params.items() if estimator != "LogisticRegression" or key != "solver"}
    expected = training_summary(stock(estimator)(**{**theirs, "tol": 1e-6}).fit(frames[kind])).objectiveHistory
    assert found[0] == pytest.approx(expected[0], rel=1e-9)
    assert found[-1] == pytest.approx(expected[-1], rel=1e-3)
    assert found[-1] <= expected[-1] * (1 + 1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_first_objective_is_the_loss_before_any_step(frames, intercept) -> None:
    _, y = arrays(frames[2])
    share = y.mean()
    entropy = -(share * math.log(share) + (1 - share) * math.log(1 - share))
    model = LogisticRegression(fitIntercept=intercept, maxIter=0).fit(frames[2])
    assert model.summary.totalIterations == 0
    assert model.summary.objectiveHistory == [pytest.approx(entropy if intercept else math.log(2), rel=1e-12)]
    machine = LinearSVC(fitIntercept=intercept, maxIter=0).fit(frames[2])
    assert machine.summary().objectiveHistory == [pytest.approx(1.0, rel=1e-12)]


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_there_are_as_many_iterations_as_allowed(frames, limit) -> None:
    for name in ("l-bfgs", "owl-qn", "svc", "linear-owl-qn"):
        model = iterated(name, maxIter=limit, tol=0.0).fit(frames[ITERATED[name][2]])
        assert training_summary(model).totalIterations == limit, name


def test_bounded_fits_have_summary_and_history(frames) -> None:
    model = LogisticRegression(
        regParam=0.01,
        lowerBoundsOnCoefficients=DenseMatrix(1, 4, [0.0] * 4),
        upperBoundsOnIntercepts=DenseVector([0.0]),
    ).fit(frames[2])
    assert len(model.summary.objectiveHistory) == model.summary.totalIterations + 1
    assert model.summary.history.num_rows == model.report.rounds


@pytest.mark.parametrize("name", ["l-bfgs", "svc", "linear-l-bfgs", "irls"])
def test_a_summary_draws_itself(frames, name) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    model = iterated(name).fit(frames[ITERATED[name][2]])
    figure = training_summary(model).plot()
    assert isinstance(figure, figures.Figure)
    assert len(figure.axes) == (3 if name in ("l-bfgs", "svc") else 2)


def test_without_matplotlib_plot_says_what_to_install(frames, monkeypatch) -> None:
    summary = LinearRegression().fit(frames[0]).summary
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"sparkdml\[report\]"):
        summary.plot()


def test_generalized_linear_models_take_no_initial_model() -> None:
    from sparkdml.regression import GeneralizedLinearRegression

    with pytest.raises(ValueError, match="take no initial model"):
        GeneralizedLinearRegression().setInitialModel(object())


@pytest.mark.slow
def test_early_stopping_does_not_wait_for_slots_that_a_gang_holds(spark) -> None:
    from pyspark.ml.linalg import Vectors

    from sparkdml.classification import LogisticRegression

    data = [(Vectors.dense(float(i % 7), float(i % 3)), float(i % 2), i % 5 == 0) for i in range(60)]
    frame = spark.createDataFrame(data, ["features", "label", "held"])
    params = {"validationIndicatorCol": "held", "solver": "l-bfgs", "patience": 1, "tol": 0.0}
    gang, local = (LogisticRegression(placement=p, **params).fit(frame).report for p in ("allreduce", "local"))
    assert gang.stop.reason == local.stop.reason
    assert gang.objective == pytest.approx(local.objective, rel=1e-12)
