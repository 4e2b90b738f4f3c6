"""Both ways in which rows and coefficients meet."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkdml.wide import scoring


@pytest.fixture(params=["routed", "replicated"])
def path(request, monkeypatch) -> str:
    """As large models are scored, and as small ones."""
    monkeypatch.setattr(scoring, "REPLICATED_BYTES", 0 if request.param == "routed" else 2**40)
    return request.param


@pytest.fixture
def routed(monkeypatch) -> None:
    """As large models are scored."""
    monkeypatch.setattr(scoring, "REPLICATED_BYTES", 0)


@pytest.fixture
def jobs_run(spark) -> Callable[[], int]:
    """A function that counts all jobs since the session began, whoever started them."""
    return lambda: spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()
