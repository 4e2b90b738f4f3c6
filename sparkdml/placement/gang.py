"""Workers that run side by side through one barrier job, and sum their updates among themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkdml.placement.gang_worker import Orders, worker
from sparkdml.placement.side_job import SideJob
from sparkdml.resources.gpus.workers import Workers

if TYPE_CHECKING:
    from pyspark import SparkContext

#: A job of which no task runs for so long, after its first worker has gone, waits for slots that it may never get.
GRACE_SECONDS = 10.0
LOOK_SECONDS = 1.0

_GIVES_WAY = (
    "a Spark job waits between two rounds, and the workers hold all slots: they give way to it and start again "
    "afterwards, which takes seconds; placement='broadcast' leaves slots free"
)


class WorkerError(RuntimeError):
    """A worker raised; the message is its traceback."""


@dataclass(frozen=True)
class Outcome:
    """How a gang ended: lost partitions, or a lost worker, or neither. ``devices``: by rank, if they have GPUs."""

    state: Any = None
    missing: tuple[int, ...] = ()
    error: Exception | None = None
    devices: tuple[str, ...] = ()


class Gang:
    """A barrier job at the side of the driver's work."""

    def __init__(self, sc: SparkContext, group: str, workers: Workers) -> None:
        self._sc, self._group, self._workers = sc, group, workers
        self._job: SideJob | None = None

    def start(self, orders: Orders) -> None:
        def run() -> list[Any]:
            ranks = self._sc.parallelize(range(orders.workers), orders.workers)
            return list(self._workers.holding(ranks.barrier().mapPartitions(worker(orders))).collect())

        self._job = SideJob(self._sc, self._group, "sparkdml: workers that sum among themselves", run)

    def ended(self) -> bool:
        assert self._job is not None
        return self._job.ended()

    def result(self) -> Outcome:
        """How the job ended. Raises WorkerError where a worker raised.

        Nobody reports any more when this is called. Workers that still run are waited for, however long their round is:
        they find the others gone, or have a traceback to tell. But Spark's own repetition of a stage that lost a worker
        begins at the start, and would wait for a driver that has written it off.
        """
        job = self._job
        assert job is not None
        idle = 0.0
        while not job.ended(LOOK_SECONDS):
            stages = job.stages()
            idle = 0.0 if any(stage.numActiveTasks for stage in stages) else idle + LOOK_SECONDS
            repeated = any(stage.currentAttemptId for stage in stages)
            if (repeated or idle > GRACE_SECONDS) and not job.ended():
                job.cancel()
                return Outcome(error=RuntimeError("a worker was lost" if repeated else "an executor's slots were lost"))
        if job.gave_way:
            return Outcome()
        raised = [detail for _, kind, detail in job.results if kind == "raised"]
        if raised:
            raise WorkerError(raised[0])
        missing = sorted({p for _, kind, detail in job.results if kind == "missing" for p in detail})
        if missing:
            return Outcome(missing=tuple(missing))
        lost = [detail for _, kind, detail in job.results if kind == "lost"]
        if job.error is None and lost:
            return Outcome(error=RuntimeError(lost[0]))
        devices = tuple(detail for _, kind, detail in sorted(job.results) if kind == "done" and detail)
        return Outcome(error=job.error, devices=devices)

    @contextmanager
    def giving_way(self) -> Iterator[None]:
        """While this is open, the gang ends as soon as another job waits for its slots (:meth:`SideJob.giving_way`).

        For the time in which the driver does something else, such as calling a user's function.
        """
        assert self._job is not None
        with self._job.giving_way(_GIVES_WAY):
            yield

    def cancel(self) -> None:
        """End the job if it still runs, and wait until it has ended."""
        if self._job is not None:
            self._job.cancel()
