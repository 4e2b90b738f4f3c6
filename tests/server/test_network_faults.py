"""Laws of a network that delays and cuts: what was acknowledged is there, once, and nobody waits without end."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from network import CUT, PASS, SWALLOW, Proxy
from parameter_servers import SECURITY, client, servers

from sparkdml.server.client import Client, Push
from sparkdml.server.clocks import Ledger
from sparkdml.server.keys import Keys
from sparkdml.server.serving import Server, Settings
from sparkdml.server.wire import ServerTimeoutError, ServerUnreachableError, connect

KEYS = Keys(np.array([1, 5, 800]))
PUSHES = 30


def flaky(seed: int, share: float, late: float = 0.0):
    """Cuts a share of the pieces, and delays the others by up to ``late`` seconds."""
    rng, lock = np.random.default_rng(seed), threading.Lock()

    def fault(upwards: bool, number: int) -> float:
        with lock:
            chance, delay = rng.random(2)
        return CUT if chance < share else late * delay

    return fault


def through(*proxies: Proxy, timeout: float = 20.0) -> Client:
    return Client([proxy.address for proxy in proxies], SECURITY, timeout)


def work(c: Client, worker: int, pushes: int = PUSHES) -> None:
    """As a worker of a fit does."""
    c.create("w", 50)
    c.create("r", 1000, 2, kind="rows", rule={"name": "adagrad", "step_size": 0.1})
    clock = c.arrive(worker, 0)
    while clock < pushes:
        read = c.pull({"w": None, "r": KEYS}, worker=worker, clock=clock)
        rng = np.random.default_rng([worker, clock])
        update = {"w": Push(np.ones(50)), "r": Push(rng.normal(size=(3, 2)) - read["r"], KEYS)}
        assert c.push(worker, clock, 0, update) == ["apply"] * 2
        clock += 1
    c.leave(worker)


def values(c: Client) -> dict[str, np.ndarray]:
    c.create("w", 50)
    c.create("r", 1000, 2, kind="rows", rule={"name": "adagrad", "step_size": 0.1})
    return c.pull({"w": None, "r": KEYS})


def trained(share: float, late: float) -> tuple[dict[str, np.ndarray], int]:
    """What two workers make of two shards in step, and how often their connections were cut."""
    with (
        servers(2, workers=2, staleness=0) as found,
        Proxy(found[0].listening.address, flaky(0, share, late)) as one,
        Proxy(found[1].listening.address, flaky(1, share, late)) as other,
        through(one, other) as first,
        through(one, other) as second,
    ):
        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(work, first, 0), threads.submit(work, second, 1)]:
                done.result(60)
        with client(found) as c:
            return values(c), one.cuts + other.cuts


def test_in_step_delays_and_cuts_that_heal_change_no_bit() -> None:
    calm, none = trained(0.0, 0.0)
    disturbed, cuts = trained(0.04, 0.004)
    assert none == 0
    assert cuts > 10
    for name, array in calm.items():
        np.testing.assert_array_equal(disturbed[name], array)


@pytest.mark.parametrize("way", [True, False], ids=["calls", "answers"])
def test_what_was_acknowledged_is_applied_once_whichever_way_it_was_cut(way: bool) -> None:
    with (
        servers(workers=1) as found,
        client(found) as calm,
        Proxy(found[0].listening.address, lambda up, n: CUT if up is way and n % 7 == 3 else PASS) as proxy,
        through(proxy) as c,
    ):
        c.create("w", 4)
        for clock in range(PUSHES):
            assert c.push(0, clock, 0, {"w": Push(np.ones(4))}) == ["apply"]
            c.axpy("w", "w", 0.0)
        assert proxy.cuts >= 5
        calm.create("w", 4)
        np.testing.assert_array_equal(calm.pull({"w": None})["w"], np.full(4, PUSHES))
        assert calm.status()[0]["tables"]["w"]["pushes"] == PUSHES


def test_between_a_primary_and_its_backup_cuts_that_heal_lose_nothing() -> None:
    with servers(workers=1) as (primary,), client([primary]) as c:
        c.create("w", 50)
        backup = Server(Ledger(1, -1), Settings(backup_of=primary.listening.address), SECURITY)
        with backup, Proxy(backup.listening.address, flaky(2, 0.0)) as proxy:
            backup._backup.caught_up = False  # type: ignore[union-attr]
            backup.shard.tables.clear()
            with connect(primary.listening.address, SECURITY, 5.0) as connection:
                connection.call("join", {"address": proxy.address})
            # a reply that is lost, then a change that is lost
            lost = {False: {7, 30}, True: {19, 44}}
            base = dict(proxy._counts)
            proxy.fault = lambda up, n: CUT if n - base[up] in lost[up] else PASS
            for clock in range(PUSHES):
                assert c.push(0, clock, 0, {"w": Push(np.ones(50))}) == ["apply"]
            assert proxy.cuts >= 2
            assert primary._primary.has_backup
            primary.close()
            with client([backup]) as other:
                other.create("w", 50)
                np.testing.assert_array_equal(other.pull({"w": None})["w"], np.full(50, PUSHES))
                assert other.push(0, PUSHES - 1, 0, {"w": Push(np.ones(50))}) == ["duplicate"]


def test_a_connection_that_is_cut_does_not_promote_the_backup() -> None:
    with (
        servers(workers=1) as (primary,),
        Server(Ledger(1, -1), Settings(backup_of=primary.listening.address), SECURITY) as backup,
        Proxy(primary.listening.address) as proxy,
        Client([f"{proxy.address}|{backup.listening.address}"], SECURITY, 5.0) as c,
    ):
        assert backup._backup is not None
        c.create("w", 4)
        proxy.fault = lambda up, n, first=proxy._counts[True]: CUT if up and n == first else PASS
        c.push(0, 0, 0, {"w": Push(np.ones(4))})
        assert proxy.cuts == 1
        assert not backup._backup.promoted
        proxy.fault = lambda up, n: CUT
        c.push(0, 1, 0, {"w": Push(np.ones(4))})
        assert backup._backup.promoted
        np.testing.assert_array_equal(c.pull({"w": None})["w"], np.full(4, 2.0))


def test_who_is_cut_off_hears_of_it_within_the_timeout_and_who_is_not_any_more_goes_on() -> None:
    with servers(workers=1) as found, Proxy(found[0].listening.address) as proxy, through(proxy, timeout=1.0) as c:
        c.create("w", 4)
        for fate, error in ((CUT, ServerUnreachableError), (SWALLOW, ServerTimeoutError)):
            proxy.fault = lambda up, n, fate=fate: fate
            began = time.monotonic()
            with pytest.raises(error, match=proxy.address):
                c.push(0, 0, 0, {"w": Push(np.ones(4))})
            assert time.monotonic() - began < 3.0
        end = time.monotonic() + 0.4
        proxy.fault = lambda up, n: CUT if time.monotonic() < end else PASS
        assert c.push(0, 0, 0, {"w": Push(np.ones(4))}) == ["apply"]
        np.testing.assert_array_equal(c.pull({"w": None})["w"], np.ones(4))


class SettingFaults:
    """A callback that lets the network be flaky after the first pass."""

    def __init__(self, *proxies: Proxy) -> None:
        self.proxies = proxies

    def __call__(self, history) -> None:
        for number, proxy in enumerate(self.proxies):
            proxy.fault = flaky(number, 0.01, 0.002)


def test_a_fit_in_step_over_a_flaky_network_ends_at_the_same_bits(make_frame, tmp_path) -> None:
    from sparkdml.classification import LogisticRegression

    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 6))
    frame = make_frame(X, (X[:, 0] - X[:, 3] + rng.standard_normal(200) > 0).astype(float))
    estimator = LogisticRegression(
        regParam=0.05, solver="sgd", optimizer="adam", miniBatchFraction=0.1, maxIter=4, tol=0.0, placement="server"
    )
    calm = estimator.fit(frame)
    (tmp_path / "token").write_text(SECURITY.token.hex())
    with (
        servers(2) as found,
        Proxy(found[0].listening.address) as one,
        Proxy(found[1].listening.address) as other,
    ):
        estimator = estimator._set(
            serverLaunch="external",
            serverAddresses=[one.address, other.address],
            serverTokenFile=str(tmp_path / "token"),
        )
        disturbed = estimator.setOnRound(SettingFaults(one, other)).fit(frame)
        assert one.cuts + other.cuts > 3
    assert disturbed.coefficients == calm.coefficients
    assert disturbed.intercept == calm.intercept
    assert disturbed.report.objective_history == calm.report.objective_history
