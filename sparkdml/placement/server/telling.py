"""What a worker tells the driver, once a pass: its loss at the point where the pass began."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from sparkdml.data.block import Block
from sparkdml.placement.server.sidework import SideWork
from sparkdml.placement.server.tables import CONTROL, OVER, PASSES, SEEN, start_of
from sparkdml.server.client import Client, Push
from sparkdml.server.specs import Range

LOOK_SECONDS = 0.002


@dataclass
class Spent:
    """Seconds of one worker so far."""

    computing: float = 0.0
    packing: float = 0.0

    @contextmanager
    def in_computing(self) -> Iterator[None]:
        """Within it, time counts."""
        began = time.perf_counter()
        yield
        self.computing += time.perf_counter() - began

    @contextmanager
    def in_calls(self, client: Client) -> Iterator[None]:
        """Within it, what the client packs counts."""
        before = client.packing_seconds
        yield
        self.packing += client.packing_seconds - before


class Teller:
    """One worker's. ``told`` is the last pass of which it has."""

    def __init__(self, steps: SideWork, client: Client, number: int, blocks: Sequence[Block], spent: Spent) -> None:
        self._steps, self._client, self._number, self._blocks, self._spent = steps, client, number, blocks, spent
        self.told = -1

    def start(self, clock: int) -> None:
        """Where all are in step, each tells its loss at the start of a pass."""
        number, beyond = divmod(clock, self._steps.rounds_of_pass)
        if beyond == 0 and number > self.told:
            # nothing moves before this worker has pushed
            point = self._steps.point(self._client.pull(self._steps.whole))
            if self._number == 0:
                self._wait_until_seen(number - 1)
                self._client.assign({start_of(number): Push(point)})
            self._tell(number, point)

    def answer(self, number: int) -> None:
        """Else the driver says at which point it wants to know all losses."""
        if number > self.told:
            self._tell(number, self._client.pull({start_of(number): None})[start_of(number)])

    def _tell(self, number: int, point: np.ndarray) -> None:
        with self._spent.in_computing():
            loss = self._steps.problem.loss_sum(self._blocks, point)
        row = self._steps.lines_of(number).start + self._number
        self._client.assign(
            {
                PASSES: Push(
                    np.array([[loss, 1.0, self._spent.computing, self._spent.packing]]), rows=Range(row, row + 1)
                )
            }
        )
        self.told = number

    def _wait_until_seen(self, passes: int) -> None:
        """The driver still needs where the pass before the last began."""
        while True:
            control = self._client.pull({CONTROL: None})[CONTROL]
            if control[OVER] or control[SEEN] >= passes:
                return
            time.sleep(LOOK_SECONDS)
