"""A Spark job in a thread of its own, which holds its slots for long and gives them up to others that wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

#: A job of others that waits so long for slots gets them.
PATIENCE_SECONDS = 1.0

logger = logging.getLogger(__name__)


class SideJob:
    """``run``, which starts a job and waits for its results, in a thread; ``name`` is the job's group.

    ``beside`` are groups of jobs that belong to this one: they are no others who wait for slots.
    """

    def __init__(
        self,
        sc: SparkContext,
        name: str,
        description: str,
        run: Callable[[], list[Any]],
        beside: Collection[str] = (),
    ) -> None:
        from pyspark import InheritableThread

        self._sc, self._name, self._beside = sc, name, beside
        self.results: list[Any] = []
        self.error: Exception | None = None
        self.gave_way = False

        def work() -> None:
            sc.setJobGroup(name, description, interruptOnCancel=True)
            try:
                self.results = run()
            except Exception as error:
                self.error = error

        self._thread: Any = InheritableThread(target=work, daemon=True)
        self._thread.start()

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether the job is over, or is so within some seconds."""
        if seconds:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """End the job if it still runs, and wait until it has ended."""
        if self._thread.is_alive():
            self._sc.cancelJobGroup(self._name)
            self._thread.join(30.0)

    @contextmanager
    def giving_way(self, told: str) -> Iterator[None]:
        """While this is open, give up the slots as soon as another job of the application waits for some.

        A job that the driver starts meanwhile would wait for these slots, and this job for the driver. ``told`` is the
        warning then.
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
                    logger.warning("%s", told)
                    self.gave_way = True
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

    def stages(self) -> list[Any]:
        """What Spark tells of the job's stages."""
        return stages_of(self._sc, self._sc.statusTracker().getJobIdsForGroup(self._name))

    def _others_wait(self) -> bool:
        """Whether a job of others has tasks to run, and none of them runs."""
        tracker = self._sc.statusTracker()
        own = {job for group in (self._name, *self._beside) for job in tracker.getJobIdsForGroup(group)}
        others = [job for job in tracker.getActiveJobsIds() if job not in own]
        if self.ended() or not others:
            return False
        return not any(stage.numActiveTasks for stage in stages_of(self._sc, others))


def stages_of(sc: SparkContext, jobs: Iterable[int]) -> list[Any]:
    """``SparkStageInfo`` of every stage of ``jobs`` that Spark still knows."""
    tracker = sc.statusTracker()
    infos = [tracker.getJobInfo(job) for job in jobs]
    stages = [tracker.getStageInfo(stage) for info in infos if info is not None for stage in info.stageIds]
    return [stage for stage in stages if stage is not None]
