"""Fits that have servers one after another, and states that they go on from."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from parameter_servers import SECURITY, servers

from sparkdml.server.client import Client, Push
from sparkdml.server.keys import Keys
from sparkdml.server.rules import rule
from sparkdml.server.tenancy import SILENCE_SECONDS, Tenancy
from sparkdml.server.wire import ServerRefusedError
from sparkdml.server.wire.errors import RefusedCallError

RULES = [
    {"name": "add"},
    {"name": "momentum", "step_size": 0.1, "l1": 0.01},
    {"name": "adam", "step_size": 0.1, "l2": 0.1},
    {"name": "adagrad", "step_size": 0.1, "stale": "adaptively-compensated:0.5", "workers": 1},
    {"name": "adagrad", "step_size": 0.1, "stale": "adaptive-revision", "workers": 1},
]


def of(fit: str, found, timeout: float = 10.0) -> Client:
    return Client([server.listening.address for server in found], SECURITY, timeout, fit)


def test_fits_come_one_after_another_and_clocks_and_tables_begin_anew() -> None:
    with servers(2, workers=1) as found:
        for fit, workers, clock in (("one", 2, 0), ("two", 3, 7)):
            with of(fit, found) as c:
                c.begin(workers, staleness=0, clock=clock)
                c.create("w", 10)
                for worker in range(workers):
                    assert c.arrive(worker, 0) == clock
                    c.push(worker, clock, 0, {"w": Push(np.ones(10))})
                np.testing.assert_array_equal(c.pull({"w": None})["w"], np.full(10, workers))
                numbers = [{name for name in status["workers"] if name != "none"} for status in c.status()]
                assert numbers == [{str(worker) for worker in range(workers)}] * 2
                c.end()
                assert [status["tables"] for status in c.status()] == [{}, {}]
                assert [status["table_bytes"] for status in c.status()] == [0, 0]


def test_a_fit_that_is_alive_is_not_disturbed_and_one_that_is_over_disturbs_nobody() -> None:
    with servers(workers=1) as found, of("one", found) as one, of("two", found) as two:
        one.begin(1)
        one.create("w", 3)
        with pytest.raises(ServerRefusedError, match="fit 'one' has this server") as refused:
            two.begin(1)
        assert refused.value.kind == "busy"
        with pytest.raises(ServerRefusedError, match="not that of fit 'two'"):
            two.create("w", 3)
        two.begin(1, instead_of="one")
        two.create("w", 3)
        for call in (lambda: one.push(0, 0, 0, {"w": Push(np.ones(3))}), lambda: one.pull({"w": None}), one.end):
            with pytest.raises(ServerRefusedError, match="fit 'two' has it"):
                call()
        np.testing.assert_array_equal(two.pull({"w": None})["w"], np.zeros(3))


def test_who_waits_for_a_clock_of_an_ended_fit_is_sent_home() -> None:
    with servers(workers=1) as found, of("one", found) as one, of("two", found) as two:
        one.begin(2, staleness=0)
        one.create("w", 3)
        one.push(0, 0, 0, {"w": Push(np.ones(3))})
        told: list[ServerRefusedError] = []

        def wait() -> None:
            try:
                one.pull({"w": None}, worker=0, clock=1, timeout=20.0)
            except ServerRefusedError as error:
                told.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        two.begin(2, staleness=0, instead_of="one")
        thread.join(5.0)
        assert [error.kind for error in told] == ["other fit"]


def test_who_waits_for_a_part_of_the_fit_that_is_lost_is_told_so() -> None:
    with servers(workers=1) as found, of("one", found) as one, of("one", found) as other, of("two", found) as two:
        one.begin(2, staleness=0)
        one.create("w", 3)
        one.push(0, 0, 0, {"w": Push(np.ones(3))})
        threading.Timer(0.2, lambda: other.fail("worker 1 has lost its way")).start()
        with pytest.raises(ServerRefusedError, match="worker 1 has lost its way") as refused:
            one.pull({"w": None}, worker=0, clock=1, timeout=20.0)
        assert refused.value.kind == "failed"
        with pytest.raises(ServerRefusedError, match="lost its way"):
            one.pull({"w": None})
        one.end()
        two.begin(1)
        two.create("w", 3)


def test_a_fit_that_is_silent_for_long_is_taken_for_dead() -> None:
    now = [0.0]
    tenancy = Tenancy(lambda: now[0])
    tenancy.begin("one", "")
    now[0] += SILENCE_SECONDS - 1.0
    with tenancy.calling("pull", "one"):
        now[0] += 10 * SILENCE_SECONDS
        with pytest.raises(RefusedCallError, match="busy|has this server"):
            tenancy.begin("two", "")
    now[0] += SILENCE_SECONDS - 1.0
    with pytest.raises(RefusedCallError):
        tenancy.begin("two", "")
    now[0] += 2.0
    tenancy.begin("two", "")
    with pytest.raises(RefusedCallError, match="not that of fit 'one'"), tenancy.calling("pull", "one"):
        pass


def stepped(c: Client, chosen: dict, first: int, last: int) -> None:
    keys = Keys(np.array([2, 5, 30]))
    for clock in range(first, last):
        c.pull({"w": None, "r": keys}, worker=0, clock=clock)
        rng = np.random.default_rng(clock)
        c.push(0, clock, 0, {"w": Push(rng.normal(size=12)), "r": Push(rng.normal(size=(3, 2)), keys)})


def made(c: Client, chosen: dict) -> None:
    c.create("w", 12, rule=chosen)
    c.create("r", 40, 2, kind="rows", rule=chosen)


@pytest.mark.parametrize("chosen", RULES, ids=lambda chosen: chosen.get("stale", chosen["name"]))
def test_a_state_goes_on_at_other_servers_as_if_nothing_had_been(chosen: dict) -> None:
    with servers(2, workers=1) as old, servers(3, workers=1) as new, of("one", old) as one, of("two", new) as two:
        one.begin(1)
        made(one, chosen)
        stepped(one, chosen, 0, 4)
        two.begin(1, clock=4)
        made(two, chosen)
        for name in ("w", "r"):
            state = one.state(name)
            assert state.count == 4
            lasting = rule(**chosen).lasting
            assert lasting is None or len(state.slots) == lasting
            two.restore(name, state)
        for c in (one, two):
            stepped(c, chosen, 4, 8)
        for name in ("w", "r"):
            ours, theirs = one.state(name), two.state(name)
            order, others = np.argsort(ours.keys), np.argsort(theirs.keys)
            np.testing.assert_array_equal(ours.values[order], theirs.values[others])
            for slot, other in zip(ours.slots, theirs.slots, strict=True):
                np.testing.assert_array_equal(slot[order], other[others])


def test_what_is_no_state_of_a_table_is_refused_and_changes_nothing() -> None:
    with servers(workers=1) as found, of("one", found) as c:
        c.begin(1)
        c.create("w", 4, rule={"name": "adagrad"})
        link, keys, count = c._links[0], np.arange(4), np.array([3])
        ones = np.ones((4, 1))
        for arrays in (
            [keys],
            [keys, ones[:3], count],
            [keys + 1, ones, count],
            [np.zeros(4, np.int64), ones, count],
            [keys, ones, count, ones, ones],
            [keys, np.ones((4, 1), np.int64), count],
        ):
            with pytest.raises(ServerRefusedError):
                link.change("restore", {"table": "w"}, arrays)
        assert c.status()[0]["tables"]["w"]["pushes"] == 0
        np.testing.assert_array_equal(c.pull({"w": None})["w"], np.zeros(4))
