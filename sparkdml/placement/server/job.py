"""The Spark job of a fit's workers, begun again where it ends too early."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparkdml.data.dataset import MAX_REBUILDS, Dataset, FilesVanishError
from sparkdml.placement.gang import WorkerError
from sparkdml.placement.server.tenure import Tenure
from sparkdml.placement.server.watch import Watch
from sparkdml.placement.server.work import Orders, working
from sparkdml.placement.side_job import SideJob
from sparkdml.resources.slots import task_slots

if TYPE_CHECKING:
    from pyspark import SparkContext

LOOK_SECONDS = 0.005
#: How often workers are asked whether they lack blocks: each question takes a server about as long as a worker's.
ASK_SECONDS = 0.05
#: How often it is seen to whether servers have lost their backups.
TEND_SECONDS = 1.0
#: For workers to leave once the fit is over.
END_SECONDS = 10.0
#: A fit goes on after so many ends of its workers' job, by lost tasks or by others that needed the slots.
MAX_RESTARTS = 20

_GIVES_WAY = (
    "a Spark job waits while the workers of a fit with placement='server' hold all slots: they leave, and come back "
    "after it; placement='broadcast' leaves slots free"
)


class ServersLostError(RuntimeError):
    """A worker could not reach a server, or was refused by it."""


class Job:
    """The workers of one fit beside ``servers``, at which ``watch`` looks."""

    def __init__(self, dataset: Dataset, orders: Orders, servers: Tenure, watch: Watch) -> None:
        self._dataset, self._orders, self._servers, self._watch = dataset, orders, servers, watch
        self._sc: SparkContext = dataset.context

    def run(self, state: Any) -> Any:
        """The state that says stop. Raises ServersLostError and ServerError."""
        restarts = vanished = 0
        while True:
            job = self._begun()
            try:
                with job.giving_way(_GIVES_WAY):
                    state, missing, moved = self._until_over(job, state)
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
            if moved:
                self._orders = replace(self._orders, addresses=tuple(self._servers.fleet.addresses))
                self._watch.turn_to(self._servers.client)
            else:
                self._check(job)
            restarts += 1
            if restarts > MAX_RESTARTS:
                raise RuntimeError(f"the workers of a fit with placement='server' ended early {restarts} times")

    def _until_over(self, job: SideJob, state: Any) -> tuple[Any, list[int], bool]:
        """The state after the last pass that was heard of, workers without blocks, and whether servers have moved."""
        tended = asked = time.monotonic()
        while state.stop is None:
            found = self._watch.look(state)
            if found is state:
                ended, missing = job.ended(), list[int]()
                if ended or time.monotonic() > asked + ASK_SECONDS:
                    missing, asked = self._watch.missing(), time.monotonic()
                if missing or ended:
                    return self._watch.look(state), missing, False  # what they told last
                time.sleep(LOOK_SECONDS)
            state = found
            if time.monotonic() > tended + TEND_SECONDS:
                if self._servers.tend():
                    return state, [], True
                tended = time.monotonic()
        return state, [], False

    def _begun(self) -> SideJob:
        """The job: a task a partition where it is, or fewer where slots are fewer."""
        fleet, count = self._servers.fleet, self._dataset.partitions
        slots = task_slots(self._sc) - fleet.slots
        work = working(self._orders)
        if count <= slots:
            rdd = self._dataset.rdd()
        elif self._dataset.is_here:
            handles = self._dataset.handles
            rdd = self._sc.parallelize([handles[seat::slots] for seat in range(slots)], slots).flatMap(list)
        else:
            besides = f", of which servers hold {fleet.slots}" if fleet.slots else ""
            raise ValueError(
                f"placement='server' needs all workers at once: {count} partitions, but {slots + fleet.slots} "
                f"slots{besides}; coalesce the data, or add executors"
            )
        what = "sparkdml: workers of a parameter server"
        beside = [fleet.group] if fleet.group else []
        return SideJob(self._sc, uuid.uuid4().hex, what, lambda: list(rdd.mapPartitions(work).collect()), beside)

    @staticmethod
    def _check(job: SideJob) -> None:
        """Raises what ended the job too early, unless that was others' need of its slots."""
        raised = [detail for kind, detail in job.results if kind == "raised"]
        if raised:
            raise WorkerError(raised[0])
        lost = [detail for kind, detail in job.results if kind == "lost"]
        if lost:
            raise ServersLostError(f"a worker lost its parameter server: {lost[0]}; fit again")
        if job.error is not None and not job.gave_way:
            raise RuntimeError("workers of a fit with placement='server' were lost") from job.error
