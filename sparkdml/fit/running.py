"""One fit: rounds under a placement, and those who watch them."""

from __future__ import annotations

import hashlib
import logging
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdml.algorithms.base import Algorithm, require_solvable
from sparkdml.fit.checkpoint import Checkpoint, Keeping, data_identity
from sparkdml.fit.prepared import Prepared
from sparkdml.fit.validation import EarlyStopping, MeanLoss
from sparkdml.fit.watch import Callback, calling, together
from sparkdml.placement import Choice, OnRound, Placement
from sparkdml.problem import Differentiable
from sparkdml.report.fit_report import FitReport, fit_report
from sparkdml.report.history import History
from sparkdml.report.progress import progress_bar

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """How a fit is run: the placement, and what surrounds its rounds."""

    chosen: Choice
    patience: int = 1
    callback: Callback | None = None
    progress: bool = False
    keeping: Keeping | None = None

    def fit(
        self, algorithm: Algorithm, problem: Differentiable, start: np.ndarray, given: Prepared, solver: str
    ) -> tuple[Any, FitReport]:
        """The algorithm's final state (the best one by validation rows, if there are any), and the report."""
        require_solvable(algorithm, problem)
        placement = self.chosen.placement
        assert isinstance(placement, Placement)
        logger.info("solver %s; placement %s: %s", solver, placement.name, self.chosen.reason)
        history = History()
        state = algorithm.init(problem, start)
        watchers: list[OnRound] = []
        with ExitStack() as stack:
            stopping = None
            if given.validation is not None:
                ask = stack.enter_context(placement.exchange(MeanLoss(), problem, given.validation))
                stopping = EarlyStopping(ask, self.patience)
                watchers.append(stopping)
            checkpoint = self._checkpoint(algorithm, start, given, history, stopping)
            if checkpoint is not None:
                state = checkpoint.resume(state)
            if self.callback is not None:
                watchers.append(calling(self.callback, history))
            bar = stack.enter_context(progress_bar(self.progress))
            watchers += [watcher for watcher in (bar, checkpoint) if watcher is not None]
            on_round = together(watchers) if watchers else None
            state = placement.train(algorithm, problem, state, given.dataset, on_round, history).state
        if state.stop.reason == "diverged":
            raise ValueError(f"the fit diverged: {state.stop.message}; {state.stop.remedy}")
        if stopping is not None:
            history.rounds[:] = stopping.annotate(history.rounds, problem.told)
            state = stopping.best_of(state)
        if checkpoint is not None:
            checkpoint.finish()
        where = f"{placement.name}: {self.chosen.reason}"
        stored = given.dataset.stored_bytes
        report = fit_report(
            state.stop, problem.told * state.objective, history, given.ingest_seconds, stored, solver, where
        )
        return state, report

    def _checkpoint(
        self, algorithm: Algorithm, start: np.ndarray, given: Prepared, history: History, stopping: EarlyStopping | None
    ) -> Checkpoint | None:
        if self.keeping is None:
            return None
        identity = {
            **self.keeping.params,
            "algorithm": type(algorithm).__name__,
            "start": hashlib.sha256(start.tobytes()).hexdigest()[:16],
            **data_identity(given.dataset),
        }
        if given.validation is not None:
            held = data_identity(given.validation)
            identity.update({f"validation {name}": value for name, value in held.items()})
        directory, interval = self.keeping.directory, self.keeping.interval
        return Checkpoint(given.dataset.context, directory, interval, identity, history, stopping)
