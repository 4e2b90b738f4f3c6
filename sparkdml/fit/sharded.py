"""One fit by shards: rounds of a partitioned model, and those who watch them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from sparkdml.algorithms.sharded import Sharded
from sparkdml.algorithms.starts import Start
from sparkdml.fit.prepared import Prepared
from sparkdml.fit.watch import Callback, calling, together
from sparkdml.placement import Choice, OnRound, Partitioned, TrainedShards
from sparkdml.problem import Objective
from sparkdml.report.fit_report import FitReport, fit_report
from sparkdml.report.history import History
from sparkdml.report.progress import progress_bar

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShardedRun:
    """How a fit by shards is run, and what surrounds its rounds."""

    chosen: Choice
    callback: Callback | None = None
    progress: bool = False

    def fit(
        self,
        algorithm: Sharded,
        objective: Objective,
        start: np.ndarray,
        given: Prepared,
        solver: str,
        initial: Start | None = None,
        finish: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> tuple[TrainedShards, FitReport]:
        """The model in shards, and the report; arguments are those of :meth:`~sparkdml.placement.Partitioned.train`."""
        placement = self.chosen.placement
        assert isinstance(placement, Partitioned)
        logger.info("solver %s; placement %s: %s", solver, placement.name, self.chosen.reason)
        history = History()
        watchers: list[OnRound] = []
        with ExitStack() as stack:
            if self.callback is not None:
                watchers.append(calling(self.callback, history))
            bar = stack.enter_context(progress_bar(self.progress))
            if bar is not None:
                watchers.append(bar)
            on_round = together(watchers) if watchers else None
            trained = placement.train(algorithm, objective, given.dataset, start, on_round, history, initial, finish)
        stop = trained.lead.stop
        assert stop is not None
        if stop.reason == "diverged":
            trained.chunks.unpersist()
            raise ValueError(f"the fit diverged: {stop.message}; {stop.remedy}")
        where = f"{placement.name}: {self.chosen.reason}"
        reached = objective.told * trained.lead.objective
        return trained, fit_report(
            stop, reached, history, given.ingest_seconds, given.dataset.stored_bytes, solver, where
        )
