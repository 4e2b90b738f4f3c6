"""Communication-efficient dual coordinate ascent whose workers' updates are added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.progress import Limits, Progress, observed
from sparkdml.core import Stop, Turn, Update
from sparkdml.data.block import Block
from sparkdml.optim.dual import Dual, Duals, dual_of, next_centre
from sparkdml.problem import Problem


@dataclass(frozen=True)
class CocoaState(Progress):
    """``coef`` is ``[v, centre]``: the sum of the workers' vectors, and where the intercept is held (if there is one).

    ``gap`` is the last duality gap: it bounds how far the objective is from the optimum, once the intercept rests.
    """

    gap: float = math.inf


@dataclass(frozen=True)
class CoCoA(Algorithm):
    """CoCoA+: ``v <- sum_k v_k``, ``v_k = 1/W sum_i w_i u_i a_i`` after dual ascent over worker k's rows.

    Ma, Smith, Jaggi, Jordan, Richtarik & Takac, *Adding vs. Averaging in Distributed Primal-Dual Optimization* (2015),
    with gamma = 1 and sigma' = the number of workers; with an L1 part as Smith et al., *CoCoA: A General Framework for
    Communication-Efficient Distributed Optimization* (2018). Convex losses and an L2 part: the optimum, at a linear
    rate for smooth losses. Not for non-convex losses, nor for an L2 part far below the loss's curvature: rounds grow
    like their ratio.

    A fit starts with all dual variables 0; of the ``coef`` given to :meth:`init` the intercept counts alone. Workers
    send v_k itself, so that v is right one round after a worker lost its dual variables and began anew. Converged
    is when the duality gap is at most ``limits.tolerance`` times the first objective.
    """

    limits: Limits
    local_passes: float = 1.0
    seed: int = 0
    compressible: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if not self.local_passes > 0.0:
            raise ValueError(f"local_passes={self.local_passes}: it must be positive")

    def init(self, problem: Problem, coef: np.ndarray) -> CocoaState:
        start = np.zeros(problem.size)
        centre = coef[-1:] if problem.fit_intercept else np.zeros(0)
        dual = _dual(problem, np.append(start, centre))
        return CocoaState(coef=np.append(start, centre), best=dual.point(start))

    def work(
        self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, memory: Duals | None, turn: Turn
    ) -> tuple[Update, Duals]:
        dual, v = _dual(problem, coef), coef[: problem.size]
        lost = memory is None and turn.clock > 0 and len(blocks) > 0
        duals = dual.zero(blocks) if memory is None else memory
        loss, conjugate = dual.totals(blocks, duals, dual.point(v))
        # v still has a part of this worker that nobody can take away: it waits for a right one
        if not lost:
            rng = np.random.default_rng([self.seed, turn.worker, turn.clock])
            rows = math.ceil(self.local_passes * sum(block.rows for block in blocks))
            duals = dual.ascend(blocks, duals, v, float(turn.workers), rows, rng)
        sums: Update = {"dual_vector": dual.vector(blocks, duals), "loss": loss, "conjugate": conjugate}
        return {**sums, "lost": float(lost)}, duals

    def advance(self, problem: Problem, state: CocoaState, total: Update) -> CocoaState:
        dual, v = _dual(problem, state.coef), state.coef[: problem.size]
        point, loss = dual.point(v), float(total["loss"])
        # gaps decide, not the lack of progress: primal objectives may rise for many rounds
        state = observed(state, problem, point, loss, replace(self.limits, tolerance=-math.inf))
        following = np.array(total["dual_vector"])
        centre = state.coef[problem.size :]
        if float(total["lost"]) > 0.0:
            return replace(state, coef=np.append(following, centre), gap=math.inf)
        gap = dual.gap(v, loss, float(total["conjugate"]))
        stop = state.stop or self._judge(state, gap + _unrest(dual, state.coef, point))
        if len(centre):
            centre = np.array([next_centre(dual, float(centre[0]), float(point[-1]), gap)])
        return replace(state, coef=np.append(following, centre), gap=gap, stop=stop)

    def _judge(self, state: CocoaState, gap: float) -> Stop | None:
        if gap > self.limits.tolerance * abs(state.first):
            return None
        return Stop("converged", f"the duality gap is {gap:.3g}, at most tol * {abs(state.first):.6g}")


def _dual(problem: Problem, coef: np.ndarray) -> Dual:
    return dual_of(problem, problem.weight_sum, float(coef[-1]) if problem.fit_intercept else 0.0)


def _unrest(dual: Dual, coef: np.ndarray, point: np.ndarray) -> float:
    """What the held intercept may hide from the gap: ``kappa / 2 (b* - centre)^2``.

    The optimal b* is taken to be at most 8 times as far from the centre as the point is, which holds unless the loss
    curves along the intercept by less than kappa / 7 (labels of one kind but for less than one in a hundred).
    """
    if not dual.problem.fit_intercept:
        return 0.0
    return 32.0 * float(dual.ridge[-1]) * float(point[-1] - coef[-1]) ** 2
