"""What a worker does beside a parameter server: pull, compute, push, each at its own clock."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdml.core import Turn
from sparkdml.data.block import Block
from sparkdml.data.handle import Handle
from sparkdml.data.open_blocks import MissingBlocksError, open_handle
from sparkdml.optim.gradient import total_loss
from sparkdml.placement.server.tables import CONTROL, MISSING, OVER, PASSES, SCALES, SEEN, WANTED, Steps, start_of
from sparkdml.placement.ship import Shipped
from sparkdml.resources.worker import limit_threads, settle
from sparkdml.server.client import Client, Push
from sparkdml.server.specs import Range
from sparkdml.server.wire import Security
from sparkdml.server.wire.errors import ServerError

#: A worker waits so long for others to get on; whether they still run, Spark knows better.
WAIT_SECONDS = 4 * 3600.0
CALL_SECONDS = 60.0
#: For servers to hear that the fit is lost.
GIVE_UP_SECONDS = 5.0
LOOK_SECONDS = 0.002


@dataclass(frozen=True)
class Orders:
    """What every worker is told. ``steps`` has :class:`~.tables.Steps`; worker n works on the n-th of the handles."""

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
    steps: Steps = orders.steps.value
    numbers = [orders.partitions.index(handle.partition) for handle in handles]
    with Client(orders.addresses, orders.security, CALL_SECONDS, orders.fit) as client:
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


def _work(orders: Orders, steps: Steps, client: Client, handles: Mapping[int, Handle], attempt: int) -> None:
    """Turns of all these workers, the slowest first, until the fit is over: so nobody here waits for anybody here."""
    blocks, missing = {}, []
    for number, handle in handles.items():
        try:
            blocks[number] = open_handle(handle)
        except MissingBlocksError:
            missing.append(number)
    for number in missing:
        # the others wait for this worker; the driver ends their job and has the blocks made again
        client.assign({MISSING: Push(np.ones(1), rows=Range(number, number + 1))})
    if missing:
        return
    working = {
        number: _Worker(orders, steps, client, number, attempt, there, client.arrive(number, attempt))
        for number, there in blocks.items()
    }
    while working:
        slowest = min(worker.clock for worker in working.values())
        for number, worker in list(working.items()):
            if worker.clock == slowest and not worker.turn():
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
    steps: Steps
    client: Client
    number: int
    attempt: int
    blocks: Sequence[Block]
    clock: int
    told: int = -1
    behind: bool = False
    seconds: float = 0.0

    def turn(self) -> bool:
        """One clock, or none where it is held up; False if the fit is over."""
        steps = self.steps
        clock = min(self.clock, steps.last_clock) if steps.in_step else self.clock
        if self._is_held(clock):
            return True
        wanted = dict.fromkeys([*steps.parameters, CONTROL])
        pulled = self.client.pull(wanted, worker=self.number, clock=clock, timeout=WAIT_SECONDS)
        if pulled[CONTROL][OVER]:
            return False
        point = steps.point(pulled)
        if steps.in_step:
            self._start(clock, point)
            if clock == steps.last_clock:
                return False
            if self._is_held(clock):
                return True
        else:
            self._answer(int(pulled[CONTROL][WANTED]))
        began = time.perf_counter()
        turn = Turn(clock, self.number, steps.workers)
        gradient = steps.algorithm.gradient(steps.problem, self.blocks, point, turn)
        self.seconds += time.perf_counter() - began
        pushes = steps.parts(gradient * pulled[CONTROL][SCALES + self.number], steps.step_size(clock))
        verdicts = self.client.push(self.number, clock, self.attempt, pushes)
        self.behind = "duplicate" in verdicts
        self.clock = self.client.arrive(self.number, self.attempt) if "late" in verdicts else clock + 1
        return True

    def _start(self, clock: int, point: np.ndarray) -> None:
        """Where all are in step, each tells its loss at the start of a pass.

        A copy of a task that lags behind the other reads later values than its clock's, and tells nothing.
        """
        number, beyond = divmod(clock, self.steps.rounds_of_pass)
        if beyond == 0 and number > self.told and not self.behind:
            if self.number == 0:
                self._wait_until_seen(number - 1)
                self.client.assign({start_of(number): Push(point)})
            self._tell(number, point)

    def _is_held(self, clock: int) -> bool:
        """Whether the driver still takes the state at this clock: all servers stay there while this push is missing."""
        number, beyond = divmod(clock, self.steps.rounds_of_pass)
        if self.number or beyond or number != self.told or not (self.steps.in_step and self.steps.keeps(number)):
            return False
        control = self.client.pull({CONTROL: None})[CONTROL]
        if control[OVER] or control[SEEN] > number:
            return False
        time.sleep(LOOK_SECONDS)
        return True

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
