"""What a worker may read without asking the server."""

from __future__ import annotations

import numpy as np
import pytest

from sparkdml.server.cache import Cache
from sparkdml.server.clocks import Verdict


def test_values_serve_until_they_are_staler_than_allowed() -> None:
    cache = Cache(staleness=2).refreshed(np.zeros(2), clock=3)
    assert [cache.fresh_enough(clock) for clock in (3, 4, 5, 6)] == [True, True, True, False]
    cache = cache.refreshed(np.ones(2), clock=5)
    assert [cache.fresh_enough(clock) for clock in (7, 8)] == [True, False]


def test_under_bsp_values_serve_their_own_clock_only() -> None:
    cache = Cache(staleness=0).refreshed(np.zeros(2), clock=1)
    assert [cache.fresh_enough(clock) for clock in (1, 2)] == [True, False]


def test_the_server_is_asked_first_and_always_without_a_bound() -> None:
    assert not Cache(staleness=3).fresh_enough(0)
    assert not Cache(staleness=-1).refreshed(np.zeros(2), clock=9).fresh_enough(0)


def test_a_worker_reads_its_own_changes_until_values_come_that_hold_them() -> None:
    came = np.array([1.0, 2.0])
    cache = Cache(staleness=2).refreshed(came, clock=0)
    cache = cache.pushed(np.array([0.5, 0.0]), Verdict.APPLY).pushed(np.array([0.0, -1.0]), Verdict.APPLY)
    np.testing.assert_array_equal(cache.values, [1.5, 1.0])
    np.testing.assert_array_equal(came, [1.0, 2.0])
    assert cache.clock == 0
    np.testing.assert_array_equal(cache.refreshed(came, clock=1).values, came)


@pytest.mark.parametrize("verdict", [Verdict.DUPLICATE, Verdict.LATE])
def test_a_change_that_was_not_applied_makes_the_worker_read_again(verdict: Verdict) -> None:
    cache = Cache(staleness=5).refreshed(np.zeros(2), clock=3).pushed(np.ones(2), verdict)
    assert not cache.fresh_enough(3)


def test_a_change_must_fit_the_values() -> None:
    with pytest.raises(ValueError, match=r"shape \(1,\) to values of shape \(2,\)"):
        Cache(staleness=1).refreshed(np.zeros(2), clock=0).pushed(np.zeros(1), Verdict.APPLY)
    with pytest.raises(ValueError, match="read first"):
        Cache(staleness=1).pushed(np.zeros(1), Verdict.APPLY)
