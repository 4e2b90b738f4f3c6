"""The ledger among workers that stall, are retried, copied, taken for dead, come back and leave, in any order.

Coefficients are one number a worker: how many of its updates were applied. So values tell what a read has seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparkdml.server.clocks import ClockError, Ledger, Verdict
from sparkdml.server.groups import grouped

MOST_WORKERS = 5
some_worker = st.integers(0, MOST_WORKERS - 1)


@dataclass
class Task:
    """An attempt of a worker: it reads, computes, pushes, and goes on at the next clock."""

    worker: int
    attempt: int
    clock: int
    values: np.ndarray
    waited_for: frozenset[int] = frozenset()  # who was live when it read
    computed: bool = False
    pushed: list[int] = field(default_factory=list)


class Model:
    """The protocol as one would tell it: who is live, what was accepted, and which rounds are over."""

    def __init__(self, workers: int, staleness: int, backup_workers: int) -> None:
        self.staleness, self.backup_workers = staleness, backup_workers
        self.groups = [list(range(workers))]
        self.live, self.left = set(range(workers)), set[int]()
        self.passed = [0] * workers
        self.round = [0] * workers
        self.waiting: set[int] = set()
        self.values = np.zeros(workers)
        self.steps: list[set[int]] = []  # whose they were
        self.read_at = [0] * workers
        self.accepted: list[tuple[int, int]] = []

    def due(self, worker: int) -> int:
        return max(self.passed[worker], self.round[worker])

    def minimum(self) -> int:
        every = [self.due(worker) for worker in range(len(self.passed))]
        return min((every[worker] for worker in self.live), default=max(every))

    def delay(self, worker: int) -> int:
        return sum(worker not in step for step in self.steps[self.read_at[worker] :])

    def verdict(self, worker: int, clock: int) -> Verdict | None:
        if clock < self.passed[worker]:
            return Verdict.DUPLICATE
        if clock < self.round[worker]:
            return Verdict.LATE
        early = self.staleness == 0 and clock > self.round[worker]
        return None if worker in self.left or early or clock > self.due(worker) else Verdict.APPLY

    def heard(self, worker: int) -> None:
        if worker not in self.left:
            self.live.add(worker)

    def push(self, worker: int, clock: int, verdict: Verdict) -> None:
        self.heard(worker)
        if verdict is Verdict.DUPLICATE:
            return
        self.passed[worker] = clock + 1
        if verdict is Verdict.APPLY:
            self.accepted.append((worker, clock))
            self.waiting.add(worker)
            if self.staleness != 0:
                self.step({worker}, [worker])

    def step(self, whose: set[int], pushers: list[int]) -> None:
        self.values[pushers] += 1
        self.waiting -= set(pushers)
        self.steps.append(whose)

    def rounds_over(self) -> list[tuple[int, tuple[int, ...]]]:
        over = []
        for group in self.groups if self.staleness == 0 else []:
            pushers = [worker for worker in sorted(group) if worker in self.waiting]
            if pushers and len((self.live & set(group)) - self.waiting) <= self.backup_workers:
                over.append((self.round[group[0]], tuple(pushers)))
                self.step(set(group), pushers)
                for worker in group:
                    self.round[worker] += 1
        return over


class Cluster(RuleBasedStateMachine):
    """The server's end and all workers; a call of the ledger is noted, to be made again at the end."""

    def begin(self, workers: int, staleness: int, backup_workers: int = 0) -> None:
        self.model = Model(workers, staleness, backup_workers)
        self.shape = (workers, staleness, backup_workers)
        self.ledger = Ledger(*self.shape)
        self.calls: list[tuple[str, tuple[Any, ...], Any]] = []
        self.tasks: list[Task] = []
        self.attempts = [0] * workers
        for worker in range(workers - 1):  # one joins late, or never
            self.start(worker)

    def call(self, name: str, *arguments: Any) -> Any:
        answer = getattr(self.ledger, name)(*arguments)
        self.calls.append((name, arguments, answer))
        return answer

    def settle(self) -> None:
        """What the server does after each event: it applies the rounds that are over."""
        closed = [(closed.clock, closed.workers) for closed in self.call("closed")]
        assert closed == self.model.rounds_over()

    def start(self, worker: int) -> Task:
        attempt = self.attempts[worker]
        self.attempts[worker] += 1
        clock = self.call("arrive", worker, attempt)
        assert clock == self.model.due(worker)
        self.model.heard(worker)
        self.tasks.append(Task(worker, attempt, clock, self.model.values.copy()))
        return self.tasks[-1]

    def turn(self, task: Task) -> bool:
        """One thing that this task can do; False if it has to wait."""
        if task.computed:
            self.push(task)
        elif not self.read(task):
            return False
        else:
            self.check_values(task)
            task.computed = True
        return True

    def read(self, task: Task) -> bool:
        model, worker, clock = self.model, task.worker, task.clock
        may = self.call("may_read", worker, clock)
        if model.staleness == 0:
            assert may == (clock <= model.round[worker])
        elif model.staleness > 0:
            live = [model.passed[other] >= clock - model.staleness for other in model.live]
            assert may == (all(live) if live else clock <= max(model.passed) + model.staleness)
        else:
            assert may
        if may:
            self.call("read", worker)
            model.heard(worker)
            model.read_at[worker] = len(model.steps)
            task.values = model.values.copy()
            task.waited_for = frozenset(model.live)
        return may

    def check_values(self, task: Task) -> None:
        """No values staler than allowed; and a worker finds its own updates in them."""
        values, model = task.values, self.model
        if model.staleness != 0:
            assert task.clock <= values[task.worker] <= model.passed[task.worker]
        if model.staleness > 0:
            assert all(values[other] >= task.clock - model.staleness for other in task.waited_for)
        if model.staleness == 0 and task.clock == model.round[task.worker]:
            # exactly the accepted updates of earlier rounds: none of the open one
            group = next(group for group in model.groups if task.worker in group)
            earlier = [worker for worker, clock in model.accepted if clock < task.clock]
            assert [values[other] for other in group] == [earlier.count(other) for other in group]

    def push(self, task: Task) -> None:
        worker, clock, model = task.worker, task.clock, self.model
        expected = model.verdict(worker, clock)
        if expected is None:
            self.refused(worker, clock, task.attempt)
            self.tasks.remove(task)
            return
        delay = self.call("delay", worker, clock)
        assert delay == model.delay(worker)
        assert self.call("push", worker, clock, task.attempt) is expected
        assert self.call("delay", worker, clock) == delay or model.staleness == 0
        model.push(worker, clock, expected)
        task.pushed.append(clock)
        task.clock, task.computed = clock + 1, False
        if expected is Verdict.LATE:
            task.clock = self.call("arrive", worker, task.attempt)
            assert task.clock == model.due(worker)
        self.settle()

    def refused(self, worker: int, clock: int, attempt: int) -> None:
        before = self.ledger.state()
        with pytest.raises(ClockError):
            self.ledger.push(worker, clock, attempt)
        assert self.ledger.state() == before

    def go_on(self, turns: Iterable[int]) -> None:
        for number in turns:
            if self.tasks:
                self.turn(self.tasks[number % len(self.tasks)])

    @rule(turns=st.lists(st.integers(0, 9), min_size=1, max_size=10))
    def workers_take_turns(self, turns: list[int]) -> None:
        self.go_on(turns)

    @rule(turns=st.integers(1, 40))
    def all_is_well_for_a_while(self, turns: int) -> None:
        for worker in range(self.shape[0]):
            if worker not in self.model.left and all(task.worker != worker for task in self.tasks):
                self.start(worker)
        self.go_on(range(turns))

    @rule(worker=some_worker)
    def spark_starts_another_attempt(self, worker: int) -> None:
        self.start(worker % self.shape[0])

    @precondition(lambda self: self.tasks)
    @rule(number=st.integers(0, 9))
    def an_attempt_vanishes(self, number: int) -> None:
        self.tasks.pop(number % len(self.tasks))

    @rule(worker=some_worker)
    def a_worker_is_taken_for_dead(self, worker: int) -> None:
        worker %= self.shape[0]
        self.call("lose", worker)
        self.model.live.discard(worker)
        self.settle()

    @precondition(lambda self: any(task.clock > 2 for task in self.tasks))
    @rule(number=st.integers(0, 9))
    def an_attempt_finishes(self, number: int) -> None:
        far = [task for task in self.tasks if task.clock > 2]
        task = far[number % len(far)]
        self.tasks.remove(task)
        self.call("leave", task.worker)
        self.model.live.discard(task.worker)
        self.model.left.add(task.worker)
        self.settle()

    @precondition(lambda self: any(task.pushed for task in self.tasks))
    @rule(number=st.integers(0, 99))
    def a_message_comes_twice(self, number: int) -> None:
        sent = [(task, clock) for task in self.tasks for clock in task.pushed]
        task, clock = sent[number % len(sent)]
        assert self.call("push", task.worker, clock, task.attempt) is Verdict.DUPLICATE
        self.model.push(task.worker, clock, Verdict.DUPLICATE)

    @rule(worker=some_worker, gap=st.integers(0, 3))
    def a_push_comes_too_early(self, worker: int, gap: int) -> None:
        worker %= self.shape[0]
        clock = self.model.due(worker) + gap
        if self.model.verdict(worker, clock) is None:
            self.refused(worker, clock, 0)

    @rule()
    def the_server_is_restored(self) -> None:
        self.ledger = Ledger.restored(json.loads(json.dumps(self.ledger.state())))

    @invariant()
    def the_slowest_live_worker_never_waits(self) -> None:
        model = self.model
        assert self.ledger.minimum() == model.minimum()
        if model.live:
            assert any(self.ledger.may_read(worker, model.due(worker)) for worker in model.live)

    @invariant()
    def no_update_is_lost_or_applied_twice(self) -> None:
        model = self.model
        assert len(set(model.accepted)) == len(model.accepted)
        for worker, count in enumerate(model.values):
            clocks = [clock for other, clock in model.accepted if other == worker]
            assert len(clocks) == count + (worker in model.waiting)
            if model.staleness != 0:
                assert clocks == list(range(model.passed[worker]))
        assert sum(self.ledger.counts.applied) == len(model.accepted) == sum(self.ledger.counts.staleness.values())

    @invariant()
    def no_applied_update_was_staler_than_allowed(self) -> None:
        found = self.ledger.counts.staleness
        assert min(found, default=0) >= 0
        if self.model.staleness >= 0 and len(self.model.groups) == 1:
            assert max(found, default=0) <= self.model.staleness

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        self.everybody_who_is_live_gets_on()
        again = Ledger(*self.shape)
        for name, arguments, answer in self.calls:
            assert getattr(again, name)(*arguments) == answer
        assert again.state() == self.ledger.state()

    def everybody_who_is_live_gets_on(self) -> None:
        """All attempts die, Spark starts the live workers again: each then gets three clocks further."""
        self.tasks.clear()
        goal = max(self.model.due(worker) for worker in range(self.shape[0])) + 3
        for worker in sorted(self.model.live):
            self.start(worker)
        for _ in range(3 * goal):
            for task in list(self.tasks):
                if task.clock < goal:
                    self.turn(task)
        assert all(task.clock >= goal for task in self.tasks)
        assert not self.model.waiting


