"""The driver's look at every pass: its objective, whether to stop, what it cost, what is kept of it."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

import numpy as np

from sparkdml.algorithms.progress import observed
from sparkdml.placement.base import OnRound
from sparkdml.placement.server.sidework import SideWork
from sparkdml.placement.server.tables import CONTROL, FACTORS, MISSING, PASSES, READ, start_of
from sparkdml.report.history import History, Round
from sparkdml.server.client import Client, Push
from sparkdml.server.groups import grouped
from sparkdml.server.metrics import NOBODY
from sparkdml.server.specs import Range

#: Speeds are measured from the one pass to the other, counted from the first, which still maps files and compiles.
MEASURED_FROM, MEASURED_TO = 1, 3

logger = logging.getLogger(__name__)


class Watch:
    """``kept`` is the last state that servers could go on from: ``state``, to begin with.

    ``by_speed``: workers are split into groups of like speed once that is known.
    """

    def __init__(self, steps: SideWork, history: History, on_round: OnRound | None, state: Any, by_speed: bool) -> None:
        self._steps, self._history, self._on_round, self._by_speed = steps, history, on_round, by_speed
        self.kept = state
        self._before = len(history.rounds) - (state.iteration + 1)

    def begin(self, client: Client) -> None:
        """Look at what goes on from ``kept`` beside these servers."""
        self._client, steps = client, self._steps
        self._seen = self._first = self.kept.iteration + 1
        self._asked = self._seen - 1
        self._spent = np.zeros(steps.workers)
        self._began, self._before_pass = time.perf_counter(), {**self._served(), "compute": 0.0, "serialise": 0.0}
        control = np.concatenate([[0.0, self._seen, -1.0], np.ones(steps.workers)])
        read = np.array([float(max(self.kept.iteration, 0))])
        self._client.assign({CONTROL: Push(control), READ: Push(read)})

    def turn_to(self, client: Client) -> None:
        """Ask this client from now on."""
        self._client = client

    def look(self, state: Any) -> Any:
        """The state after the next pass has begun everywhere; the same one if it has not."""
        number, steps = self._seen, self._steps
        if not steps.in_step and not self._wanted(number):
            return state
        losses, told, seconds, packing = self._client.pull({PASSES: steps.lines_of(number)})[PASSES].T
        if not told.all():
            return state
        point = self._client.pull({start_of(number): None})[start_of(number)]
        state = observed(state, steps.problem, point, float(sum(losses.tolist())), steps.limits)
        if steps.keeps(number) and state.stop is None:
            self.kept = state = steps.take(self._client, state)
        if self._by_speed:
            self._measure(number, seconds)
        self._seen = number + 1
        self._say(state)
        return self._tell(number, state, {"compute": float(seconds.mean()), "serialise": float(packing.mean())})

    def missing(self) -> list[int]:
        """Workers that have not found their blocks."""
        return np.flatnonzero(self._client.pull({MISSING: None})[MISSING]).tolist()

    def found(self) -> None:
        """Their blocks are there again."""
        self._client.assign({MISSING: Push(np.zeros(self._steps.workers))})

    def _tell(self, number: int, state: Any, spent: dict[str, float]) -> Any:
        """Those who watch; not again of a pass that is repeated after servers were lost."""
        done, place = self._entry(number, state, spent), self._before + number
        known = place < len(self._history.rounds)
        self._history.rounds[place : place + 1] = [done]
        if self._on_round is not None and not known:
            asked = self._on_round(done, state)
            if asked is not None and state.stop is None:
                state = replace(state, stop=asked)
                self._say(state)
        return state

    def _wanted(self, number: int) -> bool:
        """Whether workers know at which point their losses are wanted: once all rows have been read so often."""
        if self._asked < number:
            steps = self._steps
            # shares of a pass add up to it but for rounding
            if self._client.pull({READ: None})[READ][0] < number - 1e-6:
                return False
            point = steps.point(self._client.pull(steps.whole))
            self._client.assign({start_of(number): Push(point)})
            self._asked = number
            self._say(None)
        return True

    def _measure(self, number: int, seconds: np.ndarray) -> None:
        """Split the workers after some passes, by what a clock takes each of them.

        Where a task began anew meanwhile its seconds did too: then speeds stay unknown, and workers together.
        """
        passes = number - self._first
        if passes == MEASURED_FROM:
            self._spent = seconds
        if passes != MEASURED_TO or (seconds <= self._spent).any():
            return
        clocks = (MEASURED_TO - MEASURED_FROM) * self._steps.rounds_of_pass
        groups = grouped(((seconds - self._spent) / clocks).tolist())
        if len(groups) == 1:
            return
        logger.info("workers step together in %d groups of like speed: %s", len(groups), groups)
        self._client.split(groups)
        factors = np.empty(self._steps.workers)
        for group in groups:
            factors[group] = self._steps.workers / len(group)  # a step of a group stands for all workers
        rows = Range(FACTORS, FACTORS + self._steps.workers)
        self._client.assign({CONTROL: Push(factors, rows=rows)})

    def _say(self, state: Any) -> None:
        over = state is not None and state.stop is not None
        numbers = np.array([over, self._seen, self._asked], float)
        self._client.assign({CONTROL: Push(numbers, rows=Range(0, FACTORS))})

    def _served(self) -> dict[str, float]:
        """What servers have sent to workers and received from them so far, and seconds that a worker's pulls waited."""
        found = dict.fromkeys(("down", "up", "wait"), 0.0)
        for status in self._client.status():
            told = [worker for name, worker in status["workers"].items() if name != NOBODY]
            found["down"] += sum(worker.get("sent_bytes_total", 0.0) for worker in told)
            found["up"] += sum(worker.get("received_bytes_total", 0.0) for worker in told)
            waited = sum(worker.get("wait_seconds_sum", 0.0) for worker in told) / self._steps.workers
            found["wait"] = max(found["wait"], waited)
        return found

    def _entry(self, number: int, state: Any, spent: dict[str, float]) -> Round:
        """Of the pass before this look; ``spent`` is what a worker has on average since it began."""
        now = time.perf_counter()
        rest, self._began = now - self._began, now
        told = {**self._served(), **spent}
        passed = {name: max(value - self._before_pass[name], 0.0) for name, value in told.items()}
        self._before_pass = told
        phases = {}
        for phase in ("compute", "wait", "serialise"):  # which overlap where a worker computes while it calls
            phases[phase] = min(passed[phase], rest)
            rest -= phases[phase]
        return Round(
            round=number,
            iteration=state.iteration,
            objective=self._steps.problem.told * state.objective,
            gradient_norm=state.gradient_norm,
            compute_seconds=phases["compute"],
            wait_seconds=phases["wait"],
            serialise_seconds=phases["serialise"],
            aggregate_seconds=rest,
            driver_seconds=0.0,
            bytes_down=int(passed["down"]),
            bytes_up=int(passed["up"]),
            bytes_driver=8 * self._steps.problem.size,
        )
