"""Tasks that raise, crash or meet deleted files: a clear end or the same answer, and the session stays usable."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest
from pyspark import cloudpickle
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql.types import DoubleType, StructField, StructType

from sparkdml.algorithms import LBFGS
from sparkdml.classification import LogisticRegression
from sparkdml.classification.logistic_regression import starting_point
from sparkdml.data import from_dataframe
from sparkdml.losses import Logistic
from sparkdml.placement import PLACEMENTS, gang
from sparkdml.placement.gang import WorkerError

# workers cannot import a test module
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.fault
SCHEMA = StructType([StructField("features", VectorUDT()), StructField("label", DoubleType())])


@pytest.fixture
def frame(spark):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((200, 4))
    y = (X[:, 0] + rng.standard_normal(200) > 0).astype(float)
    rows = [(Vectors.dense(x), float(label)) for x, label in zip(X, y, strict=True)]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 4), SCHEMA)


@dataclass(frozen=True)
class Failing(LBFGS):
    """Does something to the worker in round ``at``."""

    at: int = 2
    deed: str = "raise"
    flag: str = ""

    def work(self, problem, blocks, coef, memory, turn):
        if turn.clock == self.at and not os.path.exists(self.flag):
            if self.deed == "raise":
                raise ArithmeticError("planted failure")
            open(self.flag, "w").close()
            os.kill(os.getpid(), signal.SIGSEGV if self.deed == "crash" else signal.SIGKILL)
        return super().work(problem, blocks, coef, memory, turn)


def train(dataset, algorithm, placement="broadcast", on_round=None):
    problem = LogisticRegression(regParam=1e-3)._problem(dataset, Logistic())
    start = starting_point(problem, dataset.statistics.histogram)
    return PLACEMENTS[placement]().train(algorithm, problem, algorithm.init(problem, start), dataset, on_round)


@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
def test_a_raise_in_a_worker_reaches_the_user_and_leaves_the_session_usable(spark, frame, placement):
    with from_dataframe(frame) as dataset:
        with pytest.raises(Exception, match="planted failure"):
            train(dataset, Failing(100, 1e-8), placement)
        assert train(dataset, LBFGS(100, 1e-8), placement).state.stop.reason == "converged"
    assert frame.count() == 200


@dataclass(frozen=True)
class Uneven(LBFGS):
    """The first worker raises while the second is long in its round."""

    def work(self, problem, blocks, coef, memory, turn):
        if turn.worker == 0:
            raise ArithmeticError("planted failure")
        time.sleep(5.0)
        return super().work(problem, blocks, coef, memory, turn)


def test_a_raise_is_told_however_long_the_other_workers_take(frame, monkeypatch):
    """Nor are these taken for lost, which would start the fit again."""
    monkeypatch.setattr(gang, "GRACE_SECONDS", 1.0)
    with from_dataframe(frame) as dataset, pytest.raises(WorkerError, match="planted failure"):
        train(dataset, Uneven(100, 1e-8), "allreduce")
    assert frame.count() == 200


@pytest.mark.parametrize("deed", ["crash", "kill"])
def test_a_worker_that_dies_once_is_retried_by_spark(frame, tmp_path, deed):
    with from_dataframe(frame) as dataset:
        calm = train(dataset, LBFGS(100, 1e-10)).state.objective
        failing = Failing(100, 1e-10, deed=deed, flag=str(tmp_path / "died"))
        assert train(dataset, failing).state.objective == calm
    assert (tmp_path / "died").exists()


def test_block_files_deleted_in_mid_fit_are_built_again(frame):
    with from_dataframe(frame) as dataset:
        calm = train(dataset, LBFGS(100, 1e-10)).state.objective

        def delete(entry, state):
            if entry.round in (1, 3):
                for _, directory in dataset.handles[entry.round % len(dataset.handles)].homes:
                    shutil.rmtree(directory, ignore_errors=True)

        assert train(dataset, LBFGS(100, 1e-10), on_round=delete).state.objective == calm


def test_an_interrupted_fit_leaves_nothing_behind(spark, frame, local_dir):
    before, cached = set(local_dir.rglob("sparkdml-*")), spark.sparkContext._jsc.getPersistentRDDs().size()

    class Interrupt(KeyboardInterrupt):
        pass

    def interrupt(entry, state):
        raise Interrupt

    with pytest.raises(Interrupt), from_dataframe(frame) as dataset:
        train(dataset, LBFGS(100, 1e-10), on_round=interrupt)
    assert set(local_dir.rglob("sparkdml-*")) == before
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == cached
    assert LogisticRegression().fit(frame).report.stop.reason == "converged"


def test_fits_from_several_threads_all_finish(frame):
    expected = LogisticRegression(regParam=0.1).fit(frame).coefficients
    found: list = []
    threads = [
        threading.Thread(target=lambda: found.append(LogisticRegression(regParam=0.1).fit(frame).coefficients))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert found == [expected] * 4


def test_ten_fits_in_a_row(frame):
    values = {numbers(LogisticRegression(regParam=0.1).fit(frame)) for _ in range(10)}
    assert len(values) == 1


def numbers(model):
    return (model.intercept, *model.coefficients)
