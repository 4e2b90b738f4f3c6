"""The ledger of clocks, by examples worked by hand."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sparkdml.server.clocks import ClockError, Ledger, Verdict
from sparkdml.server.rounds import Round

APPLY, DUPLICATE, LATE = Verdict.APPLY, Verdict.DUPLICATE, Verdict.LATE


def step(ledger: Ledger, worker: int, clock: int, attempt: int = 0) -> Verdict:
    """What a worker does in a clock: it reads and pushes."""
    assert ledger.may_read(worker, clock)
    ledger.read(worker)
    return ledger.push(worker, clock, attempt)


def test_bsp_reads_wait_for_the_round_which_lists_its_pushes_by_worker() -> None:
    ledger = Ledger(3, staleness=0)
    assert [ledger.arrive(worker, 0) for worker in range(3)] == [0, 0, 0]
    assert [step(ledger, worker, 0) for worker in (2, 0)] == [APPLY, APPLY]
    assert not ledger.may_read(2, 1)
    assert ledger.closed() == []
    assert step(ledger, 1, 0) is APPLY
    assert ledger.may_read(2, 1)
    assert not ledger.may_read(2, 2)
    assert ledger.closed() == [Round(0, (0, 1, 2))]
    assert ledger.closed() == []
    assert ledger.minimum() == 1


def test_ssp_workers_run_ahead_of_the_slowest_by_staleness_clocks_and_no_more() -> None:
    ledger = Ledger(2, staleness=2)
    for clock in range(3):
        assert step(ledger, 0, clock) is APPLY
    # clock 3 would need the other's push of clock 0
    assert not ledger.may_read(0, 3)
    assert step(ledger, 1, 0) is APPLY
    assert ledger.may_read(0, 3)
    assert not ledger.may_read(0, 4)
    assert ledger.minimum() == 1
    assert ledger.closed() == []
    assert ledger.counts.staleness == {0: 2, 1: 1, 2: 1}


def test_asp_workers_never_wait() -> None:
    ledger = Ledger(2, staleness=-1)
    assert [step(ledger, 0, clock) for clock in range(50)] == [APPLY] * 50
    assert ledger.minimum() == 0


def test_a_push_is_applied_once_whichever_attempt_brings_it() -> None:
    ledger = Ledger(2, staleness=3)
    step(ledger, 0, 0)
    step(ledger, 0, 1)
    assert ledger.arrive(0, 1) == 2
    assert ledger.push(0, 2, attempt=1) is APPLY
    assert ledger.push(0, 2, attempt=0) is DUPLICATE
    assert ledger.push(0, 0, attempt=1) is DUPLICATE
    assert ledger.push(0, 3, attempt=0) is APPLY
    assert ledger.arrive(0, 1) == 4
    counts = ledger.counts
    assert (counts.applied, counts.duplicate, counts.late, counts.attempts) == ((4, 0), (2, 0), (0, 0), (2, 0))


def test_a_clock_cannot_be_left_out() -> None:
    ledger = Ledger(2, staleness=5)
    step(ledger, 1, 0)
    before = ledger.state()
    with pytest.raises(ClockError, match=r"worker 1 \(attempt 4\) pushed clock 2, but 1 is due"):
        ledger.push(1, 2, attempt=4)
    assert ledger.state() == before


def test_a_push_into_a_round_that_has_not_begun_is_refused() -> None:
    ledger = Ledger(2, staleness=0)
    step(ledger, 0, 0)
    with pytest.raises(ClockError, match="round 0 is open"):
        ledger.push(0, 1, attempt=0)


def test_a_round_closes_without_the_backup_workers_and_stragglers_go_on_at_the_present_one() -> None:
    ledger = Ledger(3, staleness=0, backup_workers=1)
    step(ledger, 0, 0)
    assert ledger.closed() == []
    step(ledger, 2, 0)
    assert ledger.closed() == [Round(0, (0, 2))]
    step(ledger, 0, 1)
    assert ledger.push(1, 0, attempt=0) is LATE
    step(ledger, 2, 1)
    assert ledger.push(1, 0, attempt=1) is DUPLICATE
    assert ledger.arrive(1, 0) == 2
    assert step(ledger, 1, 2) is APPLY
    assert step(ledger, 0, 2) is APPLY
    assert ledger.closed() == [Round(1, (0, 2)), Round(2, (0, 1))]
    assert ledger.counts.late == (0, 1, 0)


def test_a_round_of_backup_workers_needs_a_push() -> None:
    ledger = Ledger(3, staleness=0, backup_workers=2)
    ledger.lose(0)
    ledger.lose(1)
    assert ledger.closed() == []
    assert ledger.minimum() == 0


@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("goes", [Ledger.lose, Ledger.leave])
def test_nobody_waits_for_the_lost_and_those_that_left(staleness: int, goes: Callable[[Ledger, int], None]) -> None:
    ledger = Ledger(3, staleness)
    for clock in range(staleness + 1):
        step(ledger, 0, clock)
        step(ledger, 2, clock)
    assert not ledger.may_read(0, staleness + 1)
    goes(ledger, 1)
    assert ledger.may_read(0, staleness + 1)
    assert ledger.minimum() == staleness + 1


def test_a_lost_worker_counts_with_what_it_pushed() -> None:
    ledger = Ledger(3, staleness=0)
    step(ledger, 1, 0)
    ledger.lose(1)
    step(ledger, 0, 0)
    assert ledger.closed() == []
    step(ledger, 2, 0)
    assert ledger.closed() == [Round(0, (0, 1, 2))]


def test_a_lost_worker_returns_to_the_open_round_under_bsp() -> None:
    ledger = Ledger(2, staleness=0)
    ledger.lose(1)
    for clock in range(4):
        step(ledger, 0, clock)
    assert [closed.workers for closed in ledger.closed()] == [(0,)] * 4
    assert ledger.arrive(1, 1) == 4
    step(ledger, 0, 4)
    assert not ledger.may_read(0, 5)
    step(ledger, 1, 4, attempt=1)
    assert ledger.closed() == [Round(4, (0, 1))]
    assert ledger.counts.staleness == {0: 6}


def test_a_lost_worker_returns_to_its_own_clock_under_ssp_and_is_waited_for() -> None:
    ledger = Ledger(2, staleness=1)
    step(ledger, 1, 0)
    ledger.lose(1)
    for clock in range(5):
        step(ledger, 0, clock)
    assert ledger.arrive(1, 1) == 1
    assert ledger.minimum() == 1
    assert not ledger.may_read(0, 5)
    for clock in range(1, 4):
        step(ledger, 1, clock, attempt=1)
    assert ledger.may_read(0, 5)


@pytest.mark.parametrize("sign", [lambda ledger: ledger.push(1, 0, 0), lambda ledger: ledger.read(1)])
def test_a_push_or_a_read_shows_that_a_worker_was_not_dead(sign: Callable[[Ledger], object]) -> None:
    ledger = Ledger(2, staleness=1)
    ledger.lose(1)
    for clock in range(5):
        step(ledger, 0, clock)
    assert ledger.may_read(0, 5)
    sign(ledger)
    assert not ledger.may_read(0, 5)


def test_a_copy_of_a_worker_that_has_left_learns_that_nothing_is_to_be_done() -> None:
    ledger = Ledger(2, staleness=0)
    for clock in range(2):
        step(ledger, 0, clock)
        step(ledger, 1, clock)
    ledger.leave(0)
    ledger.lose(0)
    assert ledger.push(0, 1, attempt=1) is DUPLICATE
    assert ledger.arrive(0, 1) == 2
    with pytest.raises(ClockError, match="has left"):
        ledger.push(0, 2, attempt=1)
    step(ledger, 1, 2)
    assert ledger.closed()[-1] == Round(2, (1,))


def test_with_nobody_live_nobody_is_waited_for() -> None:
    ledger = Ledger(2, staleness=1)
    step(ledger, 0, 0)
    step(ledger, 0, 1)
    ledger.leave(0)
    ledger.lose(1)
    assert ledger.minimum() == 2


def test_what_an_update_was_computed_from_does_not_get_staler_by_a_return_and_a_copy() -> None:
    ledger = Ledger(2, staleness=1)
    ledger.lose(1)
    for clock in range(4):
        step(ledger, 0, clock)
    ledger.read(0)
    ledger.arrive(1, 0)
    # a copy of worker 0 that is at clock 1 reads, with the minimum back at 0
    assert ledger.may_read(0, 1)
    ledger.read(0)
    ledger.push(0, 4, attempt=0)
    assert ledger.counts.staleness == {0: 5}


def test_delay_counts_the_pushes_of_others_since_the_read() -> None:
    ledger = Ledger(3, staleness=-1)
    ledger.read(0)
    step(ledger, 1, 0)
    step(ledger, 1, 1)
    step(ledger, 2, 0)
    assert ledger.delay(0, 0) == 3
    ledger.push(0, 0, attempt=0)
    assert ledger.delay(0, 0) == 3
    ledger.read(0)
    assert ledger.delay(0, 1) == 0
    # the read before its push of clock 0, then the pushes (2, 0) and (0, 0)
    assert ledger.delay(1, 2) == 2
    with pytest.raises(ClockError, match="clock 3 of worker 1, for which 2 is due"):
        ledger.delay(1, 3)


def test_pushes_of_one_round_do_not_delay_each_other() -> None:
    ledger = Ledger(2, staleness=0)
    step(ledger, 0, 0)
    step(ledger, 1, 0)
    assert [ledger.delay(worker, 0) for worker in range(2)] == [0, 0]


def test_a_restored_ledger_goes_on_and_refuses_those_that_were_ahead_of_it() -> None:
    ledger = Ledger(2, staleness=0)
    for clock in range(2):
        step(ledger, 0, clock)
        step(ledger, 1, clock)
    state = json.loads(json.dumps(ledger.state()))
    step(ledger, 0, 2)
    step(ledger, 1, 2)
    restored = Ledger.restored(state)
    assert restored.state() == state
    with pytest.raises(ClockError):
        restored.push(0, 3, attempt=0)
    assert restored.arrive(0, 0) == 2
    assert restored.closed() == [Round(0, (0, 1)), Round(1, (0, 1))]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Ledger(0, 0), "workers=0"),
        (lambda: Ledger(2, -2), "staleness=-2; it can be 0"),
        (lambda: Ledger(2, 0, -1), "backup_workers=-1"),
        (lambda: Ledger(2, 0, 2), r"backup_workers=2 with the group \[0, 1\]"),
        (lambda: Ledger(2, 1, 1), "only staleness=0 has rounds"),
        (lambda: Ledger(2, -1, groups=[[0], [1]]), "only staleness=0 has rounds"),
        (lambda: Ledger(2, 0).arrive(2, 0), "worker=2 is not known; workers are 0 to 1"),
        (lambda: Ledger(2, 0).may_read(-1, 0), "worker=-1 is not known"),
        (lambda: Ledger(2, 0).push(0, -1, 0), "clock=-1, attempt=0 of worker 0"),
        (lambda: Ledger(2, 0).arrive(0, -1), "attempt=-1"),
    ],
)
def test_wrong_arguments_are_named(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
