"""Fits beside a parameter server that are interrupted, and go on from what was kept."""

from __future__ import annotations

import numpy as np
import pytest

from sparkdml.classification import LogisticRegression

ESTIMATOR = LogisticRegression(
    regParam=0.05, elasticNetParam=0.2, solver="sgd", optimizer="adam", miniBatchFraction=0.3, maxIter=8, tol=0.0,
    placement="server", checkpointInterval=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def frame(make_frame):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((300, 6))
    return make_frame(X, (X[:, 0] - X[:, 3] + rng.standard_normal(300) > 0).astype(float))


def numbers(model) -> np.ndarray:
    return np.append(model.coefficients.toArray(), model.intercept)


class InterruptError(Exception):
    """The driver ends here."""


def interrupted(estimator, frame, passes: int) -> None:
    def end(history) -> None:
        if len(history.rounds) == passes:
            raise InterruptError

    with pytest.raises(InterruptError):
        estimator.copy().setOnRound(end).fit(frame)


def test_in_step_an_interrupted_fit_ends_at_the_same_bits_with_any_number_of_servers(frame, tmp_path):
    calm = ESTIMATOR.fit(frame)
    kept = ESTIMATOR.copy()._set(checkpointDir=str(tmp_path / "kept"))
    interrupted(kept, frame, 5)
    assert [path.name for path in (tmp_path / "kept").iterdir() if not path.name.startswith(".")] == [
        "sparkdml-fit.npz"
    ]
    seen = []
    again = kept.copy()._set(numServers=3).setOnRound(lambda history: seen.append(len(history.rounds))).fit(frame)
    np.testing.assert_array_equal(numbers(again), numbers(calm))
    assert again.report.objective_history == calm.report.objective_history
    assert seen == [5, 6, 7, 8, 9]
    assert not [path for path in (tmp_path / "kept").iterdir() if path.suffix == ".npz"]
    # the steps that were left, and no more
    assert again.report.servers[0]["0"]["pushes_total{apply}"] == (8 - 3) * 4


def test_a_directory_of_another_fit_or_that_cannot_be_written_is_refused_before_the_first_round(frame, tmp_path):
    kept = ESTIMATOR.copy()._set(checkpointDir=str(tmp_path))
    interrupted(kept, frame, 3)
    rounds = []
    for changed in ({"regParam": 0.1}, {"staleness": 1}):
        with pytest.raises(ValueError, match=f"another fit .*{next(iter(changed))}"):
            kept.copy()._set(**changed).setOnRound(rounds.append).fit(frame)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written"):
        kept.copy()._set(checkpointDir=str(tmp_path / "file")).setOnRound(rounds.append).fit(frame)
    assert rounds == []


@pytest.mark.parametrize("solver", ["admm", "svrg", "easgd"])
def test_what_workers_had_told_is_told_anew_when_a_fit_goes_on(solver, frame, tmp_path):
    """Only the model is kept: shares, anchors and replicas are not, and the optimum is the same."""
    smooth = {"regParam": 0.05, "elasticNetParam": 0.0, "maxIter": 30}
    best = LogisticRegression(regParam=0.05, placement="local", tol=1e-12).fit(frame).report.objective
    steps = {"optimizer": "sgd", "stepSize": 0.1} if solver == "easgd" else {}
    kept = LogisticRegression(
        solver=solver, placement="server", staleness=-1, checkpointInterval=2, checkpointDir=str(tmp_path), tol=0.0,
        **smooth, **steps,
    )  # fmt: skip
    interrupted(kept, frame, 6)
    again = kept.copy().fit(frame).report
    assert len(again.history) > 6
    assert again.objective <= best + (1e-2 if solver == "easgd" else 1e-6)


def test_workers_that_share_a_task_are_not_held_up_by_each_other(spark, frame, tmp_path):
    def count(history) -> None:
        if len(history.rounds) in (2, 5):  # workers give way, wherever they are, and come back
            assert spark.sparkContext.parallelize(range(10), 2).count() == 10

    estimator = ESTIMATOR.copy()._set(maxIter=6, miniBatchFraction=1.0)
    broadcast = estimator.copy()._set(placement="broadcast").fit(frame)
    shared = estimator._set(serverLaunch="executors", checkpointDir=str(tmp_path), checkpointInterval=1)
    np.testing.assert_array_equal(numbers(shared.setOnRound(count).fit(frame)), numbers(broadcast))


@pytest.mark.parametrize("params", [{"staleness": -1}, {"staleness": 2}, {"backupWorkers": 1}], ids=str)
def test_out_of_step_an_interrupted_fit_goes_on(frame, tmp_path, params):
    kept = ESTIMATOR.copy()._set(optimizer="adagrad", stepSize=0.3, checkpointDir=str(tmp_path), **params)
    interrupted(kept, frame, 6)
    report = kept.fit(frame).report
    assert report.rounds > 6  # the noise of its steps may end it before the last pass
    optimum = LogisticRegression(regParam=0.05, elasticNetParam=0.2, tol=1e-10).fit(frame).report.objective
    assert report.objective <= optimum + 0.05
    # the clocks of passes 4 to 8 and, as nobody holds up the workers, as many as they get on while the driver looks
    assert all(report.servers[0][worker]["pushes_total{apply}"] >= 4 for worker in ("0", "1"))


def test_early_stopping_and_its_memory_go_on(spark, frame, tmp_path):
    from pyspark.sql import functions as F

    held = frame.withColumn("held", F.rand(1) < 0.3)
    estimator = ESTIMATOR.copy()._set(validationIndicatorCol="held", patience=3)
    calm = estimator.fit(held)
    kept = estimator.copy()._set(checkpointDir=str(tmp_path))
    interrupted(kept, held, 5)
    again = kept.fit(held)
    np.testing.assert_array_equal(numbers(again), numbers(calm))
    assert [entry.validation for entry in again.report.history] == [entry.validation for entry in calm.report.history]
