"""Workers that sum among themselves: one of them ends, two gangs want the same slots, the frame was coalesced."""

from __future__ import annotations

import os
import signal
import threading

import psutil
import pytest
from pyspark.ml.linalg import Vectors

from sparkdml.classification import LogisticRegression

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
            own = psutil.Process().children(recursive=True)
            workers = [p for p in own if "pyspark.worker" in " ".join(p.cmdline()) and not p.children()]
            killed.append(workers[0].pid)
            os.kill(workers[0].pid, signal.SIGKILL)

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
