"""Clients and shards: what comes back is what was pushed, once, whole, and when the clocks allow it."""

from __future__ import annotations

import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parameter_servers import SECURITY, client, servers

from sparkdml.server.client import Client, Push
from sparkdml.server.keys import Keys
from sparkdml.server.routing import even
from sparkdml.server.shard import Room
from sparkdml.server.specs import Range
from sparkdml.server.wire import ServerRefusedError, ServerTimeoutError, connect

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_shards_together_are_one_table(count: int) -> None:
    with servers(count) as of, client(of) as c:
        c.create("vector", 10)
        c.create("matrix", 7, 3, dtype="<f4")
        c.create("rows", 1000, 2, kind="rows", bounds=[*even(500, count)[:-1], 1000])
        vector, matrix, rows = RNG.normal(size=10), RNG.normal(size=(7, 3)).astype("<f4"), RNG.normal(size=(4, 2))
        keys = Keys(np.array([2, 400, 600, 999]))
        assert c.arrive(0, 0) == 0
        verdicts = c.push(0, 0, 0, {"vector": Push(vector), "matrix": Push(matrix), "rows": Push(rows, keys)})
        assert verdicts == ["apply"] * count
        c.push(
            0, 1, 0, {"vector": Push(vector[3:8], Range(3, 8)), "matrix": Push(matrix[[0, 6]], Keys(np.array([0, 6])))}
        )
        vector[3:8] *= 2
        matrix[[0, 6]] *= 2
        found = c.pull({"vector": None, "matrix": Range(1, 7), "rows": Keys(np.array([2, 3, 600]))}, worker=0, clock=2)
        np.testing.assert_array_equal(found["vector"], vector)
        np.testing.assert_array_equal(found["matrix"], matrix[1:])
        np.testing.assert_array_equal(found["rows"], [rows[0], [0, 0], rows[2]])
        names, values = c.stored("rows")
        np.testing.assert_array_equal(names, keys.array)
        np.testing.assert_array_equal(values, rows)
        assert c.dot("vector", "vector") == pytest.approx(vector @ vector)
        assert c.norm("matrix", np.inf) == np.abs(matrix).max()
        assert c.norm("vector") == pytest.approx(np.linalg.norm(vector))
        assert c.norm("vector", 1.0) == pytest.approx(np.abs(vector).sum())
        top, sizes = c.top_k("vector", 4)
        np.testing.assert_array_equal(top, np.argsort(-np.abs(vector))[:4])
        np.testing.assert_array_equal(sizes, vector[top])
        c.create("gradient", 10)
        c.axpy("gradient", "vector", 2.0)
        c.scale("gradient", 0.5)
        c.step("vector", "gradient")
        np.testing.assert_allclose(c.pull({"vector": None})["vector"], 2 * vector)
        c.proximal("vector", 1.0, 0.1, 0.0)
        c.assign({"vector": Push(np.zeros(4), Range(2, 6))})
        assert not c.pull({"vector": Range(2, 6)})["vector"].any()
        c.drop("rows")
        with pytest.raises(ValueError, match="create"):
            c.pull({"rows": keys})


def test_a_push_is_applied_once_and_by_one_attempt() -> None:
    with servers(2) as of, client(of) as c:
        c.create("w", 4)
        c.arrive(0, 0)
        assert c.push(0, 0, 0, {"w": Push(np.ones(4))}) == ["apply", "apply"]
        assert c.push(0, 0, 0, {"w": Push(np.ones(4))}) == ["duplicate", "duplicate"]
        assert c.push(0, 0, 1, {"w": Push(np.full(4, 9.0))}) == ["duplicate", "duplicate"]
        assert c.arrive(0, 1) == 1
        np.testing.assert_array_equal(c.pull({"w": None})["w"], np.ones(4))
        told = c.status()[0]["workers"]["0"]
        assert (told["pushes_total{apply}"], told["pushes_total{duplicate}"]) == (1, 2)
        assert told["staleness_clocks_count"] == 1
        assert told["received_bytes_total"] == 3 * 16


