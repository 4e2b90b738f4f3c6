"""Reports tell what the seconds of a fit went to, wherever its model lives."""

from __future__ import annotations

import time

import numpy as np
import pytest

from sparkdml.classification import LogisticRegression
from sparkdml.data import from_dataframe
from sparkdml.report.history import PHASES

PLACEMENTS = {
    "local": {},
    "broadcast": {},
    "allreduce": {},
    "partitioned": {"solver": "l-bfgs"},
    "server": {"solver": "sgd", "stepSize": 0.1, "staleness": 0},
}


@pytest.fixture(scope="module")
def uneven(spark, make_frame):
    """Two partitions, one of which has most of the rows."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(8000, 40))
    y = (X @ rng.normal(size=40) > 0).astype(float)
    few, many = (make_frame(X[rows], y[rows], partitions=1) for rows in (slice(50), slice(50, None)))
    with from_dataframe(spark.createDataFrame(few.rdd.union(many.rdd), few.schema)) as blocks:
        yield blocks


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_phases_are_the_whole_of_a_fit_and_no_more(uneven, placement):
    began = time.perf_counter()
    report = LogisticRegression(placement=placement, maxIter=4, tol=0.0, **PLACEMENTS[placement]).fit(uneven).report
    whole = time.perf_counter() - began
    assert set(report.seconds) == {"ingest", *PHASES}
    assert all(getattr(entry, f"{phase}_seconds") >= 0.0 for entry in report.history for phase in PHASES)
    assert 0.0 < sum(entry.seconds for entry in report.history) <= whole
    assert sum(report.seconds.values()) == pytest.approx(sum(entry.seconds for entry in report.history))
    assert report.seconds["compute"] > 0.0
    if placement != "local":  # which cuts rows anew, and sends nothing
        assert report.seconds["wait"] > 0.2 * report.seconds["compute"]
        assert report.seconds["serialise"] > 0.0
        assert report.seconds["aggregate"] > 0.0
