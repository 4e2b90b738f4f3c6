"""One shard: what becomes of a call."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sparkdml.server import table_state
from sparkdml.server.clocks import Ledger, Verdict
from sparkdml.server.coding import packed
from sparkdml.server.functions import requested
from sparkdml.server.keys import KeyCache
from sparkdml.server.metrics import NOBODY, Metrics
from sparkdml.server.parts import Part, argument, named, read_parts, spelled_out, summed
from sparkdml.server.specs import Budget, TableSpec
from sparkdml.server.tables import Table, table
from sparkdml.server.tenancy import Tenancy
from sparkdml.server.wire import Header, Reply
from sparkdml.server.wire.errors import RefusedCallError

#: So many clients' last answers are remembered.
_CLIENTS = 1024

_LONGEST_WAIT = 1e6

#: Told of every call that changed something, in order, before it is answered.
Log = Callable[[str, Header, Sequence[np.ndarray]], None]


def _half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


@dataclass(frozen=True)
class Room:
    """How much memory tables and remembered keys may take, in bytes."""

    tables: int = _half_of_memory()
    keys: int = 2**28


class Shard:
    """The handler of a server (:func:`sparkdml.server.wire.serve`).

    Calls that change something come one at a time, so that ledger, tables and log agree; pulls and functions that only
    read hold a table's lock while they copy or compute.
    """

    def __init__(self, ledger: Ledger, room: Room, metrics: Metrics) -> None:
        self.ledger, self.metrics = ledger, metrics
        self.tables: dict[str, Table] = {}
        self.tenancy = Tenancy()
        self.budget, self.keys = Budget(room.tables), KeyCache(room.keys)
        self.pending: dict[tuple[int, int], list[Part]] = {}
        self.answered: OrderedDict[str, tuple[int, Header]] = OrderedDict()
        self.changed = threading.Condition(threading.RLock())
        self.log: Log = lambda *_: None
        self.closing = False
        calls = self._pull, self._status, self._exchange, self._compute, self._state
        self._calls = {call.__name__[1:]: call for call in calls}
        changes = (
            self._begin, self._fail, self._end, self._create, self._drop, self._restore,
            self._arrive, self._leave, self._lose, self._split, self._push, self._assign,
        )  # fmt: skip
        self._writes = {change.__name__[1:]: change for change in changes}

    def __call__(self, op: str, header: Header, arrays: list[np.ndarray], peer: str) -> Reply:
        if op not in self._calls and op not in self._writes:
            raise RefusedCallError("unknown", f"'{op}' is nothing that this server does")
        calling = self.tenancy.calling(op, header.get("fit", ""))
        if op in self._calls:
            with calling:
                return self._calls[op](header, arrays)
        with self.changed, calling:
            return self._once(op, header, arrays, self._writes[op])

    def close(self) -> None:
        """Calls that wait are refused."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()

    def _once(
        self, op: str, header: Header, arrays: list[np.ndarray], write: Callable[[Header, list[np.ndarray]], Reply]
    ) -> Reply:
        """Carry out a change unless it is a repetition of the client's last one."""
        client, number = argument(header, "client", str), argument(header, "number", int)
        last, answer = self.answered.get(client, (-1, {}))
        if number == last:
            return answer, ()
        if number < last:
            raise RefusedCallError("repeated", f"call {number} comes after call {last} of the same client")
        answer, results = write(header, arrays)
        self.answered[client] = (number, answer)
        self.answered.move_to_end(client)
        if len(self.answered) > _CLIENTS:
            self.answered.popitem(last=False)
        if "parts" not in header:
            self.log(op, header, arrays)
        self.changed.notify_all()
        return answer, results

    # fits

    def _begin(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        """Clocks and tables of a fit, instead of those of the one before."""
        names = "workers", "staleness", "backup_workers", "clock"
        workers, staleness, backup_workers, clock = (argument(header, name, int) for name in names)
        fit, before = argument(header, "fit", str), argument(header, "instead_of", str)
        try:
            ledger = Ledger(workers, staleness, backup_workers, clock=clock)
        except ValueError as error:
            raise RefusedCallError("argument", str(error)) from None
        self.tenancy.begin(fit, before)
        self._clear(ledger)
        return {}, ()

    def _fail(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        self.tenancy.fail(argument(header, "why", str)[:2000])
        return {}, ()

    def _end(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        self.tenancy.end(header.get("fit", ""))
        self._clear(self.ledger)
        return {}, ()

    def _clear(self, ledger: Ledger) -> None:
        self.ledger, self.budget.used = ledger, 0
        self.tables.clear()
        self.pending.clear()
        self.metrics.forget()

    # tables

    def _create(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        try:
            spec = TableSpec(**argument(header, "spec", dict))
            there = self.tables.get(spec.name)
            if there is None:
                self.tables[spec.name] = table(spec, self.budget)
            elif there.spec != spec:
                raise RefusedCallError("other table", f"'{spec.name}' is there as {there.spec}; drop it first")
        except RefusedCallError:
            raise
        except (TypeError, ValueError) as error:
            raise RefusedCallError("argument", str(error)) from None
        return {}, ()

    def _drop(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        gone = named(self.tables, header.get("table"))
        if any(part.table is gone for push in self.pending.values() for part in push):
            raise RefusedCallError("in use", f"'{gone.spec.name}' has pushes of an open round")
        del self.tables[gone.spec.name]
        self.budget.used -= gone.rows * gone.spec.row_bytes
        return {}, ()

    def _state(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        with self.changed:
            return {}, table_state.taken(named(self.tables, header.get("table")))

    def _restore(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        table_state.put(named(self.tables, header.get("table")), arrays)
        return {}, ()

    # clocks

    def _arrive(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        clock = self._told(self.ledger.arrive, argument(header, "worker", int), argument(header, "attempt", int))
        self._step_rounds()
        return {"clock": clock}, ()

    def _leave(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        self._told(self.ledger.leave, argument(header, "worker", int))
        self._step_rounds()
        return {}, ()

    def _lose(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        self._told(self.ledger.lose, argument(header, "worker", int))
        self._step_rounds()
        return {}, ()

    def _split(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        groups = argument(header, "groups", list)
        if not all(isinstance(group, list) and all(type(worker) is int for worker in group) for group in groups):
            raise RefusedCallError("argument", f"groups={str(groups)[:80]}, but it is lists of workers")
        self._told(self.ledger.split, groups)
        self._step_rounds()
        return {}, ()

    def _push(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        worker, clock, attempt = (argument(header, name, int) for name in ("worker", "clock", "attempt"))
        parts = read_parts(header, arrays, self.tables, self.keys, updates=True)
        ahead = max(clock - self.ledger.minimum(), 0)
        delay = self._told(self.ledger.delay, worker, clock)
        verdict: Verdict = self._told(self.ledger.push, worker, clock, attempt)
        if verdict is Verdict.APPLY:
            self.metrics.ahead(str(worker), ahead)
            if self.ledger.groups:
                self._keep(worker, clock, parts)
                self._step_rounds()
            else:
                self._apply(parts, worker, delay)
        self.metrics.pushed(str(worker), verdict.value, sum(array.nbytes for array in arrays))
        self.log("push", *spelled_out(header, parts))
        return {"verdict": verdict.value}, ()

    def _told(self, call: Callable[..., Any], *given: Any) -> Any:
        try:
            return call(*given)
        except ValueError as error:
            raise RefusedCallError("clock", str(error)) from None

    def _keep(self, worker: int, clock: int, parts: Sequence[Part]) -> None:
        """Until the round closes; the memory for new rows is taken now, when it can still be refused."""
        for part in parts:
            with part.table.lock:
                part.table.reserve(part.selection)
        self.pending[worker, clock] = [part.kept() for part in parts]

    def _step_rounds(self) -> None:
        """Rounds that closed are one step each, along the sum of their pushes in the order of workers."""
        for closed in self.ledger.closed():
            self._apply(summed([self.pending.pop((worker, closed.clock)) for worker in closed.workers]))

    def _apply(self, parts: Sequence[Part], worker: int | None = None, delay: int = 0) -> None:
        for part in parts:
            assert part.update is not None
            with part.table.lock:
                part.table.push(part.selection, part.update, part.step_size, worker, delay)

    # values

    def _assign(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        parts = read_parts(header, arrays, self.tables, self.keys, updates=True)
        for part in parts:
            assert part.update is not None
            with part.table.lock:
                part.table.assign(part.selection, part.update)
        self.metrics.pushed(NOBODY, "assign", sum(array.nbytes for array in arrays))
        self.log("assign", *spelled_out(header, parts))
        return {}, ()

    def _pull(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        with self.changed:
            parts = read_parts(header, arrays, self.tables, self.keys, updates=False)
            if "worker" not in header:
                return self._values(parts, None, bool(header.get("name_keys")))
            worker, clock = argument(header, "worker", int), argument(header, "clock", int)
            self._wait(worker, clock, _seconds(header))
        return self._values(parts, worker)

    def _exchange(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        """A push and then a pull at the next clock; if it is sent again, the push is a repetition."""
        count, reading = argument(header, "pushed", int), argument(header, "pull", dict)
        if not 0 <= count <= len(arrays):
            raise RefusedCallError("argument", f"pushed={count}, but there are {len(arrays)} arrays")
        with self.changed:
            seconds = _seconds(reading)
            parts = read_parts(reading, arrays[count:], self.tables, self.keys, updates=False)
            answer, _ = self._once("push", header, arrays[:count], self._push)
            worker = argument(header, "worker", int)
            self._wait(worker, argument(header, "clock", int) + 1, seconds)
        pulled, results = self._values(parts, worker)
        return {**pulled, **answer}, results

    def _values(self, parts: Sequence[Part], worker: int | None, name_keys: bool = False) -> Reply:
        results = []
        for part in parts:
            with part.table.lock:
                if name_keys and isinstance(part.selection, np.ndarray):
                    results.append(part.selection)
                values = part.table.pull(part.selection, worker)
            results.append(values if part.codec is None else packed(values, part.codec))
        self.metrics.pulled(NOBODY if worker is None else str(worker), sum(array.nbytes for array in results))
        return {"minimum": self.ledger.minimum()}, results

    def _wait(self, worker: int, clock: int, seconds: float) -> None:
        """Until the worker may read at this clock, which it then does."""
        began, ledger, fit = time.monotonic(), self.ledger, self.tenancy.fit
        while not self._told(ledger.may_read, worker, clock):
            left = began + seconds - time.monotonic()
            if self.closing:
                raise RefusedCallError("closing", "the server ends")
            if left <= 0.0:
                slowest = self.ledger.minimum()
                what = f"worker {worker} waited {seconds:g} s to read at clock {clock}, but the slowest is at {slowest}"
                remedy = "see whether that one still runs, declare it lost, or allow for a longer timeout"
                raise RefusedCallError("timeout", f"{what}; {remedy}")
            self.changed.wait(left)
            self.tenancy.check(fit)
        ledger.read(worker)
        waited = time.monotonic() - began
        if waited > 1e-3:
            self.metrics.waited(str(worker), waited)

    def _compute(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        function, numbers = requested(header)

        def run(header: Header, arrays: list[np.ndarray]) -> Reply:
            chosen = [named(self.tables, other) for other in argument(header, "tables", list)]
            if len(chosen) != function.tables:
                raise RefusedCallError(
                    "argument", f"{header['function']} takes {function.tables} tables, not {len(chosen)}"
                )
            with ExitStack() as stack:
                for one in sorted({one.spec.name: one for one in chosen}.items()):
                    stack.enter_context(one[1].lock)
                return function.run(*chosen, **numbers)

        if not function.changes:
            return run(header, arrays)
        with self.changed:
            return self._once("compute", header, arrays, run)

    def _status(self, header: Header, arrays: list[np.ndarray]) -> Reply:
        with self.changed:
            tables = {
                name: {**asdict(one.spec), "rows": one.rows, "pushes": one.count} for name, one in self.tables.items()
            }
            return {
                "tables": tables,
                "minimum": self.ledger.minimum(),
                "groups": self.ledger.groups,
                "workers": self.metrics.numbers(),
                **self.gauges(),
            }, ()

    def gauges(self) -> dict[str, float]:
        """How much there is of what."""
        return {
            "table_bytes": self.budget.used, "key_bytes": self.keys.bytes, "key_hits": self.keys.hits,
            "key_misses": self.keys.misses, "open_pushes": len(self.pending),
        }  # fmt: skip


def _seconds(header: Header) -> float:
    """How long the caller waits for its clock."""
    seconds = argument(header, "wait", float)
    if not 0.0 <= seconds <= _LONGEST_WAIT:
        raise RefusedCallError("argument", f"wait={seconds}; take 0 to {_LONGEST_WAIT:g} seconds")
    return seconds
