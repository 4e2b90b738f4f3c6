"""Workers of like speed step together, and do not wait for the others."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest
from pyspark import cloudpickle

from sparkdml.algorithms import SyncSGD
from sparkdml.classification import LogisticRegression

# workers cannot import a test module
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ESTIMATOR = LogisticRegression(
    regParam=0.05, solver="sgd", optimizer="adagrad", stepSize=0.3, miniBatchFraction=0.3, maxIter=12, tol=0.0,
    placement="server", workerGroups="by-speed",
)  # fmt: skip


class Straggling(SyncSGD):
    """The first worker takes 100 ms a clock, the others 2: on a busy machine, too, that is another speed."""

    def gradient(self, problem, blocks, coef, turn):
        time.sleep(0.1 if turn.worker == 0 else 0.002)
        return super().gradient(problem, blocks, coef, turn)


@pytest.fixture(scope="module")
def frame(make_frame):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((300, 6))
    return make_frame(X, (X[:, 0] - X[:, 3] + rng.standard_normal(300) > 0).astype(float))


@pytest.mark.slow
def test_a_slow_worker_is_left_behind_and_the_optimum_is_reached(frame, monkeypatch):
    monkeypatch.setattr("sparkdml.cooperation.SyncSGD", Straggling)
    optimum = LogisticRegression(regParam=0.05, tol=1e-10).fit(frame).report.objective
    report = ESTIMATOR.fit(frame).report
    slow, fast = (report.servers[0][worker] for worker in ("0", "1"))
    assert (fast["group"], slow["group"]) == (0.0, 1.0)
    assert fast["pushes_total{apply}"] > slow["pushes_total{apply}"] + 10
    assert report.objective <= optimum + 0.05


def test_workers_of_one_task_stay_together(frame, caplog):
    report = ESTIMATOR.copy()._set(maxIter=5, serverLaunch="executors").fit(frame).report
    assert "2 workers have 1 slots" in caplog.text
    counts = {told["pushes_total{apply}"] for worker, told in report.servers[0].items() if worker != "none"}
    assert max(counts) - min(counts) <= 1
    assert not any("group" in told for told in report.servers[0].values())
