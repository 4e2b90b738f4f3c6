"""What a worker does beside a parameter server: pull, compute, push, each at its own clock."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdml.core import Turn
from sparkdml.data.block import Block
from sparkdml.data.handle import Handle
from sparkdml.data.open_blocks import MissingBlocksError, open_handle
from sparkdml.placement.server.tables import CONTROL, PASSES, Steps, start_of
from sparkdml.placement.ship import Shipped
from sparkdml.resources.worker import limit_threads, settle
from sparkdml.server.client import Client, Push
from sparkdml.server.specs import Range
from sparkdml.server.wire import Security
from sparkdml.server.wire.errors import ServerError

#: A worker waits so long for others to get on; whether they still run, Spark knows better.
WAIT_SECONDS = 4 * 3600.0
CALL_SECONDS = 60.0
LOOK_SECONDS = 0.002


@dataclass(frozen=True)
class Orders:
    """What every worker is told. ``steps`` has :class:`~.tables.Steps`; worker n works on the n-th of the handles.

    scale : what a push is multiplied by: it stands for all workers where each takes a step of its own.
    """

    steps: Shipped
    partitions: tuple[int, ...]
    addresses: tuple[str, ...]
    security: Security
    scale: float


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
        except Exception:
            # returned, not raised: the cause is then told at once, and not after three more attempts
            yield "raised", traceback.format_exc()
        settle()

    return run


def _served(orders: Orders, handles: Sequence[Handle], attempt: int) -> tuple[str, Any]:
    workers = {}
    for handle in handles:
        try:
            workers[orders.partitions.index(handle.partition)] = open_handle(handle)
        except MissingBlocksError:
            return "missing", [handle.partition]
    steps: Steps = orders.steps.value
    with Client(orders.addresses, orders.security, CALL_SECONDS) as client:
        steps.create(client)
        clocks = {number: client.arrive(number, attempt) for number in workers}
        while clocks:
            for number in list(clocks):
                worker = _Worker(orders, steps, client, number, attempt)
                going_on = worker.turn(clocks[number], workers[number])
                if going_on is None:
                    client.leave(number)
                    clocks.pop(number)
                else:
                    clocks[number] = going_on
    return "done", None


@dataclass(frozen=True)
class _Worker:
    orders: Orders
    steps: Steps
    client: Client
    number: int
    attempt: int

    def turn(self, clock: int, blocks: Sequence[Block]) -> int | None:
        """One clock; the next one, or None if the fit is over."""
        steps, last = self.steps, self.steps.last_clock
        if clock > last:
            return None
        wanted = dict.fromkeys([*steps.parameters, CONTROL])
        pulled = self.client.pull(wanted, worker=self.number, clock=clock, timeout=WAIT_SECONDS)
        if pulled[CONTROL][0]:
            return None
        began = time.perf_counter()
        point = steps.point(pulled)
        turn = Turn(clock, self.number, len(self.orders.partitions))
        update, _ = steps.algorithm.work(steps.problem, blocks, point, None, turn)
        seconds = time.perf_counter() - began
        pushes = self._told(clock, point, update, seconds)
        if clock < last:
            gradient = np.asarray(update["gradient"])
            if self.orders.scale != 1.0:
                gradient = gradient * self.orders.scale
            pushes |= steps.parts(gradient, steps.step_size(clock))
        verdicts = self.client.push(self.number, clock, self.attempt, pushes)
        return self.client.arrive(self.number, self.attempt) if "late" in verdicts else clock + 1

    def _told(self, clock: int, point: np.ndarray, update: dict[str, Any], seconds: float) -> dict[str, Push]:
        """What the driver hears of this round."""
        number = clock // self.steps.rounds_of_pass
        line = np.array([[float(update.get("loss", 0.0)), float("loss" in update), seconds]])
        if "loss" in update and self.number == 0:
            self._wait_until_seen(number - 1)
            self.client.assign({start_of(number): Push(point)})
        return {PASSES: Push(line, rows=Range(number, number + 1))}

    def _wait_until_seen(self, passes: int) -> None:
        """The driver still needs where the pass before the last began."""
        while True:
            over, seen = self.client.pull({CONTROL: None})[CONTROL]
            if over or seen >= passes:
                return
            time.sleep(LOOK_SECONDS)
