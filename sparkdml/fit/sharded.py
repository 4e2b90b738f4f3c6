"""One fit by shards: rounds of a partitioned model, and those who watch them."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdml.algorithms.sharded import Sharded
from sparkdml.algorithms.starts import Start
from sparkdml.algorithms.states import describe
from sparkdml.fit.checkpoint import Checkpoint, Keeping, data_identity
from sparkdml.fit.prepared import Prepared
from sparkdml.fit.shard_checkpoint import ShardCheckpoint
from sparkdml.fit.watch import Callback, calling, together
from sparkdml.placement import Choice, OnRound, Partitioned, TrainedShards
from sparkdml.problem import Objective
from sparkdml.report.fit_report import FitReport, fit_report
from sparkdml.report.history import History
from sparkdml.report.progress import progress_bar
from sparkdml.resources.hadoop import HadoopPath

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShardedRun:
    """How a fit by shards is run, and what surrounds its rounds."""

    chosen: Choice
    callback: Callback | None = None
    progress: bool = False
    keeping: Keeping | None = None

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
        checkpoint = self._checkpoint(algorithm, start, given, initial, history)
        watchers: list[OnRound] = []
        with ExitStack() as stack:
            if self.callback is not None:
                watchers.append(calling(self.callback, history))
            bar = stack.enter_context(progress_bar(self.progress))
            if bar is not None:
                watchers.append(bar)
            on_round = together(watchers) if watchers else None
            trained = placement.train(
                algorithm, objective, given.dataset, start, on_round, history, initial, finish, checkpoint
            )
        stop = trained.lead.stop
        assert stop is not None
        if stop.reason == "diverged":
            trained.chunks.unpersist()
            raise ValueError(f"the fit diverged: {stop.message}; {stop.remedy}")
        if checkpoint is not None:
            checkpoint.finish()
        where = f"{placement.name}: {self.chosen.reason}"
        reached = objective.told * trained.lead.objective
        return trained, fit_report(
            stop, reached, history, given.ingest_seconds, given.dataset.stored_bytes, solver, where
        )

    def _checkpoint(
        self, algorithm: Sharded, start: np.ndarray, given: Prepared, initial: Start | None, history: History
    ) -> ShardCheckpoint | None:
        if self.keeping is None:
            return None
        identity = {
            **self.keeping.params,
            "algorithm": type(algorithm).__name__,
            "start": _digest([start, initial]),
            **data_identity(given.dataset),
        }
        sc, directory = given.dataset.context, self.keeping.directory
        checkpoint = Checkpoint(sc, directory, self.keeping.interval, identity, history)
        return ShardCheckpoint(checkpoint, HadoopPath(sc, directory))


def _digest(value: Any) -> str:
    tree, arrays = describe(value)
    digest = hashlib.sha256(json.dumps(tree).encode())
    for array in arrays.values():
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]