class BulkSynchronous(Cluster):
    @initialize(workers=st.integers(1, MOST_WORKERS))
    def set_up(self, workers: int) -> None:
        self.begin(workers, 0)


class WithBackupWorkers(Cluster):
    @initialize(workers=st.integers(2, MOST_WORKERS), backup=st.integers(1, MOST_WORKERS))
    def set_up(self, workers: int, backup: int) -> None:
        self.begin(workers, 0, min(backup, workers - 1))


class StaleSynchronous(Cluster):
    @initialize(workers=st.integers(1, MOST_WORKERS), staleness=st.integers(1, 3))
    def set_up(self, workers: int, staleness: int) -> None:
        self.begin(workers, staleness)


class Asynchronous(Cluster):
    @initialize(workers=st.integers(1, MOST_WORKERS))
    def set_up(self, workers: int) -> None:
        self.begin(workers, -1)


class Grouped(Cluster):
    @initialize(workers=st.integers(2, MOST_WORKERS))
    def set_up(self, workers: int) -> None:
        self.begin(workers, 0)

    @precondition(lambda self: len(self.model.groups) == 1)
    @rule(seconds=st.lists(st.sampled_from([1.0, 1.2, 5.0, 9.0]), min_size=MOST_WORKERS, max_size=MOST_WORKERS))
    def speeds_are_known(self, seconds: list[float]) -> None:
        groups = grouped(seconds[: self.shape[0]])
        self.call("split", groups)
        self.model.groups = groups
        self.settle()


BOUNDS = settings(max_examples=60, stateful_step_count=40)
for machine in (BulkSynchronous, WithBackupWorkers, StaleSynchronous, Asynchronous, Grouped):
    machine.TestCase.settings = BOUNDS
TestBulkSynchronous = BulkSynchronous.TestCase
TestWithBackupWorkers = WithBackupWorkers.TestCase
TestStaleSynchronous = StaleSynchronous.TestCase
TestAsynchronous = Asynchronous.TestCase
TestGrouped = Grouped.TestCase
