"""A fit beside a parameter server: the driver starts it, launches the workers, and looks at every pass."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.progress import observed
from sparkdml.data.dataset import MAX_REBUILDS, Dataset, FilesVanishError
from sparkdml.placement.base import Exchange, OnRound, Placement, Trained
from sparkdml.placement.gang import WorkerError
from sparkdml.placement.local import Local
from sparkdml.placement.server.gradients import Pace
from sparkdml.placement.server.methods import side_work
from sparkdml.placement.server.sidework import SideWork
from sparkdml.placement.server.tables import CONTROL, MISSING, PASSES, READ, start_of
from sparkdml.placement.server.work import Orders, working
from sparkdml.placement.ship import ship
from sparkdml.placement.side_job import SideJob
from sparkdml.problem import Problem
from sparkdml.report.history import History, Round
from sparkdml.resources.slots import task_slots
from sparkdml.server import launch
from sparkdml.server.client import Client, Push
from sparkdml.server.metrics import NOBODY
from sparkdml.server.stale import AS_IT_COMES, REVISION, stale_way

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.005
#: For workers to leave once the fit is over.
END_SECONDS = 10.0
#: A fit goes on after so many ends of its workers' job, by lost tasks or by others that needed the slots.
MAX_RESTARTS = 20

_GIVES_WAY = (
    "a Spark job waits while the workers of a fit with placement='server' hold all slots: they leave, and come back "
    "after it; placement='broadcast' leaves slots free"
)


@dataclass(frozen=True)
class Sidecar:
    """How workers cooperate through servers: ``staleness`` 0 is BSP, n SSP, -1 ASP; ``shards`` processes.

    ``backup_workers`` are how many of the slowest a BSP round does without; ``replicas`` backups stand by each shard.
    ``stale``: see :func:`sparkdml.server.stale.stale_way`. ``pace``: how often a worker pushes and pulls.
    """

    staleness: int = 0
    shards: int = 1
    backup_workers: int = 0
    replicas: int = 0
    stale: str = AS_IT_COMES
    pace: Pace = Pace()

    def __post_init__(self) -> None:
        if self.stale != REVISION:
            stale_way(self.stale, 1)
        if self.stale != AS_IT_COMES and self.staleness == 0:
            raise ValueError(
                f"staleGradients='{self.stale}' with staleness=0: gradients of rounds are of the present values; set "
                "staleness to -1 or to a number of clocks"
            )
        if self.backup_workers and self.staleness != 0:
            raise ValueError(
                f"backupWorkers={self.backup_workers} with staleness={self.staleness}: only rounds (staleness=0) can "
                "do without some workers; unset one of them"
            )


class Server(Placement):
    """Parameters live in processes beside Spark, which take the steps; workers are ordinary tasks that pull and push.

    With ``staleness=0`` workers step together, along the sum of what they say, as under other placements, to the last
    bit. Otherwise each worker's gradient is a step of its own, taken when it comes: workers do not wait for one that is
    slow (more than ``staleness`` clocks apart, or ever). Ho et al., "More effective distributed ML via a stale
    synchronous parallel parameter server" (2013); Recht et al. (2011) for steps that overlap.

    A task that dies is run again by Spark alone, and goes on at its clock.
    """

    name = "server"
    latency_seconds = 0.002

    def __init__(self, sidecar: Sidecar | None = None) -> None:
        self.sidecar = sidecar or Sidecar()

    @contextmanager
    def exchange(self, algorithm: Algorithm, problem: Problem, dataset: Dataset) -> Iterator[Exchange]:
        """Single questions, such as a validation loss, are answered in the driver: workers hold all slots."""
        if not dataset.is_here:
            raise ValueError(
                "placement='server' holds all slots, so validation rows on other hosts cannot be asked meanwhile; use "
                "placement='broadcast' with validationIndicatorCol"
            )
        with Local().exchange(algorithm, problem, dataset) as ask:
            yield ask

    def train(
        self,
        algorithm: Algorithm,
        problem: Problem,
        state: Any,
        dataset: Dataset,
        on_round: OnRound | None = None,
        history: History | None = None,
    ) -> Trained:
        dataset.check_open()
        history = History() if history is None else history
        workers = len(dataset.handles)
        steps = side_work(algorithm, problem, workers, self.sidecar)
        with (
            self._launched(workers) as servers,
            servers.client() as client,
            ship(dataset.context, steps, 24 * problem.features) as there,
        ):
            steps.create(client)
            client.assign({**steps.begin(state.best), CONTROL: Push(np.array([0.0, 0.0, -1.0]))})
            partitions = tuple(handle.partition for handle in dataset.handles)
            orders = Orders(there, partitions, tuple(servers.addresses), servers.security)
            watch = _Watch(client, steps, history, on_round)
            state = _Fit(dataset, orders, watch).run(state)
            history.servers = [status["workers"] for status in client.status()]
        return Trained(replace(state, coef=state.best), history)

    def _launched(self, workers: int) -> launch.Servers:
        how = self.sidecar
        return launch.local(how.shards, workers, how.staleness, how.backup_workers, replicas=how.replicas)


class _Watch:
    """The driver's look at every pass: its objective, whether to stop, what it cost."""

    def __init__(self, client: Client, steps: SideWork, history: History, on_round: OnRound | None) -> None:
        self._client, self._steps, self._history, self._on_round = client, steps, history, on_round
        self._seen, self._asked, self._computed = 0, -1, 0.0
        self._sent = self._received = 0
        self._began = time.perf_counter()

    def look(self, state: Any) -> Any:
        """The state after the next pass has begun everywhere; the same one if it has not."""
        number, steps = self._seen, self._steps
        if not steps.in_step and not self._wanted(number):
            return state
        losses, told, seconds = self._client.pull({PASSES: steps.lines_of(number)})[PASSES].T
        if not told.all():
            return state
        point = self._client.pull({start_of(number): None})[start_of(number)]
        state = observed(state, steps.problem, point, float(sum(losses.tolist())), steps.limits)
        self._seen = number + 1
        self._say(state)
        done = self._entry(number, state, float(seconds.mean()))
        self._history.rounds.append(done)
        if self._on_round is not None:
            asked = self._on_round(done, state)
            if asked is not None and state.stop is None:
                state = replace(state, stop=asked)
                self._say(state)
        return state

    def missing(self) -> list[int]:
        """Workers that have not found their blocks."""
        return np.flatnonzero(self._client.pull({MISSING: None})[MISSING]).tolist()

    def found(self) -> None:
        """Their blocks are there again."""
        self._client.assign({MISSING: Push(np.zeros(self._steps.workers))})

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

    def _say(self, state: Any) -> None:
        over = state is not None and state.stop is not None
        self._client.assign({CONTROL: Push(np.array([over, self._seen, self._asked], float))})

    def _bytes(self) -> tuple[int, int]:
        """What servers have sent to workers and received from them so far."""
        told = [
            worker for status in self._client.status() for name, worker in status["workers"].items() if name != NOBODY
        ]
        names = "sent_bytes_total", "received_bytes_total"
        down, up = (int(sum(worker.get(name, 0.0) for worker in told)) for name in names)
        return down, up

    def _entry(self, number: int, state: Any, computed: float) -> Round:
        """Of the pass before this look; ``computed`` is what a worker has computed on average since it began."""
        now = time.perf_counter()
        seconds, self._began = now - self._began, now
        compute, self._computed = min(max(computed - self._computed, 0.0), seconds), computed
        sent, received, self._sent, self._received = self._sent, self._received, *self._bytes()
        return Round(
            round=number,
            iteration=state.iteration,
            objective=self._steps.problem.told * state.objective,
            gradient_norm=state.gradient_norm,
            compute_seconds=compute,
            aggregate_seconds=seconds - compute,
            driver_seconds=0.0,
            bytes_down=self._sent - sent,
            bytes_up=self._received - received,
            bytes_driver=8 * self._steps.problem.size,
        )


