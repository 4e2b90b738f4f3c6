"""numWorkers and gpusPerWorker: what is refused before any job, and how many workers there are."""

from __future__ import annotations

import numpy as np
import pytest

from sparkdml.classification import FMClassifier, LinearSVC, LogisticRegression
from sparkdml.data import from_dataframe
from sparkdml.placement import local
from sparkdml.regression import FMRegressor, GeneralizedLinearRegression, LinearRegression


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (LogisticRegression(gpusPerWorker=1.5), "gpusPerWorker=1.5 is not allowed; it can be from 0 to 1, or 2, 3"),
        (LogisticRegression(gpusPerWorker=-1.0), "gpusPerWorker=-1.0 is not allowed; it must be at least 0"),
        (LogisticRegression(numWorkers=-1), "numWorkers=-1 is not allowed; it must be at least 0"),
        (LogisticRegression(gpusPerWorker=1.0, placement="local"), "placement='local' computes on CPUs; use broadcast"),
        (LogisticRegression(gpusPerWorker=1.0, placement="partitioned"), "placement='partitioned' computes on CPUs"),
        (LogisticRegression(gpusPerWorker=1.0, solver="newton"), "solver='newton' computes on CPUs"),
        (LogisticRegression(gpusPerWorker=1.0, solver="sgd"), "solver='sgd' computes on CPUs"),
        (LinearRegression(gpusPerWorker=1.0, solver="normal"), "solver='normal' computes on CPUs"),
        (LinearRegression(gpusPerWorker=1.0, loss="huber"), "loss='huber' computes on CPUs"),
        (LinearSVC(gpusPerWorker=1.0), "LinearSVC computes on CPUs"),
        (GeneralizedLinearRegression(gpusPerWorker=1.0), "GeneralizedLinearRegression computes on CPUs"),
        (FMClassifier(gpusPerWorker=1.0), "FMClassifier computes on CPUs"),
        (FMRegressor(gpusPerWorker=1.0), "FMRegressor computes on CPUs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused(spark, estimator, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        estimator.checkParams()


@pytest.mark.parametrize("gpus", [0.0, 0.25, 0.75, 1.0, 2.0])
def test_shares_and_whole_numbers_are_allowed(spark, gpus):
    LogisticRegression(gpusPerWorker=gpus, numWorkers=3).checkParams()


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((4000, 6))
    return X, (X[:, 0] + rng.standard_normal(4000) > 0).astype(float)


def test_local_mode_refuses_gpus_before_rows_are_read(make_frame):
    frame = make_frame(*rows())
    with pytest.raises(ValueError, match=r"gpusPerWorker=1, but master 'local\[2,4\]' hands out no GPUs"):
        LogisticRegression(gpusPerWorker=1.0).fit(frame)
    with pytest.raises(ValueError, match="hands out no GPUs"):
        next(LogisticRegression(gpusPerWorker=1.0).fitMultiple(frame, [{}]))


@pytest.mark.parametrize("placement", ["local", "broadcast", "allreduce"])
def test_no_more_workers_than_asked_for(make_frame, placement, monkeypatch):
    monkeypatch.setattr(local, "SHARE_BYTES", 1)  # however few rows there are
    estimator = LogisticRegression(regParam=1e-2, solver="one-shot-averaging", optimizer="sgd", placement=placement)
    one, all_of_them = (estimator.copy()._set(numWorkers=number).fit(make_frame(*rows())) for number in (1, 0))
    alone = estimator.copy()._set(numWorkers=1).fit(make_frame(*rows(), partitions=1))
    # what is averaged over one worker is that worker's own model, whatever its number of partitions was
    np.testing.assert_array_equal(one.coefficients.toArray(), alone.coefficients.toArray())
    assert np.abs(one.coefficients.toArray() - all_of_them.coefficients.toArray()).max() > 1e-6


def test_a_prepared_data_set_has_its_workers(make_frame):
    with from_dataframe(make_frame(*rows())) as dataset:
        LogisticRegression(numWorkers=2, maxIter=1).fit(dataset)
        with pytest.raises(ValueError, match="numWorkers=1, but the data set was prepared in 2 partitions"):
            LogisticRegression(numWorkers=1).fit(dataset)
