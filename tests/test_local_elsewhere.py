"""The placement ``local`` where blocks are on other hosts: small ones are brought to the driver."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from sparkdml.classification import LogisticRegression
from sparkdml.data import from_dataframe
from sparkdml.placement import local


@pytest.fixture(scope="module")
def frame(make_frame):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    X[rng.random(X.shape) < 0.5] = 0.0
    return make_frame(X, (X[:, 0] + rng.standard_normal(60) > 0).astype(float), kind="mixed").cache()


@pytest.fixture
def elsewhere(monkeypatch):
    """The driver takes itself for another host than its executors'."""
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")


def test_blocks_of_other_hosts_are_brought(frame, elsewhere, monkeypatch) -> None:
    how = {"regParam": 0.01, "tol": 1e-10, "solver": "l-bfgs"}
    expected = LogisticRegression(placement="broadcast", **how).fit(frame)
    model = LogisticRegression(placement="local", **how).fit(frame)
    np.testing.assert_allclose(model.coefficients, expected.coefficients, rtol=1e-9)
    with from_dataframe(frame) as dataset:
        assert sum(block.rows for blocks in dataset.bring_here() for block in blocks) == 60


def test_many_are_refused(frame, elsewhere, monkeypatch) -> None:
    monkeypatch.setattr(local, "FETCH_BYTES", 100)
    with pytest.raises(ValueError, match="placement='local' computes in the driver, but .* use placement='broadcast'"):
        LogisticRegression(placement="local").fit(frame)


def test_threads_that_share_coefficients_say_what_to_use_on_a_cluster(frame, elsewhere, monkeypatch) -> None:
    estimator = LogisticRegression(solver="hogwild", maxIter=2)
    assert estimator.fit(frame).report.placement.startswith("local: threads of one process")
    monkeypatch.setattr(local, "FETCH_BYTES", 100)
    with pytest.raises(ValueError, match="use placement='broadcast' or 'allreduce', where the threads of each task"):
        estimator.fit(frame)


def test_auto_brings_them_by_itself(frame, elsewhere) -> None:
    assert LogisticRegression(regParam=0.1).fit(frame).report.placement.startswith("local: the cheapest")
