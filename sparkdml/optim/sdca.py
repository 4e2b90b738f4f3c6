"""Stochastic dual coordinate ascent on a worker's own rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdml.core import Turn
from sparkdml.optim.dual import Dual, Duals, dual_of, holds_intercept, next_centre
from sparkdml.optim.local_solver import LocalObjective, LocalSolver


@dataclass(frozen=True)
class DualMemory:
    """Dual variables of each block's rows, and where the intercept is held."""

    duals: Duals
    centre: float


@dataclass(frozen=True)
class SDCA(LocalSolver):
    """Maximises the dual exactly (hinge, squared) or by Newton's method (logistic) in one row's variable after another.

    Shalev-Shwartz & Zhang, *Stochastic Dual Coordinate Ascent Methods for Regularized Loss Minimization* (2013); with
    an L1 part their *Accelerated Proximal Stochastic Dual Coordinate Ascent* (2014). Smooth losses: linear convergence;
    hinge: O(1 / passes). Convex only, and not without an L2 part. The intercept is free: see :class:`~.dual.Dual`.

    A step is of one row. Memory: :class:`DualMemory`. Without it the dual variables start at minus the slopes at
    ``start``, or at 0 where the dual objective is higher; with it ``start`` counts for nothing.
    """

    seed: int = 0

    def passes(self, objective: LocalObjective, steps: int) -> float:
        rows = objective.rows
        return steps / rows if steps and rows else float(rows > 0)

    def solve(
        self, objective: LocalObjective, start: np.ndarray, memory: DualMemory | None, steps: int, turn: Turn
    ) -> tuple[np.ndarray, DualMemory | None]:
        if objective.weight_sum == 0.0:
            return start, memory
        if memory is None:
            centre = float(start[-1]) if objective.problem.fit_intercept else 0.0
            memory = DualMemory(_first(_dual(objective, centre), objective, start), centre)
        rng = np.random.default_rng([self.seed, turn.worker, turn.clock])
        left = steps or objective.rows
        while left > 0:
            memory = _pass(objective, memory, min(left, objective.rows), rng)
            left -= objective.rows
        dual = _dual(objective, memory.centre)
        return dual.point(dual.vector(objective.blocks, memory.duals)), memory


def _dual(objective: LocalObjective, centre: float) -> Dual:
    return dual_of(objective.problem, objective.weight_sum, centre, objective.pull)


def _pass(objective: LocalObjective, memory: DualMemory, rows: int, rng: np.random.Generator) -> DualMemory:
    """A step for each of ``rows`` rows, then a new centre for the intercept if it is time."""
    blocks, dual = objective.blocks, _dual(objective, memory.centre)
    duals = dual.ascend(blocks, memory.duals, dual.vector(blocks, memory.duals), 1.0, rows, rng)
    if not objective.problem.fit_intercept or holds_intercept(objective.pull):
        return DualMemory(duals, memory.centre)
    v = dual.vector(blocks, duals)
    point = dual.point(v)
    gap = dual.gap(v, *dual.totals(blocks, duals, point))
    return DualMemory(duals, next_centre(dual, memory.centre, float(point[-1]), gap))


def _first(dual: Dual, objective: LocalObjective, start: np.ndarray) -> Duals:
    """Minus the slopes at ``start``, or 0."""
    found = []
    coefficients, intercepts = objective.problem.to_raw(start)
    for block in objective.blocks:
        margins, slopes = np.empty((2, block.rows, 1))
        block.margins(0, block.rows, coefficients, intercepts, margins)
        objective.problem.loss.evaluate(margins, block.labels, np.ones(block.rows), slopes)
        found.append(-slopes[:, 0])
    choices = (tuple(found), dual.zero(objective.blocks))
    return max(choices, key=lambda duals: _value(dual, objective, duals))


def _value(dual: Dual, objective: LocalObjective, duals: Duals) -> float:
    """The dual objective."""
    point = dual.point(dual.vector(objective.blocks, duals))
    _, conjugate = dual.totals(objective.blocks, duals, point)
    return -conjugate / dual.weight_sum - 0.5 * float(dual.ridge @ point**2)
