"""Distributed coordinate descent: workers share columns out, and every one of them sees all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.progress import Limits, Progress, observed
from sparkdml.core import Turn, Update
from sparkdml.data.block import Block
from sparkdml.optim.coordinate import check_bounded_curvature, columns_of
from sparkdml.problem import Problem

#: Margins are sums of so many rounds' changes at most: then they are computed anew, so that rounding does not pile up.
REFRESH = 50


@dataclass(frozen=True)
class FeatureState(Progress):
    """``coef`` is ``[c, v]`` with the margins v of all rows at c, or c alone in a round that asks workers for them.

    ``age`` counts the rounds since they were asked.
    """

    age: int = 0


@dataclass(frozen=True)
class FeatureDescent(Algorithm):
    """Coordinate descent by columns: ``c <- c + sum_k delta_k``, where delta_k has worker k's coordinates alone.

    From margins v, ``local_passes`` passes over a worker's columns ``A_k`` lower the bound
    ``s'm + K/2 sum_i h_i m_i^2 + penalty(c + delta_k)``, ``m = A_k delta_k``, with ``s_i = w_i loss'(v_i) / W``,
    ``h_i = w_i loss.curvature / W`` and K workers. The intercept is a column of worker 0.

    Smith, Forte, Ma, Takac, Jordan & Jaggi, *CoCoA: A General Framework for Communication-Efficient Distributed
    Optimization* (2018), its primal form with gamma = 1 and sigma' = K; Richtarik & Takac, *Distributed Coordinate
    Descent Method for Learning with Big Data* (2016). Convex losses of bounded curvature: the optimum, with exact
    zeros, and an objective that never rises; linear rate if strongly convex. Not for many more rows than features, as
    rounds send all margins; nor for alike columns on many workers, or columns far from mean 0: both take many rounds.

    Workers hold all rows in one order, with the entries of columns that no other worker has: sparse, not centred.
    """

    limits: Limits
    local_passes: int = 1
    seed: int = 0
    compressible: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if self.local_passes < 1:
            raise ValueError(f"local_passes={self.local_passes}: every worker makes at least 1 pass over its columns")

    def init(self, problem: Problem, coef: np.ndarray) -> FeatureState:
        check_bounded_curvature(problem.loss)
        if problem.centre.any():
            raise ValueError(
                "descent by features takes coordinates that keep 0 where it is, but these are centred at the mean row; "
                "fit sparse rows, or without an intercept"
            )
        return FeatureState(coef=coef, best=coef)

    def work(
        self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, memory: None, turn: Turn
    ) -> tuple[Update, None]:
        _check_rows(problem, blocks, coef, turn)
        c, v = coef[: problem.size], coef[problem.size :]
        columns = columns_of(problem, blocks, intercept=turn.worker == 0)
        if not len(v):
            return {"margins": columns.margins(c)}, None
        labels, weights = (np.concatenate([getattr(b, name) for b in blocks]) for name in ("labels", "weights"))
        slopes = np.empty((len(v), 1))
        loss = problem.loss.evaluate(v[:, None], labels, weights, slopes)
        bounds = turn.workers * problem.loss.curvature / problem.weight_sum * weights
        rng = np.random.default_rng([self.seed, turn.worker, turn.clock])
        following, moved = columns.descend(c, slopes[:, 0] / problem.weight_sum, bounds, self.local_passes, rng)
        # labels are the same everywhere: one worker tells the loss of all rows
        return {"margins": moved, "coefficients": following, "loss": float(loss) if turn.worker == 0 else 0.0}, None

    def advance(self, problem: Problem, state: FeatureState, total: Update) -> FeatureState:
        c, v = state.coef[: problem.size], state.coef[problem.size :]
        if not len(v):
            return replace(state, coef=np.append(c, total["margins"]), age=0)
        state = observed(state, problem, c, float(total["loss"]), self.limits)
        following = np.array(total["coefficients"])
        if state.age + 1 < REFRESH:
            following = np.append(following, v + total["margins"])
        return replace(state, coef=following, age=state.age + 1)


def _check_rows(problem: Problem, blocks: Sequence[Block], coef: np.ndarray, turn: Turn) -> None:
    rows, told = sum(block.rows for block in blocks), len(coef) - problem.size
    if rows == 0 or told not in (0, rows):
        raise ValueError(
            f"worker {turn.worker} of {turn.workers} holds {rows} rows (margins are of {told or 'all'}); descent by "
            "features needs every row on every worker, also on one that has none of their entries"
        )
