"""Early stopping: rows that are held back tell when to stop, and which point was best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparkdml.algorithms.base import Algorithm, State
from sparkdml.core import Stop, Turn, Update
from sparkdml.data.block import Block
from sparkdml.placement.base import Exchange
from sparkdml.problem import Differentiable
from sparkdml.report.history import Round


@dataclass(frozen=True)
class MeanLoss(Algorithm[Differentiable]):
    """Asks the workers for their loss at a point, and does nothing else."""

    @property
    def solves(self) -> type[Differentiable]:
        return Differentiable

    def init(self, problem: Differentiable, coef: np.ndarray) -> Any:
        raise NotImplementedError("it only evaluates")

    def work(
        self, problem: Differentiable, blocks: Sequence[Block], coef: np.ndarray, memory: None, turn: Turn
    ) -> tuple[Update, None]:
        return {
            "loss": problem.loss_sum(blocks, coef),
            "weight": float(sum(block.weights.sum() for block in blocks)),
        }, None

    def advance(self, problem: Differentiable, state: Any, total: Update) -> Any:
        raise NotImplementedError("it only evaluates")


@dataclass(frozen=True)
class Memory:
    """What early stopping knows so far: the best loss, the state it belongs to, and the loss at each iteration."""

    iteration: int = -1
    point: np.ndarray | None = None
    since_best: int = 0
    best: float = math.inf
    state: Any = None
    losses: tuple[tuple[int, float], ...] = ()


class EarlyStopping:
    """Watches the mean loss (without penalty) of validation rows at every accepted point.

    Stops a fit after ``patience`` accepted points in a row that were no better than the best so far, which
    :meth:`best_of` returns.
    """

    def __init__(self, ask: Exchange, patience: int) -> None:
        self._ask, self._patience = ask, patience
        self.memory = Memory()

    def __call__(self, entry: Round, state: State) -> Stop | None:
        known = self.memory
        if state.iteration == known.iteration:
            return None
        if known.point is not None and np.array_equal(known.point, state.best):
            # an evaluation that brought no better point says nothing new of the validation rows
            latest = (state.iteration, known.losses[-1][1])
            self.memory = replace(known, iteration=state.iteration, losses=(*known.losses, latest))
            return None
        update = self._ask(state.best, entry.round).update
        loss = float(update["loss"]) / float(update["weight"])
        losses = (*known.losses, (state.iteration, loss))
        known = replace(known, iteration=state.iteration, point=state.best, losses=losses)
        if loss < known.best:
            self.memory = replace(known, best=loss, state=state, since_best=0)
            return None
        self.memory = replace(known, since_best=known.since_best + 1)
        if self.memory.since_best < self._patience:
            return None
        return Stop("validation", f"no better validation loss than {known.best:.6g} for {self._patience} iterations")

    def best_of(self, final: State) -> State:
        """The state with the lowest validation loss, with the final one's reason to stop."""
        best = self.memory.state
        return final if best is None else replace(best, stop=final.stop)

    def annotate(self, rounds: list[Round], told: float) -> list[Round]:
        """The rounds with ``told`` times the validation loss at each one's best point."""
        losses = {iteration: told * loss for iteration, loss in self.memory.losses}
        return [replace(entry, validation=losses.get(entry.iteration, math.nan)) for entry in rounds]
