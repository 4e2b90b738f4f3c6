"""Backups: what was acknowledged survives the primary, and nothing is applied twice."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from parameter_servers import SECURITY, client, servers

from sparkdml.server.client import Client, Push
from sparkdml.server.clocks import Ledger
from sparkdml.server.keys import Keys
from sparkdml.server.launch import local
from sparkdml.server.serving import Server, Settings
from sparkdml.server.specs import Range
from sparkdml.server.wire import ServerRefusedError, ServerUnreachableError, connect

KEYS = Keys(np.array([1, 5, 800]))


def pair(primary: Server, backup: Server, timeout: float = 10.0) -> Client:
    return Client([f"{primary.listening.address}|{backup.listening.address}"], SECURITY, timeout)


def backup_of(primary: Server, workers: int = 1, staleness: int = -1) -> Server:
    return Server(Ledger(workers, staleness), Settings(backup_of=primary.listening.address), SECURITY)


def test_a_backup_is_the_same_whenever_it_joins() -> None:
    with servers(workers=2, staleness=0) as (primary,), client([primary]) as c:
        c.create("w", 20, rule={"name": "adam", "l2": 0.1})
        c.create("r", 1000, 2, kind="rows", rule={"name": "ftrl", "l1": 0.1})
        c.create("gone", 3)

        def push(worker: int, clock: int) -> None:
            update = np.random.default_rng([worker, clock]).normal(size=(3, 2))
            c.push(worker, clock, 0, {"w": Push(update[:, 0], Range(clock, clock + 3)), "r": Push(update, KEYS)})

        push(0, 0)
        push(1, 0)
        push(1, 1)  # an open round
        with backup_of(primary, workers=2, staleness=0) as backup, pair(primary, backup) as both:
            assert primary.shard.tables.keys() == backup.shard.tables.keys()
            for worker, clock in ((0, 1), (1, 2), (0, 2), (0, 3)):
                push(worker, clock)
            c.scale("w", 0.5)
            c.assign({"w": Push(np.ones(2), Range(0, 2))})
            c.drop("gone")
            c.create("new", 20)
            c.push(1, 3, 0, {"r": Push(np.ones((3, 2)), KEYS)})
            for name, one in primary.shard.tables.items():
                np.testing.assert_array_equal(one.values, backup.shard.tables[name].values)
            assert {**primary.shard.ledger.state(), "histogram": 0}.keys() == backup.shard.ledger.state().keys()
            both.create("r", 1000, 2, kind="rows", rule={"name": "ftrl", "l1": 0.1})
            expected = both.pull({"r": KEYS})["r"]
            primary.close()
            np.testing.assert_array_equal(both.pull({"r": KEYS})["r"], expected)
            assert both.push(1, 3, 0, {"r": Push(np.ones((3, 2)), KEYS)}) == ["duplicate"]
            assert both.push(1, 4, 0, {"r": Push(np.ones((3, 2)), KEYS)}) == ["apply"]


def test_a_backup_that_joins_amid_pushes_misses_none() -> None:
    with servers(workers=1) as (primary,), client([primary]) as c:
        c.create("w", 100_000)
        over = threading.Event()

        def push() -> int:
            clock = 0
            while not over.is_set():
                c.push(0, clock, 0, {"w": Push(np.ones(100_000))})
                clock += 1
            return clock

        with ThreadPoolExecutor(1) as threads:
            pushed = threads.submit(push)
            with backup_of(primary) as backup:
                over.set()
                count = pushed.result(10)
                assert primary._primary.has_backup
                np.testing.assert_array_equal(backup.shard.tables["w"].values[:, 0], np.full(100_000, count))
                assert backup.shard.ledger.minimum() == count


def test_a_primary_goes_on_alone_and_takes_another_backup() -> None:
    with servers() as (primary,), client([primary]) as c:
        c.create("w", 4)
        with backup_of(primary):
            c.push(0, 0, 0, {"w": Push(np.ones(4))})
        assert c.push(0, 1, 0, {"w": Push(np.ones(4))}) == ["apply"]
        assert not primary._primary.has_backup
        with backup_of(primary) as other:
            c.push(0, 2, 0, {"w": Push(np.ones(4))})
            np.testing.assert_array_equal(other.shard.tables["w"].values[:, 0], np.full(4, 3.0))


def test_a_primary_whose_backup_was_promoted_answers_nobody() -> None:
    with servers() as (primary,), backup_of(primary) as backup, client([primary]) as left, client([backup]) as right:
        left.create("w", 4)
        right.create("w", 4)  # somebody could not reach the primary
        assert backup.listening.faults == {}
        with pytest.raises(ServerRefusedError, match="taken this server's place") as refused:
            left.push(0, 0, 0, {"w": Push(np.ones(4))})
        assert refused.value.kind == "superseded"
        with pytest.raises(ServerRefusedError):
            left.pull({"w": None})
        assert right.push(0, 0, 0, {"w": Push(np.ones(4))}) == ["apply"]
        np.testing.assert_array_equal(right.pull({"w": None})["w"], np.ones(4))
        with pair(primary, backup) as both:
            both.create("w", 4)
            assert both.push(0, 0, 0, {"w": Push(np.ones(4))}) == ["duplicate"]


def test_a_backup_that_has_not_caught_up_is_no_primary() -> None:
    with servers() as (primary,):
        address = primary.listening.address
    with pytest.raises(ServerUnreachableError):
        Server(Ledger(1, -1), Settings(backup_of=address), SECURITY)


@pytest.mark.fault
def test_a_killed_primary_loses_nothing_that_was_acknowledged() -> None:
    workers, pushes = 2, 60
    with local(1, workers=workers, replicas=1) as found:
        addresses = found.addresses
        amid = threading.Barrier(workers + 1)

        def start(c: Client) -> Client:
            c.create("w", 100)
            c.create("r", 1000, 2, kind="rows")
            return c

        def work(worker: int) -> None:
            with Client(addresses, found.security, 10.0) as c:
                start(c)
                for clock in range(pushes):
                    update = {"w": Push(np.ones(100)), "r": Push(np.ones((3, 2)), KEYS)}
                    assert c.push(worker, clock, 0, update) == ["apply"]
                    if clock == 10:
                        amid.wait(20)

        def check() -> None:
            with found.client() as c:
                values = start(c).pull({"w": None, "r": KEYS})
            np.testing.assert_array_equal(values["w"], np.full(100, workers * pushes))
            np.testing.assert_array_equal(values["r"], np.full((3, 2), workers * pushes))

        with ThreadPoolExecutor(workers) as threads:
            working = [threads.submit(work, worker) for worker in range(workers)]
            amid.wait(20)
            found.primaries[0].process.kill()
            for one in working:
                one.result(30)
        found.replace_backup(0)
        check()
        found.primaries[0].process.kill()
        found.primaries[0].process.wait()
        check()  # by the new backup


def test_replication_is_for_those_with_the_token_and_for_backups() -> None:
    with servers() as (primary,), connect(primary.listening.address, SECURITY, 5.0) as connection:
        for op in ("load", "loaded", "replicate"):
            with pytest.raises(ServerRefusedError, match="nothing that this server does"):
                connection.call(op, {})
