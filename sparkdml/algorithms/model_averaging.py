"""Averaging of the models that workers reach alone: in rounds, or once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.intervals import Interval, Measured
from sparkdml.algorithms.local_training import LocalState, LocalTraining, Replica
from sparkdml.algorithms.progress import Limits
from sparkdml.core import Stop, Turn, Update
from sparkdml.data.block import Block
from sparkdml.optim.local_solver import LocalObjective, LocalSolver
from sparkdml.problem import Differentiable


@dataclass(frozen=True)
class ModelAveraging(LocalTraining):
    """``c <- sum_k W_k c_k / sum_k W_k``, where worker k reached ``c_k`` by local steps from ``c``.

    McDonald, Hall & Mann, *Distributed Training Strategies for the Structured Perceptron* (2010); Stich, *Local SGD
    Converges Fast and Communicates Little* (2019). Convex, with step sizes that fall like 1/t: the optimum;
    non-convex, with small steps: near a stationary point. One full-gradient step a round is gradient descent. With
    more of them, a constant step size and rows that differ between workers, it rests beside the optimum, the farther
    the longer intervals are: not for exact answers then.

    Updates hold ``model``, ``W_k c_k``, which neighbours can average among themselves; with ``absolute`` False
    ``change``, ``W_k (c_k - c)``, of which codecs lose less.
    """

    absolute: bool = True
    compressible: ClassVar[frozenset[str]] = frozenset({"change"})
    mixes: ClassVar[bool] = True

    def _start(self, shared: np.ndarray, own: np.ndarray | None) -> np.ndarray:
        return shared

    def _exchange(self, shared: np.ndarray, point: np.ndarray, weight: float, turn: Turn) -> tuple[Update, None]:
        return ({"model": weight * point} if self.absolute else {"change": weight * (point - shared)}), None

    def _agree(self, state: Any, total: Update) -> tuple[Any, np.ndarray]:
        return state, average(state.point, total)


def average(shared: np.ndarray, total: Update) -> np.ndarray:
    """The weighted average of the workers' models, from the sum of either kind of update."""
    weight = float(total["weight"])
    if weight == 0.0:  # a few neighbours may have no row among them
        return shared
    return np.asarray(total["model"]) / weight if "model" in total else shared + np.asarray(total["change"]) / weight


@dataclass(frozen=True)
class OneShotAveraging(Algorithm[Differentiable]):
    """Every worker makes ``passes`` over its own rows, and models are averaged once; a second round evaluates that.

    Zinkevich, Weimer, Smola & Li, *Parallelized Stochastic Gradient Descent* (2010). Convex, rows spread at random: as
    good as a fit on all rows up to a bias that falls like workers / rows; non-convex: no guarantee. Not for rows
    spread by label or time, nor for workers of few rows.
    """

    solver: LocalSolver
    passes: int

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise ValueError(f"passes={self.passes}: every worker makes at least 1 pass over its rows")

    @property
    def solves(self) -> type[Differentiable]:
        return self.solver.solves

    @property
    def _rounds(self) -> ModelAveraging:
        return ModelAveraging(ManyPasses(self.solver, self.passes), _Once(), Limits(1, 0.0))

    def init(self, problem: Differentiable, coef: np.ndarray) -> LocalState:
        return self._rounds.init(problem, coef)

    def work(
        self, problem: Differentiable, blocks: Sequence[Block], coef: np.ndarray, memory: Replica | None, turn: Turn
    ) -> tuple[Update, Replica | None]:
        return self._rounds.work(problem, blocks, coef, memory, turn)

    def advance(self, problem: Differentiable, state: LocalState, total: Update) -> LocalState:
        after = self._rounds.advance(problem, state, total)
        if after.stop is None or after.stop.reason == "diverged":
            return after
        return replace(after, stop=Stop("converged", f"models were averaged once, after {self.passes} passes"))


@dataclass(frozen=True)
class ManyPasses(LocalSolver):
    """Another solver, for which one pass (``steps`` 0) stands for ``count`` passes."""

    solver: LocalSolver
    count: int

    @property
    def solves(self) -> type[Differentiable]:
        return self.solver.solves

    def passes(self, objective: LocalObjective, steps: int) -> float:
        return self.solver.passes(objective, self._steps(objective, steps))

    def solve(
        self, objective: LocalObjective, start: np.ndarray, memory: Any, steps: int, turn: Turn
    ) -> tuple[np.ndarray, Any]:
        return self.solver.solve(objective, start, memory, self._steps(objective, steps), turn)

    def _steps(self, objective: LocalObjective, steps: int) -> int:
        return steps if steps else math.ceil(self.count / self.solver.passes(objective, 1))


@dataclass(frozen=True)
class _Once(Interval):
    """A pass in the first round, then no steps."""

    def first(self) -> int:
        return 0

    def after(self, steps: int, rounds: int, measured: Measured) -> int:
        return -1
