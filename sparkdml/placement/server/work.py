"""The frame of what workers do beside a parameter server: their turns, each at its own clock, and what they tell."""

from __future__ import annotations

import time
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
from sparkdml.placement.server.sidework import Done, Draft, SideWork
from sparkdml.placement.server.tables import CONTROL, FACTORS, MISSING, OVER, SEEN, WANTED
from sparkdml.placement.server.telling import LOOK_SECONDS, Spent, Teller
from sparkdml.placement.ship import Shipped
from sparkdml.resources.worker import limit_threads, settle
from sparkdml.server.client import Client, Push
from sparkdml.server.coding import Coder
from sparkdml.server.specs import Range
from sparkdml.server.wire import Security
from sparkdml.server.wire.errors import ServerError

CALL_SECONDS = 60.0
#: For servers to hear that the fit is lost.
GIVE_UP_SECONDS = 5.0


@dataclass(frozen=True)
class Orders:
    """What every worker is told: ``steps`` has a :class:`~.sidework.SideWork`; worker n works on the n-th handle."""

    steps: Shipped
    partitions: tuple[int, ...]
    addresses: tuple[str, ...]
    security: Security
    fit: str


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
            _give_up(orders, str(error))
            yield "lost", str(error)
        settle()

    return run


def _give_up(orders: Orders, why: str) -> None:
    """Others wait for these workers at the servers that still answer: they shall not."""
    with suppress(ServerError), Client(orders.addresses, orders.security, GIVE_UP_SECONDS, orders.fit) as client:
        client.fail(f"a worker lost one of its servers: {why}")


def _served(orders: Orders, handles: Sequence[Handle], attempt: int) -> tuple[str, Any]:
    steps: SideWork = orders.steps.value
    numbers = [orders.partitions.index(handle.partition) for handle in handles]
    with Client(orders.addresses, orders.security, CALL_SECONDS, orders.fit) as client, ExitStack() as pipes:
        steps.create(client)
        try:
            _work(orders, client, dict(zip(numbers, handles, strict=True)), attempt, pipes)
        except ServerError:
            if steps.pipelined:
                with suppress(ServerError):
                    _lose(client, numbers, pipes)
            raise
        except Exception:
            # returned, not raised: the cause is then told at once, and not after three more attempts
            _say_over(client)
            _lose(client, numbers, pipes)
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
    """Turns of the workers of these numbers, the slowest first, until the fit is over: so none waits for another.

    ``pipes`` gets what is to be closed when nobody waits for these workers any more.
    """
    working = {number: _Worker(orders, client, number, attempt, there, pipes) for number, there in blocks.items()}
    while working:
        slowest = min(worker.clock for worker in working.values())
        for number, worker in list(working.items()):
            if worker.clock == slowest and not worker.turn():
                worker.stop()
                client.leave(number)
                working.pop(number)


def _say_over(client: Client) -> None:
    """The fit has failed: others find that it is over."""
    control = client.pull({CONTROL: None})[CONTROL].copy()
    control[OVER] = 1.0
    client.assign({CONTROL: Push(control)})


def _lose(client: Client, numbers: Iterable[int], pipes: ExitStack) -> None:
    """Others shall not wait for these workers any more, nor for what is under way in their pipes."""
    for _ in range(2):
        for number in numbers:
            client.lose(number)
        # waits for calls, which end now that others go on; each of them is a sign of life, so all are lost once more
        pipes.close()


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
        self._spent = Spent()
        self._teller = Teller(self._steps, client, number, blocks, self._spent)
        self._memory: Any = None
        self._behind = False  # whether another attempt of its task is ahead
        self.clock = client.arrive(number, attempt)
        coder = Coder(self._steps.codec, self._steps.seed, number)
        calls = Calls(client, self._steps, number, attempt, coder, self._spent)
        self._line: Line
        if self._steps.pipelined:
            own = Client(orders.addresses, orders.security, CALL_SECONDS, orders.fit)
            self._steps.create(own)
            pipe = Pipe(replace(calls, client=own), self._draft, self.clock)
            pipes.callback(pipe.close)
            self._line = pipe
        else:
            self._line = Direct(calls, self._draft)

    def turn(self) -> bool:
        """One clock, or none where it is held up; False if the fit is over."""
        steps = self._steps
        clock = min(self.clock, steps.last_clock) if steps.in_step else self.clock
        if self._is_held(clock):
            return True
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
        if self._is_held(clock):
            return True
        with self._spent.in_computing():
            done = steps.work(self._blocks, draft.own, pulled, self._turn_of(clock))
        self._memory = done.memory
        self._hear(clock, self._line.tell(clock, _scaled(done, float(control[FACTORS + self._number]))))
        return True

    def stop(self) -> None:
        self._line.stop()

    def _draft(self, clock: int) -> Draft:
        if self._ends(clock):
            return Draft(self._steps.whole, None)
        with self._spent.in_computing():
            return self._steps.before(self._blocks, self._memory, self._turn_of(clock))

    def _hear(self, clock: int, verdicts: Sequence[str]) -> None:
        self._behind = "duplicate" in verdicts
        if set(verdicts) - {"apply"}:
            self._memory = None
        self.clock = self._client.arrive(self._number, self._attempt) if "late" in verdicts else clock + 1

    def _is_held(self, clock: int) -> bool:
        """Whether the driver still takes the state at this clock: all servers stay there while this push is missing."""
        number, beyond = divmod(clock, self._steps.rounds_of_pass)
        if self._number or beyond or number != self._teller.told:
            return False
        if not (self._steps.in_step and self._steps.keeps(number)):
            return False
        control = self._client.pull({CONTROL: None})[CONTROL]
        if control[OVER] or control[SEEN] > number:
            return False
        time.sleep(LOOK_SECONDS)
        return True

    def _ends(self, clock: int) -> bool:
        return self._steps.in_step and clock >= self._steps.last_clock

    def _turn_of(self, clock: int) -> Turn:
        return Turn(clock, self._number, self._steps.workers)


def _scaled(done: Done, factor: float) -> Done:
    """With updates times ``factor``."""
    if factor == 1.0:
        return done
    return done._replace(updates={name: replace(p, update=p.update * factor) for name, p in done.updates.items()})
