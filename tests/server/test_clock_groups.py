"""Groups by speed: in step within, apart between."""

from __future__ import annotations

import json
import math

import pytest

from sparkdml.server.clocks import Ledger, Verdict
from sparkdml.server.groups import grouped
from sparkdml.server.rounds import Round


def test_a_group_ends_where_a_worker_is_ratio_times_slower_than_its_fastest() -> None:
    assert grouped([1.0, 4.0, 1.49, 1.5, 2.2, 4.1]) == [[0, 2], [3, 4], [1, 5]]
    assert grouped([3.0, 1.0, 2.0], ratio=2.0) == [[1], [0, 2]]
    assert grouped([2.0, 2.0, 2.0]) == [[0, 1, 2]]


@pytest.mark.parametrize("seconds", [[], [1.0, 0.0], [1.0, math.nan], [math.inf], [-1.0]])
def test_speeds_must_be_measured(seconds: list[float]) -> None:
    with pytest.raises(ValueError, match="seconds a clock of every worker"):
        grouped(seconds)


@pytest.mark.parametrize("ratio", [1.0, 0.0, math.nan])
def test_the_ratio_of_speeds_is_above_one(ratio: float) -> None:
    with pytest.raises(ValueError, match="it must be above 1"):
        grouped([1.0], ratio)


def pushed(ledger: Ledger, clock: int, *workers: int) -> None:
    for worker in workers:
        assert ledger.may_read(worker, clock)
        ledger.read(worker)
        assert ledger.push(worker, clock, 0) is Verdict.APPLY


def test_groups_have_rounds_of_their_own_and_do_not_wait_for_each_other() -> None:
    ledger = Ledger(4, 0, groups=[[1, 3], [0, 2]])
    ledger.read(0)
    pushed(ledger, 0, 3, 1)
    pushed(ledger, 1, 1)
    assert not ledger.may_read(1, 2)
    pushed(ledger, 1, 3)
    pushed(ledger, 2, 3)
    assert ledger.closed() == [Round(0, (1, 3)), Round(1, (1, 3))]
    assert ledger.minimum() == 0
    # the other group has taken two steps meanwhile; that of its own round is no delay
    assert ledger.delay(0, 0) == 2
    ledger.push(0, 0, 0)
    pushed(ledger, 0, 2)
    assert (ledger.delay(0, 0), ledger.delay(2, 0), ledger.delay(3, 2)) == (2, 0, 1)
    assert ledger.closed() == [Round(0, (0, 2))]


def test_a_group_is_split_once_speeds_are_known() -> None:
    ledger = Ledger(3, 0)
    pushed(ledger, 0, 0, 1, 2)
    pushed(ledger, 1, 0, 2)
    ledger.closed()
    ledger.split([[0, 2], [1]])
    # the pushes that were waiting for the slow worker are a round now
    assert ledger.closed() == [Round(1, (0, 2))]
    ledger.read(1)
    assert ledger.arrive(1, 0) == 1
    pushed(ledger, 2, 0, 2)
    assert ledger.delay(1, 1) == 1
    pushed(ledger, 1, 1)
    assert ledger.closed() == [Round(2, (0, 2)), Round(1, (1,))]
    restored = Ledger.restored(json.loads(json.dumps(ledger.state())))
    assert restored.groups == [[0, 2], [1]]
    assert restored.state() == ledger.state()


def test_groups_hold_each_worker_once_and_are_not_joined() -> None:
    ledger = Ledger(3, 0, groups=[[0, 1], [2]])
    with pytest.raises(ValueError, match="split, not joined"):
        ledger.split([[0], [1, 2]])
    with pytest.raises(ValueError, match="each worker from 0 to 2 must be in exactly one"):
        ledger.split([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match=r"backup_workers=1 with the group \[2\]"):
        Ledger(3, 0, 1, [[0, 1], [2]])
    with pytest.raises(ValueError, match="only staleness=0"):
        Ledger(3, 1).split([[0, 1], [2]])
