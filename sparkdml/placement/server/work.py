"""The frame of what workers do beside a parameter server: their turns, each at its own clock, and what they tell."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparkdml.core import Turn
from sparkdml.data.block import Block
from sparkdml.data.handle import Handle
from sparkdml.data.open_blocks import MissingBlocksError, open_handle
from sparkdml.placement.server.lines import Calls, Direct, Line, Pipe
from sparkdml.placement.server.sidework import Draft, SideWork
from sparkdml.placement.server.tables import CONTROL, MISSING, OVER, WANTED
from sparkdml.placement.server.telling import Teller
from sparkdml.placement.ship import Shipped
from sparkdml.resources.worker import limit_threads, settle
from sparkdml.server.client import Client, Push
from sparkdml.server.coding import Coder
from sparkdml.server.specs import Range
from sparkdml.server.wire import Security
from sparkdml.server.wire.errors import ServerError

CALL_SECONDS = 60.0


@dataclass(frozen=True)
class Orders:
    """What every worker is told: ``steps`` has a :class:`~.sidework.SideWork`; worker n works on the n-th handle."""

    steps: Shipped
    partitions: tuple[int, ...]
    addresses: tuple[str, ...]
    security: Security


def working(orders: Orders) -> Callable[[Iterable[Handle]], Iterator[tuple[str, Any]]]:
    """A task over some partitions, each a worker of its own; what it returns says how it ended."""

    def run(handles: Iterable[Handle]) -> Iterator[tuple[str, Any]]:
        from pyspark import TaskContext

        limit_threads()
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        try:
            yield _served(orders, list(handles), attempt)
        except ServerError as error:
            yield "lost", str(error)
        settle()

    return run


def _served(orders: Orders, handles: Sequence[Handle], attempt: int) -> tuple[str, Any]:
    steps: SideWork = orders.steps.value
    numbers = [orders.partitions.index(handle.partition) for handle in handles]
    with Client(orders.addresses, orders.security, CALL_SECONDS) as client, ExitStack() as pipes:
        steps.create(client)
        try:
            _work(orders, client, dict(zip(numbers, handles, strict=True)), attempt, pipes)
        except ServerError:
            if steps.pipelined:
                # calls under way wait for others, who shall not wait for these workers
                with suppress(ServerError):
                    _lose(client, numbers)
            raise
        except Exception:
            # returned, not raised: the cause is then told at once, and not after three more attempts
            _let_all_go(client, numbers)
            return "raised", traceback.format_exc()
    return "done", None


def _work(orders: Orders, client: Client, handles: Mapping[int, Handle], attempt: int, pipes: ExitStack) -> None:
    """:func:`work_of_all` of the handles that there are blocks of, if there are of all."""
    blocks, missing = {}, []
    for number, handle in handles.items():
        try:
            blocks[number] = open_handle(handle)
        except MissingBlocksError:
            missing.append(number)
    for number in missing:
        # the others wait for this worker; the driver ends their job and has the blocks made again
        client.assign({MISSING: Push(np.ones(1), rows=Range(number, number + 1))})
    if not missing:
        work_of_all(orders, client, blocks, attempt, pipes)


def work_of_all(
    orders: Orders, client: Client, blocks: Mapping[int, Sequence[Block]], attempt: int, pipes: ExitStack
) -> None:
    """Turns of the workers of these numbers, until the fit is over.

    ``pipes`` gets what is to be closed when nobody waits for these workers any more.
    """
    working = {number: _Worker(orders, client, number, attempt, there, pipes) for number, there in blocks.items()}
    while working:
        for number, worker in list(working.items()):
            if not worker.turn():
                client.leave(number)
                working.pop(number)


def _let_all_go(client: Client, numbers: Iterable[int]) -> None:
    """The fit has failed: others that wait for these workers shall not, and find that it is over."""
    control = client.pull({CONTROL: None})[CONTROL].copy()
    control[OVER] = 1.0
    client.assign({CONTROL: Push(control)})
    _lose(client, numbers)


def _lose(client: Client, numbers: Iterable[int]) -> None:
    for number in numbers:
        client.lose(number)


class _Worker:
    """One partition's: ``clock`` is the next; ``memory`` its method's."""

    def __init__(
        self,
        orders: Orders,
        client: Client,
        number: int,
        attempt: int,
        blocks: Sequence[Block],
        pipes: ExitStack,
    ) -> None:
        self._steps: SideWork = orders.steps.value
        self._client, self._number, self._attempt, self._blocks = client, number, attempt, blocks
        self._teller = Teller(self._steps, client, number, blocks)
        self._memory: Any = None
        self._behind = False  # whether another attempt of its task is ahead
        self._clock = client.arrive(number, attempt)
        coder = Coder(self._steps.codec, self._steps.seed, number)
        calls = Calls(client, self._steps, number, attempt, coder)
        self._line: Line
        if self._steps.pipelined:
            own = Client(orders.addresses, orders.security, CALL_SECONDS)
            self._steps.create(own)
            pipe = Pipe(replace(calls, client=own), self._draft, self._clock)
            pipes.callback(pipe.close)
            self._line = pipe
        else:
            self._line = Direct(calls, self._draft)

    def turn(self) -> bool:
        """One clock; False if the fit is over."""
        steps = self._steps
        clock = min(self._clock, steps.last_clock) if steps.in_step else self._clock
        draft, pulled = self._line.read(clock)
        control = pulled.pop(CONTROL)
        if control[OVER]:
            return False
        if not steps.in_step:
            self._teller.answer(int(control[WANTED]))
        elif not self._behind:  # which would have read later values than its clock's
            self._teller.start(clock)
        if self._ends(clock):
            return False
        with self._teller.computing():
            done = steps.work(self._blocks, draft.own, pulled, self._turn_of(clock))
        self._memory = done.memory
        self._hear(clock, self._line.tell(clock, done))
        return True

    def _draft(self, clock: int) -> Draft:
        if self._ends(clock):
            return Draft(self._steps.whole, None)
        with self._teller.computing():
            return self._steps.before(self._blocks, self._memory, self._turn_of(clock))

    def _hear(self, clock: int, verdicts: Sequence[str]) -> None:
        self._behind = "duplicate" in verdicts
        if set(verdicts) - {"apply"}:
            self._memory = None
        self._clock = self._client.arrive(self._number, self._attempt) if "late" in verdicts else clock + 1

    def _ends(self, clock: int) -> bool:
        return self._steps.in_step and clock >= self._steps.last_clock

    def _turn_of(self, clock: int) -> Turn:
        return Turn(clock, self._number, self._steps.workers)
