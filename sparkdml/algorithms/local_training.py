"""Rounds of local training, whose workers then exchange what they found."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.intervals import Interval, Measured, seconds
from sparkdml.algorithms.progress import Limits, Progress, observed
from sparkdml.core import Turn, Update
from sparkdml.data.block import Block
from sparkdml.optim.local_solver import LocalObjective, LocalSolver
from sparkdml.problem import Differentiable


@dataclass(frozen=True)
class LocalState(Progress):
    """``coef`` is ``[point, local steps, 1 if the loss there is asked for]``.

    ``rounds`` are over; since the last evaluation workers have read their rows ``unseen`` times.
    """

    rounds: int = 0
    unseen: float = 0.0
    measured: Measured = field(default_factory=Measured)

    @property
    def point(self) -> np.ndarray:
        return self.coef[:-2]

    @property
    def steps(self) -> int:
        return int(self.coef[-2])

    @property
    def ratio(self) -> float:
        """Measured compute over exchange; NaN before it is known."""
        return self.measured.ratio


@dataclass(frozen=True)
class Replica:
    """A worker's memory: its solver's, its own point if it has one, and when its last work ended."""

    solver: Any
    point: np.ndarray | None
    ended: float


@dataclass(frozen=True)
class LocalTraining(Algorithm[Differentiable]):
    """Workers solve alone for an interval, then exchange. What they start from and how they agree is the subclass's.

    Every update holds W_k, the sum of a worker's row weights, as ``weight``. The loss is evaluated, and an iteration
    counted, as soon as all rows have been read once since the last time; with intervals of a pass, in every round.
    """

    solver: LocalSolver
    interval: Interval
    limits: Limits

    @property
    def solves(self) -> type[Differentiable]:
        return self.solver.solves

    def init(self, problem: Differentiable, coef: np.ndarray) -> LocalState:
        return LocalState(coef=_message(coef, self.interval.first(), True), best=coef)

    def work(
        self, problem: Differentiable, blocks: Sequence[Block], coef: np.ndarray, memory: Replica | None, turn: Turn
    ) -> tuple[Update, Replica | None]:
        began = time.monotonic()
        shared, steps, asked = coef[:-2], int(coef[-2]), bool(coef[-1])
        objective = LocalObjective(problem, blocks)
        weight, passes = objective.weight_sum, 0.0
        point = self._start(shared, None if memory is None else memory.point)
        kept = None if memory is None else memory.solver
        # a negative number of steps asks for nothing but the loss
        if weight > 0.0 and steps >= 0:
            point, kept = self.solver.solve(objective, point, kept, steps, turn)
            passes = self.solver.passes(objective, steps)
        told = seconds(began, time.monotonic(), None if memory is None else memory.ended)
        loss = problem.loss_sum(blocks, shared, turn.threads) if asked else 0.0
        sent, own = self._exchange(shared, point, weight, turn)
        update = {"loss": loss, "weight": weight, "workers": float(weight > 0.0), "passes": weight * passes}
        return {**update, **sent, **told}, Replica(kept, own, time.monotonic()) if weight > 0.0 else None

    def advance(self, problem: Differentiable, state: LocalState, total: Update) -> LocalState:
        asked, unseen = bool(state.coef[-1]), state.unseen
        moved, point = self._agree(state, total)
        if asked:
            moved, unseen = observed(moved, problem, state.point, float(total["loss"]), self.limits), 0.0
        measured = state.measured.heard(total)
        unseen += measured.passes
        steps = self.interval.after(state.steps, state.rounds + 1, measured)
        return replace(
            moved,
            coef=_message(point, steps, unseen >= 1.0 - 1e-9),
            rounds=state.rounds + 1,
            unseen=unseen,
            measured=measured if steps == state.steps else Measured(),
        )

    @abstractmethod
    def _start(self, shared: np.ndarray, own: np.ndarray | None) -> np.ndarray:
        """Where a worker's local steps start, given the shared point and its own, if it has one."""

    @abstractmethod
    def _exchange(
        self, shared: np.ndarray, point: np.ndarray, weight: float, turn: Turn
    ) -> tuple[Update, np.ndarray | None]:
        """What a worker tells of the ``point`` its local steps reached, and its own point for the next round."""

    @abstractmethod
    def _agree(self, state: Any, total: Update) -> tuple[Any, np.ndarray]:
        """The state with what else changes, and the next shared point."""


def _message(point: np.ndarray, steps: int, asked: bool) -> np.ndarray:
    return np.concatenate([point, [float(steps), float(asked)]])