class _Fit:
    """The workers' job, begun again where it ends too early."""

    def __init__(self, dataset: Dataset, orders: Orders, watch: _Watch) -> None:
        self._dataset, self._orders, self._watch = dataset, orders, watch
        self._sc: SparkContext = dataset.context

    def run(self, state: Any) -> Any:
        """The state that says stop."""
        restarts = vanished = 0
        missing: list[int] = []
        while True:
            job = SideJob(self._sc, uuid.uuid4().hex, "sparkdml: workers of a parameter server", self._tasks())
            try:
                with job.giving_way(_GIVES_WAY):
                    state, missing = self._until_over(job, state)
            finally:
                if state.stop is None or not job.ended(END_SECONDS):
                    job.cancel()
            if state.stop is not None:
                return state
            if missing:
                vanished += 1
                if vanished > MAX_REBUILDS:
                    raise FilesVanishError
                self._dataset.restore([self._orders.partitions[number] for number in missing])
                self._watch.found()
                continue
            self._check(job)
            restarts += 1
            if restarts > MAX_RESTARTS:
                raise RuntimeError(f"the workers of a fit with placement='server' ended early {restarts} times")

    def _until_over(self, job: SideJob, state: Any) -> tuple[Any, list[int]]:
        """The state after the last pass that was heard of, and workers without blocks."""
        while state.stop is None:
            found = self._watch.look(state)
            if found is state:
                missing = self._watch.missing()
                if missing or job.ended():
                    return self._watch.look(state), missing  # what they told last
                time.sleep(LOOK_SECONDS)
            state = found
        return state, []

    def _tasks(self) -> Any:
        """The function that runs the job: a task a partition where it is, or fewer where slots are fewer."""
        slots, count = task_slots(self._sc), self._dataset.partitions
        work = working(self._orders)
        if count <= slots:
            rdd = self._dataset.rdd()
        elif self._dataset.is_here:
            handles = self._dataset.handles
            rdd = self._sc.parallelize([handles[seat::slots] for seat in range(slots)], slots).flatMap(list)
        else:
            raise ValueError(
                f"placement='server' needs all workers at once: {count} partitions, but {slots} slots; coalesce the "
                "data, or add executors"
            )
        return lambda: list(rdd.mapPartitions(work).collect())

    @staticmethod
    def _check(job: SideJob) -> None:
        """Raises what ended the job too early, unless that was others' need of its slots."""
        raised = [detail for kind, detail in job.results if kind == "raised"]
        if raised:
            raise WorkerError(raised[0])
        lost = [detail for kind, detail in job.results if kind == "lost"]
        if lost:
            raise RuntimeError(f"a worker lost its parameter server: {lost[0]}; fit again")
        if job.error is not None and not job.gave_way:
            raise RuntimeError("workers of a fit with placement='server' were lost") from job.error
