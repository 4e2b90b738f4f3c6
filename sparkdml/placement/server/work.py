"""The frame of what workers do beside a parameter server: their turns, each at its own clock, and what they tell."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from sparkdml.core import Turn
from sparkdml.data.block import Block
from sparkdml.data.handle import Handle
from sparkdml.data.open_blocks import MissingBlocksError, open_handle
from sparkdml.optim.gradient import total_loss
from sparkdml.placement.server.sidework import COEFFICIENTS, Done, Draft, SideWork
from sparkdml.placement.server.tables import CONTROL, MISSING, OVER, PASSES, READ, SEEN, WANTED, start_of
from sparkdml.placement.ship import Shipped
from sparkdml.resources.worker import limit_threads, settle
from sparkdml.server.client import Client, Push
from sparkdml.server.coding import EXACT, Coder
from sparkdml.server.specs import Range
from sparkdml.server.wire import Security
from sparkdml.server.wire.errors import ServerError

#: A worker waits so long for others to get on; whether they still run, Spark knows better.
WAIT_SECONDS = 4 * 3600.0
CALL_SECONDS = 60.0
LOOK_SECONDS = 0.002


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
    with Client(orders.addresses, orders.security, CALL_SECONDS) as client:
        steps.create(client)
        try:
            _work(orders, steps, client, dict(zip(numbers, handles, strict=True)), attempt)
        except ServerError:
            raise
        except Exception:
            # returned, not raised: the cause is then told at once, and not after three more attempts
            _let_all_go(client, numbers)
            return "raised", traceback.format_exc()
    return "done", None


def _work(orders: Orders, steps: SideWork, client: Client, handles: Mapping[int, Handle], attempt: int) -> None:
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
        work_of_all(orders, steps, client, blocks, attempt)


def work_of_all(
    orders: Orders, steps: SideWork, client: Client, blocks: Mapping[int, Sequence[Block]], attempt: int
) -> None:
    """Turns of the workers of these numbers, until the fit is over."""
    working = {
        number: _Worker(orders, steps, client, number, attempt, there, client.arrive(number, attempt))
        for number, there in blocks.items()
    }
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
    for number in numbers:
        client.lose(number)


@dataclass
class _Worker:
    """One partition's: ``clock`` is the next, ``told`` the last pass whose loss the driver was told.

    ``behind``: another attempt of its task is ahead.
    """

    orders: Orders
    steps: SideWork
    client: Client
    number: int
    attempt: int
    blocks: Sequence[Block]
    clock: int
    memory: Any = None
    told: int = -1
    behind: bool = False
    seconds: float = 0.0
    coder: Coder = field(init=False)

    def __post_init__(self) -> None:
        self.coder = Coder(self.steps.codec, self.steps.seed, self.number)

    def turn(self) -> bool:
        """One clock; False if the fit is over."""
        steps = self.steps
        clock = min(self.clock, steps.last_clock) if steps.in_step else self.clock
        ends = steps.in_step and clock == steps.last_clock
        turn = Turn(clock, self.number, steps.workers)
        began = time.perf_counter()
        draft = Draft(steps.whole, None) if ends else steps.before(self.blocks, self.memory, turn)
        self.seconds += time.perf_counter() - began
        pulled = self._pulled(draft, clock)
        control = pulled.pop(CONTROL)
        if control[OVER]:
            return False
        if steps.in_step:
            self._start(clock)
            if ends:
                return False
        else:
            self._answer(int(control[WANTED]))
        began = time.perf_counter()
        done = steps.work(self.blocks, draft.own, pulled, turn)
        self.seconds += time.perf_counter() - began
        self._push(clock, done)
        return True

    def _pulled(self, draft: Draft, clock: int) -> dict[str, np.ndarray]:
        """What the turn wants, once this worker may read it, and the driver's word."""
        wanted = {**draft.wanted, CONTROL: None}
        if not draft.wanted:
            return self.client.pull(wanted)
        codecs = self.steps.pull_codecs
        return self.client.pull(wanted, worker=self.number, clock=clock, timeout=WAIT_SECONDS, codecs=codecs)

    def _push(self, clock: int, done: Done) -> None:
        updates = dict(done.updates)
        if self.steps.codec != EXACT and COEFFICIENTS in updates:
            encode = partial(self.coder, COEFFICIENTS, clock)
            updates[COEFFICIENTS] = replace(updates[COEFFICIENTS], encode=encode)
        if not self.steps.in_step:
            updates[READ] = Push(np.array([done.read]))
        verdicts = self.client.push(self.number, clock, self.attempt, updates)
        self.behind = "duplicate" in verdicts
        self.memory = done.memory if set(verdicts) == {"apply"} else None
        self.clock = self.client.arrive(self.number, self.attempt) if "late" in verdicts else clock + 1

    def _start(self, clock: int) -> None:
        """Where all are in step, each tells its loss at the start of a pass.

        A copy of a task that lags behind the other reads later values than its clock's, and tells nothing.
        """
        number = clock // self.steps.rounds_of_pass
        if number > self.told and not self.behind:
            # nothing moves before this worker has pushed
            point = self.steps.point(self.client.pull(self.steps.whole))
            if self.number == 0:
                self._wait_until_seen(number - 1)
                self.client.assign({start_of(number): Push(point)})
            self._tell(number, point)

    def _answer(self, number: int) -> None:
        """Else the driver says at which point it wants to know all losses."""
        if number > self.told:
            self._tell(number, self.client.pull({start_of(number): None})[start_of(number)])

    def _tell(self, number: int, point: np.ndarray) -> None:
        began = time.perf_counter()
        problem = self.steps.problem
        loss = total_loss(problem.loss_at(point), self.blocks, *problem.to_raw(point))
        self.seconds += time.perf_counter() - began
        row = self.steps.lines_of(number).start + self.number
        self.client.assign({PASSES: Push(np.array([[loss, 1.0, self.seconds]]), rows=Range(row, row + 1))})
        self.told = number

    def _wait_until_seen(self, passes: int) -> None:
        """The driver still needs where the pass before the last began."""
        while True:
            control = self.client.pull({CONTROL: None})[CONTROL]
            if control[OVER] or control[SEEN] >= passes:
                return
            time.sleep(LOOK_SECONDS)
