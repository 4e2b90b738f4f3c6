"""Fits beside a parameter server when a worker, the server, files or the user's patience end."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest
from processes import end, of_this_driver
from pyspark import cloudpickle

from sparkdml.algorithms import SyncSGD
from sparkdml.classification import LogisticRegression
from sparkdml.data import from_dataframe

# workers cannot import a test module
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.fault
ESTIMATOR = LogisticRegression(
    regParam=0.05, solver="sgd", miniBatchFraction=0.1, maxIter=8, tol=0.0, placement="server", numServers=2
)


@pytest.fixture(scope="module")
def frame(make_frame):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 6))
    return make_frame(X, (X[:, 0] - X[:, 3] + rng.standard_normal(200) > 0).astype(float))


def fit(data, on_round=None) -> np.ndarray:
    model = ESTIMATOR.copy().setOnRound(on_round).fit(data)
    return np.append(model.coefficients.toArray(), model.intercept)


@pytest.fixture(scope="module")
def calm(frame) -> np.ndarray:
    return fit(frame)


class Once:
    """A callback that does something after three passes."""

    def __init__(self, action) -> None:
        self.action, self.done = action, False

    def __call__(self, history) -> None:
        if len(history.rounds) == 3 and not self.done:
            self.done = True
            self.action()


@pytest.fixture(autouse=True)
def nothing_is_left(spark):
    yield
    deadline = time.monotonic() + 10.0
    while of_this_driver("sparkdml.server") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not of_this_driver("sparkdml.server")
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


def test_a_worker_that_is_killed_goes_on_at_its_clock(frame, calm):
    killing = Once(lambda: end("sparkdml.daemon"))
    np.testing.assert_array_equal(fit(frame, killing), calm)
    assert killing.done


def test_a_replica_that_is_killed_with_its_worker_begins_again_at_the_centre(frame):
    optimum = LogisticRegression(regParam=0.05, tol=1e-10).fit(frame).report.objective
    killing = Once(lambda: end("sparkdml.daemon"))
    estimator = LogisticRegression(
        regParam=0.05, solver="easgd", optimizer="momentum", stepSize=0.02, batchSize=16, maxIter=15, tol=0.0
    )
    model = estimator._set(placement="server", staleness=-1).setOnRound(killing).fit(frame)
    assert killing.done
    assert model.report.objective <= optimum + 1e-2


def test_a_server_that_is_killed_ends_the_fit_with_the_cause(frame, calm):
    began = time.monotonic()
    with pytest.raises(Exception, match="server"):
        fit(frame, Once(lambda: end("sparkdml.server")))
    assert time.monotonic() - began < 60.0
    np.testing.assert_array_equal(fit(frame), calm)


def test_with_a_backup_the_fit_outlives_a_server(frame, calm):
    ending = Once(lambda: end("sparkdml.server"))
    model = ESTIMATOR.copy()._set(replicas=1, numServers=1).setOnRound(ending).fit(frame)
    np.testing.assert_array_equal(np.append(model.coefficients.toArray(), model.intercept), calm)
    assert ending.done


def test_a_callback_may_start_spark_jobs(spark, frame, calm, impatient):
    counting = Once(lambda: spark.sparkContext.parallelize(range(10), 2).count())
    np.testing.assert_array_equal(fit(frame, counting), calm)


def test_an_interrupt_ends_workers_and_servers(frame, calm):
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(frame, Once(interrupt))
    np.testing.assert_array_equal(fit(frame), calm)


class Raising(SyncSGD):
    def gradient(self, problem, blocks, coef, turn):
        if turn.clock == 5:
            raise ZeroDivisionError("of its own making")
        return super().gradient(problem, blocks, coef, turn)


def test_what_a_worker_raises_is_told(frame, calm, monkeypatch):
    monkeypatch.setattr("sparkdml.cooperation.SyncSGD", Raising)
    with pytest.raises(RuntimeError, match="of its own making"):
        fit(frame)


def test_block_files_that_are_gone_are_made_again(frame, calm, local_dir):
    with from_dataframe(frame) as data:
        for path in sorted(local_dir.rglob("sparkdml-*/part-*/block-*"))[:1]:
            path.unlink()
        np.testing.assert_array_equal(fit(data), calm)