def test_a_change_that_is_sent_again_is_carried_out_once() -> None:
    with servers() as of, client(of) as c, connect(of[0].listening.address, SECURITY, 5.0) as bare:
        c.create("w", 4)
        c.assign({"w": Push(np.ones(4))})
        double = {"function": "scale", "tables": ["w"], "numbers": {"a": 2.0}, "client": "x", "number": 1}
        for _ in range(3):
            bare.call("compute", double)
        np.testing.assert_array_equal(c.pull({"w": None})["w"], 2 * np.ones(4))
        bare.call("compute", {**double, "number": 2})
        with pytest.raises(ServerRefusedError, match="after call 2"):
            bare.call("compute", double)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_rounds_are_one_step_along_the_sum_in_the_order_of_workers(order: tuple[int, ...]) -> None:
    updates = RNG.normal(size=(3, 6))
    with servers(2, workers=3, staleness=0) as of, client(of) as c:
        c.create("w", 6, rule={"name": "adagrad", "step_size": 0.1})
        c.create("r", 100, kind="rows")
        for worker in order:
            mine = Keys(np.array([worker, worker + 1, 60]))
            c.push(worker, 0, 0, {"w": Push(updates[worker]), "r": Push(np.full(3, 1.0 + worker), mine)})
            if worker != order[-1]:
                assert not c.pull({"w": None})["w"].any()
        found = c.pull({"w": None, "r": Keys(np.array([0, 1, 2, 3, 60]))}, worker=0, clock=1)
        total = updates[0] + updates[1] + updates[2]
        np.testing.assert_array_equal(found["w"], -0.1 / (np.sqrt(total * total) + 1e-10) * total)
        np.testing.assert_array_equal(found["r"], [1.0, 3.0, 5.0, 3.0, 6.0])
        assert c.status()[0]["tables"]["w"]["pushes"] == 1


def test_a_pull_waits_until_its_clock_may_be_read_and_says_for_what_it_waited_in_vain() -> None:
    with servers(2, workers=2, staleness=1) as of, client(of) as fast, client(of) as slow:
        for c in (fast, slow):
            c.create("w", 4)
        for clock in range(2):
            fast.pull({"w": None}, worker=0, clock=clock, timeout=0.1)
            fast.push(0, clock, 0, {"w": Push(np.ones(4))})
        with pytest.raises(ServerTimeoutError, match=r"waited 0.05 s to read at clock 2, but the slowest is at 0"):
            fast.pull({"w": None}, worker=0, clock=2, timeout=0.05)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(fast.pull, {"w": None}, 0, 2)
            time.sleep(0.1)
            assert not waiting.done()
            slow.push(1, 0, 0, {"w": Push(np.ones(4))})
            np.testing.assert_array_equal(waiting.result(5)["w"], np.full(4, 3.0))
            waiting = threads.submit(fast.pull, {"w": None}, 0, 2)
            slow.lose(1)
            waiting.result(5)
        told = fast.status()[0]["workers"]["0"]
        assert told["wait_seconds_count"] == 1
        assert 0.05 < told["wait_seconds_sum"] < 5.0


def test_an_exchange_is_a_push_and_a_pull() -> None:
    keys = Keys(np.array([2, 70]))
    with servers(2, workers=2, staleness=0) as of, client(of) as one, client(of) as other:
        for c in (one, other):
            c.create("w", 4)
            c.create("r", 100, 2, kind="rows")

        def loop(c: Client, worker: int) -> list[np.ndarray]:
            found = []
            for clock in range(5):
                update = {"w": Push(np.full(4, 1.0 + worker)), "r": Push(np.ones((2, 2)), keys)}
                verdicts, values = c.exchange(worker, clock, 0, update, {"w": None, "r": keys})
                assert verdicts == ["apply"] * 2
                found += [values["w"], values["r"]]
            return found

        with ThreadPoolExecutor(2) as threads:
            both = [threads.submit(loop, *given).result for given in ((one, 0), (other, 1))]
            for found in (result(10) for result in both):
                for clock in range(5):
                    np.testing.assert_array_equal(found[2 * clock], np.full(4, 3.0 * (clock + 1)))
                    np.testing.assert_array_equal(found[2 * clock + 1], np.full((2, 2), 2.0 * (clock + 1)))
        with pytest.raises(ServerTimeoutError):
            one.exchange(0, 5, 0, {"w": Push(np.ones(4))}, {"w": None}, timeout=0.05)
        assert one.push(0, 5, 0, {"w": Push(np.ones(4))}) == ["duplicate"] * 2
        server = of[0].shard
        assert server.keys.misses == 0


def test_a_server_that_ends_lets_nobody_wait() -> None:
    with servers(1, workers=2, staleness=0) as (server,), client([server]) as c:
        c.create("w", 4)
        c.push(0, 0, 0, {"w": Push(np.ones(4))})
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(c.pull, {"w": None}, 0, 1)
            time.sleep(0.1)
            started = time.monotonic()
            server.close()
            with pytest.raises((ServerRefusedError, ConnectionError, RuntimeError)):
                waiting.result(5)
            assert time.monotonic() - started < 2.0


