"""The client of all shards: cuts calls by rows, makes them at the same time, and puts answers together."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparkdml.server.keys import Keys
from sparkdml.server.link import Link
from sparkdml.server.specs import Range, TableSpec
from sparkdml.server.wire import Header, Security

#: All rows, some in a range, or some by their keys.
Rows = Range | Keys | None


@dataclass(frozen=True)
class Push:
    """An update of the rows; ``step_size`` is None for the rule's own."""

    update: np.ndarray
    rows: Rows = None
    step_size: float | None = None


@dataclass(frozen=True)
class _Piece:
    """What one shard has of a call: ``at`` is where its rows are among all that the call names."""

    at: slice
    told: Header
    keys: Keys | None


class Client:
    """Of the shards at ``addresses``; of several addresses ``a|b`` the first that answers is taken. Use ``with``.

    Shard s has the rows ``bounds[s]`` to ``bounds[s + 1] - 1`` of a table. Calls of several threads take turns at each
    shard. All calls raise ServerUnreachableError, ServerTimeoutError and ServerRefusedError.
    """

    def __init__(self, addresses: Sequence[str], security: Security, timeout: float = 60.0) -> None:
        name = secrets.token_hex(8)
        self.timeout = timeout
        self._links = [Link(address.split("|"), security, timeout, name) for address in addresses]
        self._threads = ThreadPoolExecutor(len(addresses), "shard") if len(addresses) > 1 else None
        self._tables: dict[str, tuple[TableSpec, np.ndarray]] = {}

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
        for link in self._links:
            link.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        self._tables[name] = (spec, cut)

    def drop(self, name: str) -> None:
        self._each(lambda _, link: link.change("drop", {"table": name}))
        self._tables.pop(name, None)

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
        answers = self._write("push", header, updates)
        return [str(answer["verdict"]) for answer in answers]

    # values

    def assign(self, values: Mapping[str, Push]) -> None:
        """Rows become what is given, whatever the clocks; the rule's slots stay."""
        self._write("assign", {}, values)

    def pull(
        self, rows: Mapping[str, Rows], worker: int | None = None, clock: int = 0, timeout: float | None = None
    ) -> dict[str, np.ndarray]:
        """The values of rows; of a worker as soon as it may read at ``clock``, which is waited for.

        Of tables with sparse rows, give keys; :meth:`stored` tells which there are.
        """
        waiting = self.timeout if timeout is None else timeout
        header = {} if worker is None else {"worker": worker, "clock": clock, "wait": waiting}
        pieces = {name: self._cut(name, chosen) for name, chosen in rows.items()}
        results = {name: self._empty(name, chosen) for name, chosen in rows.items()}

        def get(shard: int, link: Link) -> None:
            mine = {name: parts[shard] for name, parts in pieces.items() if shard in parts}
            into = [results[name][piece.at] for name, piece in mine.items()]
            told = [(piece.told, piece.keys, None) for piece in mine.values()]
            _, arrays = link.parts("pull", header, told, timeout=waiting + self.timeout, into=into)
            for place, array in zip(into, arrays, strict=True):
                if place is not array:
                    place[...] = array

        self._each(get)
        return results

    def stored(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values of the rows that a table with sparse rows has."""
        header = {"name_keys": True}
        answers = self._each(lambda _, link: link.parts("pull", header, [({"table": name}, None, None)]))
        return _joined([arrays for _, arrays in answers])

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

    def _write(self, op: str, header: Header, updates: Mapping[str, Push]) -> list[Header]:
        pieces = {name: self._cut(name, push.rows) for name, push in updates.items()}

        def send(shard: int, link: Link) -> Header:
            told = []
            for name, push in updates.items():
                piece = pieces[name].get(shard)
                if piece is not None:
                    extra = {} if push.step_size is None else {"step_size": push.step_size}
                    told.append(({**piece.told, **extra}, piece.keys, push.update[piece.at]))
            return link.parts(op, header, told)[0]

        return self._each(send)

    def _cut(self, name: str, rows: Rows) -> dict[int, _Piece]:
        """By shard, for those that have any of the rows."""
        spec, bounds = self._table(name)
        if isinstance(rows, Keys):
            return {shard: _Piece(at, {"table": name}, keys) for shard, at, keys in rows.split(bounds)}
        chosen = rows or Range(0, spec.stop)
        pieces = {}
        for shard in range(len(self._links)):
            start, stop = max(chosen.start, int(bounds[shard])), min(chosen.stop, int(bounds[shard + 1]))
            if start < stop:
                at = slice(start - chosen.start, stop - chosen.start)
                pieces[shard] = _Piece(at, {"table": name, "range": [start, stop]}, None)
        return pieces

    def _empty(self, name: str, rows: Rows) -> np.ndarray:
        spec, _ = self._table(name)
        if spec.kind == "rows" and not isinstance(rows, Keys):
            raise ValueError(f"'{name}' has sparse rows: pull it by Keys, or take stored('{name}')")
        chosen = rows or Range(0, spec.stop)
        count = len(chosen) if isinstance(chosen, Keys) else chosen.stop - chosen.start
        return np.empty((count, spec.columns) if spec.columns else count, spec.dtype)

    def _table(self, name: str) -> tuple[TableSpec, np.ndarray]:
        if name not in self._tables:
            raise ValueError(f"table '{name}' is not known to this client; call create first, as all clients do")
        return self._tables[name]

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


def even(rows: int, shards: int) -> list[int]:
    """Bounds of shards that differ by one row at most."""
    return [rows * shard // shards for shard in range(shards + 1)]


def _joined(parts: Sequence[Sequence[np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([keys for keys, _ in parts]), np.concatenate([values for _, values in parts])
