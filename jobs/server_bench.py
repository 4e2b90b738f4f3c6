"""The parameter server: push and pull, as one call and as two, by size and number of clients, beside bare echoes of the
same bytes taken in turn; and sparse rows a second by number of shards."""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import transports
from console import table

OURS = ("exchange", "push, pull")
_PATIENCE = 120.0


def race() -> tuple[dict[str, Any], str]:
    """All of it as figures and text, in a process of its own: clients are copies of the main program."""
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True)
    return {"messages": done.stdout.splitlines()}, done.stdout.rstrip()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 100_000, 1_000_000, 5_000_000], help="float32")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--transports", nargs="+", default=transports.available(), choices=transports.available())
    parser.add_argument("--repeats", type=int, default=30, help="of each call, in turn; fewer for large ones")
    parser.add_argument(
        "--shards", type=int, nargs="*", default=[1, 2, 4], help="for sparse rows; none to leave them out"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of sparse rows, for each number of shards")
    parser.add_argument("--rounds", type=int, default=3, help="how often numbers of shards take turns")
    options = parser.parse_args(argv)
    body = [["floats", "clients", "", "ms", "GB/s a client", f"x {options.transports[0]}", "%"]]
    for size in options.sizes:
        for clients in options.clients:
            body += _sizes(size, clients, options.transports, max(options.repeats * 10**6 // max(size, 10**6), 5))
    print(table(body))
    if options.shards:
        print(_rows(options.shards, options.seconds, options.rounds))
    return 0


# push + pull


def _sizes(size: int, clients: int, names: list[str], repeats: int) -> list[list[str]]:
    from sparkdml.server.launch import local

    with transports.echoes(names) as addresses, local(1, workers=clients) as servers:
        given = (addresses, servers.addresses, servers.security, size, repeats, clients)
        found = _clients(clients, _time, given)
    medians = {name: statistics.median(t for one in found for t in one[name]) for name in (*OURS, *names)}
    bare = medians[names[0]]
    return [
        [
            f"{size}",
            f"{clients}",
            name,
            f"{seconds * 1e3:.3f}",
            f"{8 * size / seconds / 1e9:.2f}",
            f"{seconds / bare:.2f}",
            f"{100 * bare / seconds:.0f}",
        ]
        for name, seconds in medians.items()
    ]


def _time(
    worker: int,
    barrier: Any,
    addresses: dict[str, str],
    shards: list[str],
    security: Any,
    size: int,
    repeats: int,
    clients: int,
) -> dict[str, list[float]]:
    """Seconds of each call; all clients make the same kind of call at the same time."""
    from sparkdml.server.client import Client, Push

    array = np.random.default_rng(worker).random(size, np.float32)
    with Client(shards, security) as c:
        c.create("w", size, dtype="<f4")
        clock = iter(range(10**9))

        def push_and_pull(array: np.ndarray) -> None:
            now = next(clock)
            c.push(worker, now, 0, {"w": Push(array)})
            c.pull({"w": None}, worker, now + 1)

        def exchange(array: np.ndarray) -> None:
            c.exchange(worker, next(clock), 0, {"w": Push(array)}, {"w": None})

        ours = dict(zip(OURS, (exchange, push_and_pull), strict=True))
        calls = ours | {name: transports.client(name, where) for name, where in addresses.items()}
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for repeat in range(repeats + 2):
            for name, call in calls.items():
                barrier.wait(_PATIENCE)
                started = time.perf_counter()
                call(array)
                if repeat >= 2:
                    seconds[name].append(time.perf_counter() - started)
    return seconds


# sparse rows

ROWS, COLUMNS, KEYS = 4_000, 32, 200_000
RULE = {"name": "adagrad", "step_size": 0.1, "l2": 1e-6}


def _rows(shards: Sequence[int], seconds: float, rounds: int) -> str:
    """On a shared machine, what shards could do shows in the CPU time that they needed and not in the rate alone."""
    from sparkdml.server.launch import local

    rates: dict[int, list[float]] = {count: [] for count in shards}
    cores: dict[int, list[float]] = {count: [] for count in shards}
    for _ in range(rounds):
        for count in shards:
            with local(count, workers=2) as servers:
                pids = [child.process.pid for child in servers.primaries]
                before = _cpu_seconds(pids)
                rates[count].append(sum(_clients(2, _push, (servers.addresses, servers.security, seconds))))
                cores[count].append((_cpu_seconds(pids) - before) / seconds)
    first = statistics.median(rates[shards[0]])
    body = [["shards", "rows a second", f"x {shards[0]}", "cores that shards got", "rows a second of a core"]]
    for count in shards:
        rate, got = statistics.median(rates[count]), statistics.median(cores[count])
        body.append([f"{count}", f"{rate:.0f}", f"{rate / first:.2f}", f"{got:.2f}", f"{rate / got:.0f}"])
    what = f"Updates of sparse rows ({COLUMNS} columns, {RULE['name']} with a penalty), 2 clients, {ROWS} rows a push"
    return f"{what}\n{table(body)}"


def _cpu_seconds(pids: Sequence[int]) -> float:
    import psutil

    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


def _push(worker: int, barrier: Any, shards: list[str], security: Any, seconds: float) -> float:
    """Rows a second."""
    from sparkdml.server.client import Client, Push
    from sparkdml.server.keys import Keys

    rng = np.random.default_rng(worker)
    sets = [Keys(np.sort(rng.choice(KEYS, ROWS, replace=False))) for _ in range(10)]
    update = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    with Client(shards, security) as c:
        c.create("rows", KEYS, COLUMNS, kind="rows", rule=RULE)
        for clock, keys in enumerate(sets):  # both ends know the keys, the server has the rows
            c.push(worker, clock, 0, {"rows": Push(update, keys)})
        barrier.wait(_PATIENCE)
        started, clock = time.perf_counter(), len(sets)
        while time.perf_counter() < started + seconds:
            c.push(worker, clock, 0, {"rows": Push(update, sets[clock % len(sets)])})
            clock += 1
        return (clock - len(sets)) * ROWS / (time.perf_counter() - started)


# clients


def _clients(count: int, work: Callable[..., Any], given: tuple[Any, ...]) -> list[Any]:
    """What ``work(worker, barrier, *given)`` returns in a process each."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(count), context.Queue()
    processes = [
        context.Process(target=_client, args=(worker, barrier, results, work, given), daemon=True)
        for worker in range(count)
    ]
    for process in processes:
        process.start()
    try:
        found = [results.get(timeout=_PATIENCE) for _ in processes]
    finally:
        for process in processes:
            process.terminate()
            process.join()
    return found


def _client(worker: int, barrier: Any, results: Any, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    results.put(work(worker, barrier, *given))


if __name__ == "__main__":
    sys.exit(main())