def test_a_pull_sees_all_of_a_push_or_nothing() -> None:
    size, pushes = 200_000, 60
    with servers(workers=2) as of, client(of) as c, client(of) as other:
        for each in (c, other):
            each.create("w", size)
        over = threading.Event()
        torn = []

        def look() -> None:
            while not over.is_set():
                found = other.pull({"w": None})["w"]
                torn.extend(found[found != found[0]][:1])

        looking = threading.Thread(target=look)
        looking.start()
        for clock in range(pushes):
            c.push(0, clock, 0, {"w": Push(np.ones(size))})
        over.set()
        looking.join()
        assert not torn
        assert c.pull({"w": Range(0, 1)})["w"] == [pushes]


def test_many_clients_at_once_lose_nothing() -> None:
    workers, pushes = 4, 25
    with servers(2, workers=workers) as of:

        def work(worker: int) -> None:
            rng = np.random.default_rng(worker)
            with client(of) as c:
                c.create("w", 50)
                c.create("r", 10**9, 2, kind="rows")
                for clock in range(pushes):
                    keys = Keys(np.unique(rng.integers(0, 10**9, 20)))
                    c.push(worker, clock, 0, {"w": Push(np.ones(50)), "r": Push(np.ones((len(keys), 2)), keys)})
                    c.pull({"w": Range(10, 40), "r": keys})

        with ThreadPoolExecutor(workers) as threads:
            list(threads.map(work, range(workers)))
        with client(of) as c:
            c.create("w", 50)
            c.create("r", 10**9, 2, kind="rows")
            np.testing.assert_array_equal(c.pull({"w": None})["w"], np.full(50, workers * pushes))
            assert c.stored("r")[1].sum() == pytest.approx(2 * workers * pushes * 20, rel=0.01)


def test_keys_are_sent_once_and_again_when_they_are_forgotten() -> None:
    with servers(room=Room(2**20, keys=4000)) as of, client(of) as c:
        c.create("w", 1000)
        keys = Keys(np.arange(0, 1000, 4))  # 2000 bytes

        def received() -> int:
            return c.status()[0]["workers"]["0"]["received_bytes_total"]

        c.push(0, 0, 0, {"w": Push(np.ones(250), keys)})
        first = received()
        c.push(0, 1, 0, {"w": Push(np.ones(250), keys)})
        assert (first, received() - first) == (4000, 2000)
        for start in (1, 2, 3):
            c.pull({"w": Keys(np.arange(start, 1000, 4))})
        c.push(0, 2, 0, {"w": Push(np.ones(250), keys)})
        np.testing.assert_array_equal(c.pull({"w": keys})["w"], np.full(250, 3.0))
        assert of[0].shard.keys.bytes <= 4000
        assert of[0].shard.keys.misses == 1


def test_a_table_is_what_it_was_created_as() -> None:
    with servers() as of, client(of) as c, client(of) as other:
        c.create("w", 10)
        other.create("w", 10)
        with pytest.raises(ServerRefusedError, match="drop it first"):
            other.create("w", 11)
        with pytest.raises(ServerRefusedError, match="take one of add"):
            c.create("v", 10, rule={"name": "sdg"})
        with pytest.raises(ServerRefusedError, match="more shards"):
            c.create("v", 2**50)
        with pytest.raises(ValueError, match="bounds"):
            c.create("v", 10, bounds=[0, 9])
        with pytest.raises(ServerRefusedError, match="floats of shape"):
            c.push(0, 0, 0, {"w": Push(np.ones((10, 2)))})
        with pytest.raises(ServerRefusedError, match="worker"):
            c.push(7, 0, 0, {"w": Push(np.ones(10))})
        assert c.push(0, 0, 0, {"w": Push(np.ones(10))}) == ["apply"]  # the refused one was no push


