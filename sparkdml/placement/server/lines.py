"""How a worker's pulls and pushes reach the servers: one after the other, or while it computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from sparkdml.placement.server.sidework import COEFFICIENTS, Done, Draft, SideWork
from sparkdml.placement.server.tables import CONTROL, READ
from sparkdml.placement.server.telling import Spent
from sparkdml.server.client import Client, Push
from sparkdml.server.coding import EXACT, Coder

#: A worker waits so long for others to get on; whether they still run, Spark knows better.
WAIT_SECONDS = 4 * 3600.0

#: Values of the driver's table and of those that a turn wanted.
Pulled = dict[str, np.ndarray]


@dataclass(frozen=True)
class Calls:
    """Those of one attempt of a worker."""

    client: Client
    steps: SideWork
    number: int
    attempt: int
    coder: Coder
    spent: Spent

    def pull(self, clock: int, draft: Draft) -> Pulled:
        """What the turn wants, once this worker may read it, and the driver's word."""
        wanted = {**draft.wanted, CONTROL: None}
        with self.spent.in_calls(self.client):
            if not draft.wanted:
                return self.client.pull(wanted)
            codecs = self.steps.pull_codecs
            return self.client.pull(wanted, worker=self.number, clock=clock, timeout=WAIT_SECONDS, codecs=codecs)

    def push(self, clock: int, done: Done) -> list[str]:
        """What becomes of it at each shard."""
        updates: dict[str, Push] = dict(done.updates)
        if self.steps.codec != EXACT and COEFFICIENTS in updates:
            encode = partial(self.coder, COEFFICIENTS, clock)
            updates[COEFFICIENTS] = replace(updates[COEFFICIENTS], encode=encode)
        if not self.steps.in_step:
            updates[READ] = Push(np.array([done.read]))
        with self.spent.in_calls(self.client):
            return self.client.push(self.number, clock, self.attempt, updates)


class Line(Protocol):
    """Turns come by increasing clocks: each reads, and then tells unless the fit is over."""

    def read(self, clock: int) -> tuple[Draft, Pulled]:
        """What the turn of this clock has before it reads, and what it reads."""

    def tell(self, clock: int, done: Done) -> list[str]:
        """Push; verdicts on this push, or on pushes before it that nobody was told of. Empty: none is known yet."""

    def stop(self) -> None:
        """Make no further call: the worker is about to leave."""


class Direct:
    """One thing after the other."""

    def __init__(self, calls: Calls, draft: Callable[[int], Draft]) -> None:
        self._calls, self._draft = calls, draft

    def read(self, clock: int) -> tuple[Draft, Pulled]:
        draft = self._draft(clock)
        return draft, self._calls.pull(clock, draft)

    def tell(self, clock: int, done: Done) -> list[str]:
        return self._calls.push(clock, done)

    def stop(self) -> None:
        pass


class Pipe:
    """A second thread calls, over a connection of its own: while clock c is computed, it pushes c - 1 and then pulls
    for c + 1. So values are a clock older, and lack the worker's own last push; the ledger's rule holds for them all.

    Two pulls are under way at first; a clock's draft is made when the turn two before it ends.
    """

    AHEAD = 2

    def __init__(self, calls: Calls, draft: Callable[[int], Draft], clock: int) -> None:
        self._calls, self._draft = calls, draft
        self._thread = ThreadPoolExecutor(1, "pipe")
        self._reads: deque[tuple[Draft, Future[Pulled]]] = deque()
        self._pushes: deque[Future[list[str]]] = deque()
        for ahead in range(self.AHEAD):
            self._ask(clock + ahead)

    def read(self, clock: int) -> tuple[Draft, Pulled]:
        draft, pulled = self._reads.popleft()
        return draft, pulled.result()

    def tell(self, clock: int, done: Done) -> list[str]:
        self._pushes.append(self._thread.submit(self._calls.push, clock, done))
        self._ask(clock + self.AHEAD)
        ended = []
        while self._pushes[0].done() and len(self._pushes) > 1:
            ended += self._pushes.popleft().result()
        return ended

    def stop(self) -> None:
        # a push after the worker has left is refused, and a pull behind it would wait for what it was to bring
        self._thread.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Waits for the call under way, which ends at the latest when other workers have left."""
        self._thread.shutdown(cancel_futures=True)
        self._calls.client.close()

    def _ask(self, clock: int) -> None:
        draft = self._draft(clock)
        self._reads.append((draft, self._thread.submit(self._calls.pull, clock, draft)))
