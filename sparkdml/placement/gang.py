"""Workers that run side by side through one barrier job, and sum their updates among themselves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkdml.placement.gang_worker import Orders, worker

if TYPE_CHECKING:
    from pyspark import SparkContext

#: A job of others that waits so long for slots gets them.
PATIENCE_SECONDS = 1.0

#: A job of which no task runs for so long, after its first worker has gone, waits for slots that it may never get.
GRACE_SECONDS = 10.0
LOOK_SECONDS = 1.0

logger = logging.getLogger(__name__)


class WorkerError(RuntimeError):
    """A worker raised; the message is its traceback."""


@dataclass(frozen=True)
class Outcome:
    """How a gang ended: lost partitions, or a lost worker, or neither."""

    state: Any = None
    missing: tuple[int, ...] = ()
    error: Exception | None = None


class Gang:
    """A barrier job in a thread of its own."""

    def __init__(self, sc: SparkContext, group: str) -> None:
        self._sc, self._group = sc, group
        self._thread: Any = None
        self._results: list[tuple[int, str, Any]] = []
        self._error: Exception | None = None
        self._gave_way = False

    def start(self, orders: Orders) -> None:
        from pyspark import InheritableThread

        def run() -> None:
            sc = self._sc
            sc.setJobGroup(self._group, "sparkdml: workers that sum among themselves", interruptOnCancel=True)
            try:
                ranks = sc.parallelize(range(orders.workers), orders.workers)
                self._results = ranks.barrier().mapPartitions(worker(orders)).collect()
            except Exception as error:
                self._error = error

        self._thread = InheritableThread(target=run, daemon=True)
        self._thread.start()

    def ended(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Outcome:
        """How the job ended. Raises WorkerError where a worker raised.

        Nobody reports any more when this is called. Workers that still run are waited for, however long their round is:
        they find the others gone, or have a traceback to tell. But Spark's own repetition of a stage that lost a worker
        begins at the start, and would wait for a driver that has written it off.
        """
        idle = 0.0
        while self._thread.is_alive():
            self._thread.join(LOOK_SECONDS)
            stages = self._stages()
            idle = 0.0 if any(stage.numActiveTasks for stage in stages) else idle + LOOK_SECONDS
            repeated = any(stage.currentAttemptId for stage in stages)
            if (repeated or idle > GRACE_SECONDS) and self._thread.is_alive():
                self.cancel()
                return Outcome(error=RuntimeError("a worker was lost" if repeated else "an executor's slots were lost"))
        if self._gave_way:
            return Outcome()
        raised = [detail for _, kind, detail in self._results if kind == "raised"]
        if raised:
            raise WorkerError(raised[0])
        missing = sorted({p for _, kind, detail in self._results if kind == "missing" for p in detail})
        if missing:
            return Outcome(missing=tuple(missing))
        lost = [detail for _, kind, detail in self._results if kind == "lost"]
        if self._error is None and lost:
            return Outcome(error=RuntimeError(lost[0]))
        return Outcome(error=self._error)

    @contextmanager
    def giving_way(self) -> Iterator[None]:
        """While this is open, give up the slots as soon as another job of the application waits for some.

        For the time in which the driver does something else, such as calling a user's function: a job that it starts
        would wait for the gang's slots, and the gang for its end.
        """
        over = threading.Event()

        def watch() -> None:
            while not over.is_set():
                try:
                    waits = self._others_wait()
                except Exception as error:  # then a job that waits is not found, which must not pass unseen
                    logger.warning("cannot see whether other jobs wait for the workers' slots: %s", error)
                    return
                if waits:
                    logger.warning(
                        "a Spark job waits between two rounds, and the workers hold all slots: they give way to it "
                        "and start again afterwards, which takes seconds; placement='broadcast' leaves slots free"
                    )
                    self._gave_way = True
                    self.cancel()
                    return
                over.wait(PATIENCE_SECONDS)

        watcher = threading.Timer(PATIENCE_SECONDS, watch)
        watcher.daemon = True
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.cancel()
            watcher.join()

    def _stages(self) -> list[Any]:
        """What Spark tells of the gang's stages."""
        return stages_of(self._sc, self._sc.statusTracker().getJobIdsForGroup(self._group))

    def _others_wait(self) -> bool:
        """Whether a job of others has tasks to run, and none of them runs."""
        tracker = self._sc.statusTracker()
        own = set(tracker.getJobIdsForGroup(self._group))
        others = [job for job in tracker.getActiveJobsIds() if job not in own]
        if self.ended() or not others:
            return False
        return not any(stage.numActiveTasks for stage in stages_of(self._sc, others))

    def cancel(self) -> None:
        """End the job if it still runs, and wait until it has ended."""
        if self._thread is not None and self._thread.is_alive():
            self._sc.cancelJobGroup(self._group)
            self._thread.join(30.0)


def stages_of(sc: SparkContext, jobs: Iterable[int]) -> list[Any]:
    """``SparkStageInfo`` of every stage of ``jobs`` that Spark still knows."""
    tracker = sc.statusTracker()
    infos = [tracker.getJobInfo(job) for job in jobs]
    stages = [tracker.getStageInfo(stage) for info in infos if info is not None for stage in info.stageIds]
    return [stage for stage in stages if stage is not None]
