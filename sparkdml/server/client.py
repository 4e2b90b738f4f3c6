"""The client of all shards: cuts calls by rows, makes them at the same time, and puts answers together."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from sparkdml.server.link import Link
from sparkdml.server.routing import Push, Routes, Rows, even
from sparkdml.server.specs import TableSpec
from sparkdml.server.table_state import TableState
from sparkdml.server.wire import Header, Security


class Client:
    """Of the shards at ``addresses``; of several addresses ``a|b`` the first that answers is taken. Use ``with``.

    Servers refuse its calls unless ``fit`` is the one that has begun there; none has on servers that nobody shares.

    Shard s has the rows ``bounds[s]`` to ``bounds[s + 1] - 1`` of a table. Calls of several threads take turns at each
    shard. All calls raise ServerUnreachableError, ServerTimeoutError and ServerRefusedError.
    """

    def __init__(self, addresses: Sequence[str], security: Security, timeout: float = 60.0, fit: str = "") -> None:
        name = secrets.token_hex(8)
        self.timeout = timeout
        self._links = [Link(address.split("|"), security, timeout, name, fit) for address in addresses]
        self._threads = ThreadPoolExecutor(len(addresses), "shard") if len(addresses) > 1 else None
        self._routes = Routes(len(addresses))
        #: Cutting and encoding what was sent so far, decoding and placing what came.
        self.packing_seconds = 0.0

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
        for link in self._links:
            link.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # fits

    def begin(
        self, workers: int, staleness: int = -1, backup_workers: int = 0, clock: int = 0, instead_of: str = ""
    ) -> None:
        """This client's fit begins: no tables, and workers at ``clock`` (see :class:`~.clocks.Ledger`).

        Refused while another fit is alive there, but for ``instead_of``.
        """
        clocks = {"workers": workers, "staleness": staleness, "backup_workers": backup_workers, "clock": clock}
        self._each(lambda _, link: link.change("begin", {**clocks, "instead_of": instead_of}))

    def fail(self, why: str) -> None:
        """Have all servers that can be reached refuse further calls of this fit, with the reason."""
        self._each(lambda _, link: link.change("fail", {"why": why}))

    def end(self) -> None:
        """The fit is over: its tables go, and others may begin."""
        self._each(lambda _, link: link.change("end", {}))

    def split(self, groups: Sequence[Sequence[int]]) -> None:
        """Have these groups of workers rounds of their own (:meth:`~.clocks.Ledger.split`)."""
        self._each(lambda _, link: link.change("split", {"groups": [list(group) for group in groups]}))

    # tables

    def create(
        self,
        name: str,
        rows: int,
        columns: int = 0,
        kind: str = "dense",
        dtype: str = "<f8",
        rule: Mapping[str, Any] | None = None,
        bounds: Sequence[int] | None = None,
    ) -> None:
        """Have a table (:class:`~.specs.TableSpec`) of ``rows`` rows, cut evenly unless ``bounds`` are given.

        Every client says this before it uses the table; it must be the same for all.
        """
        cut = np.asarray(even(rows, len(self._links)) if bounds is None else bounds, np.int64)
        if len(cut) != len(self._links) + 1 or cut[0] != 0 or cut[-1] != rows or (np.diff(cut) < 0).any():
            raise ValueError(f"bounds={cut.tolist()}; {len(self._links) + 1} numbers from 0 to rows={rows} are due")
        spec = TableSpec(name, kind, dtype, columns, 0, rows, dict(rule or {"name": "add"}))

        def make(shard: int, link: Link) -> None:
            own = replace(spec, start=int(cut[shard]), stop=int(cut[shard + 1]))
            link.change("create", {"spec": vars(own)})

        self._each(make)
        self._routes.add(spec, cut)

    def drop(self, name: str) -> None:
        self._each(lambda _, link: link.change("drop", {"table": name}))
        self._routes.remove(name)

    # clocks

    def arrive(self, worker: int, attempt: int) -> int:
        """The clock at which the worker begins or goes on: the least of the shards'."""
        answers = self._each(lambda _, link: link.change("arrive", {"worker": worker, "attempt": attempt}))
        return min(int(answer["clock"]) for answer, _ in answers)

    def leave(self, worker: int) -> None:
        self._each(lambda _, link: link.change("leave", {"worker": worker}))

    def lose(self, worker: int) -> None:
        """Nobody shall wait for the worker until it is heard of again."""
        self._each(lambda _, link: link.change("lose", {"worker": worker}))

    def push(self, worker: int, clock: int, attempt: int, updates: Mapping[str, Push]) -> list[str]:
        """The worker's updates of a clock, to every shard, whether it has rows of them or not.

        Of each shard ``apply``, ``duplicate`` or ``late``. Atomic within a shard's part of a table.
        """
        header = {"worker": worker, "clock": clock, "attempt": attempt}
        with self._packing():
            told = self._routes.pushes(updates)
        answers = self._each(lambda shard, link: link.parts("push", (header, told[shard])))
        return [str(answer["verdict"]) for answer, _ in answers]

    def exchange(
        self,
        worker: int,
        clock: int,
        attempt: int,
        updates: Mapping[str, Push],
        rows: Mapping[str, Rows],
        timeout: float | None = None,
    ) -> tuple[list[str], dict[str, np.ndarray]]:
        """:meth:`push` for ``clock`` and :meth:`pull` for the next one, in one message there and one back.

        If the wait is in vain, the push has been made: pull again.
        """
        waiting = self.timeout if timeout is None else timeout
        header = {"worker": worker, "clock": clock, "attempt": attempt}
        told, pulled = self._routes.pushes(updates), self._routes.pulls(rows)

        def swap(shard: int, link: Link) -> str:
            messages = (header, told[shard]), ({"wait": waiting}, pulled.told[shard])
            longest = waiting + self.timeout
            answer, arrays = link.parts("exchange", *messages, timeout=longest, into=pulled.into[shard])
            pulled.put(shard, arrays)
            return str(answer["verdict"])

        return self._each(swap), pulled.values

    # values

    def assign(self, values: Mapping[str, Push]) -> None:
        """Rows become what is given, whatever the clocks; the rule's slots stay."""
        told = self._routes.pushes(values)
        self._each(lambda shard, link: link.parts("assign", ({}, told[shard])))

    def pull(
        self,
        rows: Mapping[str, Rows],
        worker: int | None = None,
        clock: int = 0,
        timeout: float | None = None,
        codecs: Mapping[str, str] | None = None,
    ) -> dict[str, np.ndarray]:
        """The values of rows; of a worker as soon as it may read at ``clock``, which is waited for.

        Of tables with sparse rows, give keys; :meth:`stored` tells which there are. Values of tables that ``codecs``
        names come as packets of these codecs, and are what those leave of them.
        """
        waiting = self.timeout if timeout is None else timeout
        header = {} if worker is None else {"worker": worker, "clock": clock, "wait": waiting}
        with self._packing():
            pulled = self._routes.pulls(rows, codecs)

        def get(shard: int, link: Link) -> None:
            longest, into = waiting + self.timeout, pulled.into[shard]
            arrays = link.parts("pull", (header, pulled.told[shard]), timeout=longest, into=into)[1]
            with self._packing():
                pulled.put(shard, arrays)

        self._each(get)
        return pulled.values

    def stored(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values of the rows that a table with sparse rows has."""
        header = {"name_keys": True}
        answers = self._each(lambda _, link: link.parts("pull", (header, [({"table": name}, None, None)])))
        return _joined([arrays for _, arrays in answers])

    def state(self, name: str) -> TableState:
        """All that a table holds, of one moment within a shard."""
        answers = self._each(lambda _, link: link.ask("state", {"table": name}))
        return TableState.joined([TableState.of(arrays) for _, arrays in answers])

    def restore(self, name: str, state: TableState) -> None:
        """Have a new table hold ``state``; slots that are not in it stay as new."""
        bounds = self._routes.bounds(name)

        def put(shard: int, link: Link) -> None:
            part = state.within(int(bounds[shard]), int(bounds[shard + 1]))
            link.change("restore", {"table": name}, part.arrays())

        self._each(put)

    # functions

    def axpy(self, y: str, x: str, a: float) -> None:
        """``y += a x``."""
        self._compute("axpy", [y, x], a=a)

    def dot(self, x: str, y: str) -> float:
        return math.fsum(self._compute("dot", [x, y]))

    def norm(self, x: str, order: float = 2.0) -> float:
        """``(sum |x|^order)^(1 / order)`` for order 1, 2 and inf."""
        parts = self._compute("norm", [x], order=order)
        if order == math.inf:
            return max(parts)
        return math.sqrt(math.fsum(parts)) if order == 2.0 else math.fsum(parts)

    def scale(self, x: str, a: float) -> None:
        """``x *= a``."""
        self._compute("scale", [x], a=a)

    def proximal(self, x: str, rate: float, l1: float, l2: float) -> None:
        """``x <- argmin_z l2 / 2 |z|^2 + l1 |z|_1 + |z - x|^2 / (2 rate)``."""
        self._compute("proximal", [x], rate=rate, l1=l1, l2=l2)

    def step(self, x: str, gradient: str, step_size: float | None = None) -> None:
        """A step of the rule of x along the table ``gradient``, which becomes 0."""
        self._compute("step", [x, gradient], step_size=step_size or 0.0)

    def top_k(self, x: str, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values of the k rows of largest Euclidean norm, the largest first."""
        answers = self._each(lambda _, link: link.compute("top_k", [x], {"k": k}, False))
        keys, values = _joined([arrays for _, arrays in answers])
        sizes = np.sum(np.square(values.reshape(len(keys), -1), dtype=np.float64), axis=1)
        order = np.lexsort((keys, -sizes))[:k]
        return keys[order], values[order]

    # servers

    def status(self) -> list[Header]:
        return [answer for answer, _ in self._each(lambda _, link: link.ask("status", {}))]

    def snapshot(self, name: str) -> None:
        """Have every shard s write ``name.s`` to its directory. No moment is that of all shards; clocks tell them."""
        self._each(lambda shard, link: link.ask("snapshot", {"name": f"{name}.{shard}"}))

    def stop(self) -> None:
        """Have all servers end."""
        self._each(lambda _, link: link.ask("stop", {}))

    def _compute(self, function: str, tables: Sequence[str], **numbers: float) -> list[float]:
        changes = function not in ("dot", "norm")
        answers = self._each(lambda _, link: link.compute(function, tables, numbers, changes))
        return [float(answer.get("value", 0.0)) for answer, _ in answers]

    @contextmanager
    def _packing(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.packing_seconds += time.perf_counter() - began

    def _each(self, call: Callable[[int, Link], Any]) -> list[Any]:
        """Of every shard; if calls fail, the first failure is raised when all have ended."""
        if self._threads is None:
            return [call(0, self._links[0])]
        futures = [self._threads.submit(call, shard, link) for shard, link in enumerate(self._links)]
        errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None:
                raise error
        return [future.result() for future in futures]


def _joined(parts: Sequence[Sequence[np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([keys for keys, _ in parts]), np.concatenate([values for _, values in parts])