def test_a_snapshot_is_all_of_it(tmp_path) -> None:
    keys = Keys(np.array([5, 70]))

    def start(c: Client) -> None:
        c.create("w", 6, rule={"name": "adam", "l2": 0.1})
        c.create("r", 100, 2, kind="rows", rule={"name": "ftrl", "step_size": 0.5, "l1": 0.1})

    def go_on(c: Client, clock: int) -> None:
        c.push(1, clock, 0, {"w": Push(np.arange(6.0)), "r": Push(np.ones((2, 2)), keys)})
        for worker in (0, 1):
            c.push(worker, clock + 1, 0, {"w": Push(np.ones(6), Range(0, 6)), "r": Push(np.ones((2, 2)), keys)})

    with servers(workers=2, staleness=0, snapshots=str(tmp_path)) as of, client(of) as c:
        start(c)
        go_on_with = {"w": Push(np.ones(3), Range(1, 4)), "r": Push(np.ones((2, 2)), keys)}
        for clock in range(3):
            c.push(0, clock, 0, go_on_with)
            if clock < 2:
                c.push(1, clock, 0, go_on_with)
        connect(of[0].listening.address, SECURITY, 5.0).call("snapshot", {"name": "half.way"})
        go_on(c, 2)
        expected = c.pull({"w": None, "r": keys}, 0, 4)
        for wrong in ("../x", ".hidden", "", "a/b"):
            with pytest.raises(ServerRefusedError, match="letters"):
                connect(of[0].listening.address, SECURITY, 5.0).call("snapshot", {"name": wrong})
    with servers(workers=2, staleness=0, snapshots=str(tmp_path), restore="half.way") as of, client(of) as c:
        start(c)
        assert (c.arrive(0, 1), c.arrive(1, 1)) == (3, 2)
        assert of[0].shard.pending
        go_on(c, 2)
        for name, values in c.pull({"w": None, "r": keys}, 0, 4).items():
            np.testing.assert_array_equal(values, expected[name])
    assert [path.name for path in tmp_path.iterdir()] == ["half.way"]
    whole = (tmp_path / "half.way").read_bytes()
    (tmp_path / "half.way").write_bytes(whole[:-20])
    with pytest.raises(FileNotFoundError), servers(snapshots=str(tmp_path), restore="half.way"):
        pass


def test_who_listens_to_the_network_without_tls_is_warned(caplog) -> None:
    with servers(host="127.0.0.1"):
        assert not caplog.records
    with servers(host="0.0.0.0"):
        assert "unencrypted" in caplog.text


# what a client with the token, and without sense, sends

NAMES = st.sampled_from(["w", "r", "x", "", 3, None])
NUMBERS = st.integers(-2, 12) | st.floats() | st.sampled_from([2**70, 10**400, None, "1", True])
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "table": NAMES,
        "range": st.lists(NUMBERS, max_size=3) | NUMBERS,
        "keys": st.booleans(),
        "digest": st.text(max_size=3) | NUMBERS,
        "step_size": NUMBERS,
    },
)
SPECS = st.fixed_dictionaries(
    {}, optional={n: NUMBERS | NAMES for n in ("name", "kind", "dtype", "columns", "start", "stop", "rule", "else")}
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "client": st.sampled_from(["c", 1]),
        "number": NUMBERS,
        "worker": NUMBERS,
        "clock": NUMBERS,
        "attempt": NUMBERS,
        "wait": st.just(0.0) | st.sampled_from(["", float("inf"), float("nan"), -1.0]),
        "parts": st.lists(PARTS | NUMBERS, max_size=2) | NUMBERS,
        "function": st.sampled_from(["axpy", "dot", "norm", "scale", "proximal", "step", "top_k", "eval", 1]),
        "tables": st.lists(NAMES, max_size=2) | NUMBERS,
        "numbers": st.dictionaries(st.sampled_from(["a", "k", "order", "b"]), NUMBERS, max_size=2) | NUMBERS,
        "spec": SPECS | NUMBERS,
        "table": NAMES,
        "name": NAMES,
        "pushed": NUMBERS,
        "pull": st.fixed_dictionaries({"parts": st.lists(PARTS, max_size=2)}) | NUMBERS,
    },
)
ARRAYS = st.lists(
    st.sampled_from([np.ones(3, np.int64), np.array([1, 2]), np.array([[1.0]]), np.ones(0), np.array([5, 1])]),
    max_size=3,
)


@pytest.fixture(scope="module")
def patient():
    with servers(room=Room(2**20, 2**12)) as (server,), connect(server.listening.address, SECURITY, 5.0) as connection:
        with client([server]) as c:
            c.create("w", 10)
            c.create("r", 10, 2, kind="rows")
        yield server, connection


@settings(max_examples=150)
@given(
    op=st.sampled_from(
        ["create", "arrive", "exchange", "push", "assign", "pull", "compute", "drop", "snapshot", "join", "load", "x"]
    ),
    header=HEADERS,
    arrays=ARRAYS,
)
def test_senseless_calls_are_refused_and_none_breaks_a_server(patient, op, header, arrays) -> None:
    server, connection = patient
    before = {n: (t.count, t.values.tobytes()) for n, t in server.shard.tables.items()}
    with suppress(ServerTimeoutError):
        try:
            connection.call(op, {"client": secrets.token_hex(4), "number": 1, **header}, arrays)
        except ServerRefusedError:
            assert {n: (t.count, t.values.tobytes()) for n, t in server.shard.tables.items()} == before
    assert not server.listening.faults["failed call"]
    assert "pid" in connection.call("status", {})[0]
    if not {"w", "r"} <= server.shard.tables.keys():
        with client([server]) as c:
            c.create("w", 10)
            c.create("r", 10, 2, kind="rows")
