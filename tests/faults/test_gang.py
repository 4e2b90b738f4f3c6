"""Workers that sum among themselves: one of them ends, two gangs want the same slots, the frame was coalesced."""

from __future__ import annotations

import threading
import time

import pytest
from processes import end
from pyspark.ml.linalg import Vectors

from sparkdml.classification import LogisticRegression
from sparkdml.resources import slots

pytestmark = [pytest.mark.fault, pytest.mark.slow]


@pytest.fixture(scope="module")
def frame(spark):
    rows = [(Vectors.dense(float(i % 7), float(i * i % 5)), float(i * 7 % 3 == 0)) for i in range(90)]
    return spark.createDataFrame(rows, ["features", "label"]).repartition(6)


def estimator(placement: str = "allreduce") -> LogisticRegression:
    return LogisticRegression(placement=placement, solver="l-bfgs", regParam=0.01, tol=1e-9)


@pytest.fixture(scope="module")
def objective(frame) -> float:
    return estimator("local").fit(frame).report.objective


def test_a_worker_that_is_killed_costs_no_digit(frame, objective) -> None:
    killed: list[int] = []

    def end_one(history) -> None:
        if len(history.rounds) == 3 and not killed:
            killed.append(len(history.rounds))
            end("pyspark.worker")

    report = estimator().setOnRound(end_one).fit(frame).report
    assert killed
    assert report.objective == pytest.approx(objective, rel=1e-10)
    assert [entry.round for entry in report.history] == list(range(report.rounds))
    assert frame.count() == 90


def test_two_fits_at_once_take_turns(frame, objective) -> None:
    found: list[float] = []
    threads = [threading.Thread(target=lambda: found.append(estimator().fit(frame).report.objective)) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120.0)
    assert found == [pytest.approx(objective, rel=1e-10)] * 2


@pytest.mark.parametrize("shape", [lambda df: df.coalesce(1), lambda df: df.limit(90)], ids=["coalesce", "limit"])
def test_frames_that_a_barrier_stage_may_not_follow(frame, objective, shape) -> None:
    assert estimator().fit(shape(frame)).report.objective == pytest.approx(objective, rel=1e-10)


def test_a_callback_may_start_spark_jobs(frame, objective, impatient) -> None:
    """The gang holds every slot: it ends for the job, and goes on after it."""
    counted: list[int] = []

    def count(history) -> None:
        if len(history.rounds) in (2, 5):
            counted.append(frame.count())

    report = estimator().setOnRound(count).fit(frame).report
    assert counted == [90, 90]
    assert report.objective == pytest.approx(objective, rel=1e-10)
    assert [entry.round for entry in report.history] == list(range(report.rounds))


def test_a_slow_worker_is_waited_for(frame, objective) -> None:
    def slow(history) -> None:
        if len(history.rounds) == 2:
            time.sleep(3.0)

    assert estimator().setOnRound(slow).fit(frame).report.objective == pytest.approx(objective, rel=1e-10)


def test_an_interrupted_fit_ends_its_workers(spark, frame) -> None:
    def interrupt(history) -> None:
        if len(history.rounds) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        estimator().setOnRound(interrupt).fit(frame)
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
    assert frame.count() == 90


def test_dynamic_allocation_is_refused_with_what_to_set(spark, frame, monkeypatch) -> None:
    monkeypatch.setattr(slots, "_settings", {})  # this one does change while the application runs
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.dynamicAllocation.enabled", "true")
    try:
        with pytest.raises(
            ValueError, match=r"set spark.dynamicAllocation.enabled=false, or use placement='broadcast'"
        ):
            estimator().fit(frame)
    finally:
        conf.set("spark.dynamicAllocation.enabled", "false")


def test_workers_of_a_method_with_memory_may_be_lost_too(frame) -> None:
    killed: list[int] = []

    def end_one(history) -> None:
        if len(history.rounds) == 6 and not killed:
            killed.append(len(history.rounds))
            end("pyspark.worker")

    params = {"regParam": 0.01, "solver": "cocoa", "tol": 1e-9, "maxIter": 400}
    expected = LogisticRegression(placement="local", **params).fit(frame).report.objective
    found = LogisticRegression(placement="allreduce", **params).setOnRound(end_one).fit(frame).report
    assert killed
    assert found.objective == pytest.approx(expected, rel=1e-6)
