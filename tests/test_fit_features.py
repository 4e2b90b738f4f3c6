"""What surrounds a fit: warm starts, early stopping, class weights, callbacks."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from linear_family import ESTIMATORS, ITERATED, iterated, numbers, rows, stock
from pyspark.sql import functions as F

from sparkdml.classification import LogisticRegression
from sparkdml.regression import GeneralizedLinearRegression

ROOT = Path(__file__).resolve().parents[1]
every_estimator = pytest.mark.parametrize("cls", ESTIMATORS.values(), ids=ESTIMATORS.keys())
every_fit = pytest.mark.parametrize("name", ITERATED)
#: Without that of least squares, which a Gram matrix solves in two rounds.
every_long_fit = pytest.mark.parametrize("name", [name for name in ITERATED if name != "linear-l-bfgs"])
both_placements = pytest.mark.parametrize("placement", ["local", "broadcast"])


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


# What does not go together


def test_generalized_linear_models_take_no_initial_model() -> None:

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
