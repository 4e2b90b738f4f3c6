"""The tasks that stay for a partitioned fit: one dies, others want their slots, there are none for them."""

from __future__ import annotations

import logging
import sys
import threading
import time

import numpy as np
import pytest
from processes import end
from pyspark import cloudpickle

from sparkdml.algorithms.vector_free import VectorFree
from sparkdml.classification import LogisticRegression
from sparkdml.placement.partitioned import crew, rounds

# workers cannot import a test module
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.fault
ESTIMATOR = LogisticRegression(regParam=0.01, tol=1e-12, maxIter=9, solver="l-bfgs", placement="partitioned")


@pytest.fixture(scope="module")
def frame(make_frame):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((80, 12)) * (rng.random((80, 12)) < 0.4)
    y = (X[:, 0] - X[:, 5] + rng.standard_normal(80) > 0).astype(float)
    return make_frame(X, y, kind="sparse")


def fit(frame, on_round=None) -> np.ndarray:
    model = ESTIMATOR.copy().setOnRound(on_round).fit(frame)
    found = np.append(model.coefficients.toArray(), model.intercept)
    model.coefficientsRDD.unpersist()
    return found


@pytest.fixture(scope="module")
def by_jobs(frame) -> np.ndarray:
    """The answer where every step is a Spark job."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds._Fit, "_hired", lambda fit, stack: fit._jobs())
        return fit(frame)


@pytest.fixture(autouse=True)
def a_busy_machine(monkeypatch):
    """On which members may take more than the usual seconds to come; fits would go on without them."""
    monkeypatch.setattr(crew, "START_SECONDS", 60.0)


@pytest.fixture
def crews(monkeypatch):
    """Those that were put together, each with how often it was asked."""
    made = []

    class Counted(crew.Crew):
        def __init__(self, *args) -> None:
            made.append(0)
            super().__init__(*args)

        def _ask(self, message):
            made[-1] += 1
            return super()._ask(message)

    monkeypatch.setattr(rounds, "Crew", Counted)
    return made


def test_a_crew_finds_what_jobs_find_to_the_last_bit(frame, by_jobs, crews):
    found = fit(frame)
    np.testing.assert_array_equal(found, by_jobs)
    assert len(crews) == 1
    assert crews[0] >= 3 * 9


class Killing:
    """A callback that ends a worker process of this driver once."""

    def __init__(self) -> None:
        self.done = False

    def __call__(self, history) -> None:
        if len(history.rounds) == 3 and not self.done:
            self.done = True
            end("sparkdml.daemon")


def test_the_fit_outlives_a_member(frame, by_jobs, crews, caplog):
    with caplog.at_level(logging.WARNING, "sparkdml"):
        found = fit(frame, Killing())
    np.testing.assert_array_equal(found, by_jobs)
    assert 0 < crews[0] < 3 * 9
    assert "goes on by Spark jobs" in caplog.text


def test_a_callback_may_start_spark_jobs(spark, frame, by_jobs, crews, caplog, impatient):
    def counts(history) -> None:
        if len(history.rounds) in (2, 4):
            assert spark.sparkContext.parallelize(range(10), 2).count() == 10

    with caplog.at_level(logging.WARNING, "sparkdml"):
        found = fit(frame, counts)
    np.testing.assert_array_equal(found, by_jobs)
    assert "a Spark job waits" in caplog.text
    assert 0 < crews[0] < 3 * 9


def test_slots_that_others_hold_are_not_waited_for(spark, frame, by_jobs, crews, monkeypatch):
    monkeypatch.setattr(crew, "START_SECONDS", 1.0)
    monkeypatch.setattr(Holding, "seconds", 4.0)
    with Holding(spark):
        found = fit(frame)
    np.testing.assert_array_equal(found, by_jobs)
    assert crews == [0]


class Holding:
    """A job that keeps a slot from when a fit hires its crew."""

    seconds = 0.0

    def __init__(self, spark) -> None:
        self._spark = spark

    def __enter__(self) -> None:
        hired = rounds._Fit._hired
        seconds, sc = self.seconds, self._spark.sparkContext

        def held(numbers):
            time.sleep(seconds)
            return list(numbers)

        def after(fit, stack):
            self._thread = threading.Thread(target=lambda: sc.parallelize([0], 1).mapPartitions(held).collect())
            self._thread.start()
            time.sleep(0.5)
            return hired(fit, stack)

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(rounds._Fit, "_hired", after)

    def __exit__(self, *_) -> None:
        self._patch.undo()
        self._thread.join()


class Raising(VectorFree):
    def work(self, problem, blocks, coef, turn):
        if turn.clock == 2:
            raise ZeroDivisionError("of its own making")
        return super().work(problem, blocks, coef, turn)


def test_what_a_member_raises_is_told_and_the_session_goes_on(frame, by_jobs, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("sparkdml.linear.VectorFree", Raising)
        with pytest.raises(RuntimeError, match="of its own making"):
            fit(frame)
    np.testing.assert_array_equal(fit(frame), by_jobs)


def test_an_interrupt_ends_the_crew(spark, frame, by_jobs):
    class Interrupting:
        def __call__(self, history) -> None:
            if len(history.rounds) == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(frame, Interrupting())
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
    np.testing.assert_array_equal(fit(frame), by_jobs)
