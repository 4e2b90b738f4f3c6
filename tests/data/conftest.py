"""Fixtures for data sets on Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from oracles import random_rows


@pytest.fixture
def jobs_started(spark) -> Iterator[Callable[[], int]]:
    """A function that counts the Spark jobs which this test has started so far."""
    sc, group = spark.sparkContext, f"test-{uuid.uuid4().hex}"
    sc.setJobGroup(group, "counted")

    def count() -> int:
        sc._jsc.sc().listenerBus().waitUntilEmpty()  # which tells the tracker of jobs
        return len(sc.statusTracker().getJobIdsForGroup(group))

    yield count
    for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
        sc.setLocalProperty(name, None)


@pytest.fixture
def conf(spark) -> Callable[..., object]:
    """``with conf(name, value):`` sets a SQL setting of the session for a while."""

    @contextmanager
    def changed(name: str, value: object) -> Iterator[None]:
        before = spark.conf.get(name)
        spark.conf.set(name, str(value))
        try:
            yield
        finally:
            spark.conf.set(name, before)

    return changed


@pytest.fixture(scope="session")
def table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, y, weights of 60 rows of 6 features, among them an empty row, an all-zero and a constant column.

    The first column counts the rows from 1, so that each can be told; float32 holds every value.
    """
    rng = np.random.default_rng(41)
    X = random_rows(rng, 60, 6)
    X[:, 0] = np.arange(1.0, 61.0)
    X[:, 3], X[:, 4] = 0.0, 2.5
    return X, rng.integers(0, 3, 60).astype(float), rng.uniform(0.1, 3.0, 60)
