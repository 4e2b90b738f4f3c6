"""Distributed SVRG: a gradient over all rows, then steps of every worker alone that it corrects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.progress import Limits, Progress, observed
from sparkdml.core import Turn, Update
from sparkdml.data.block import Block
from sparkdml.optim.local_solver import LocalObjective, Pull
from sparkdml.optim.variance_reduction import SVRG
from sparkdml.optim.variance_reduction.stepping import require_plain
from sparkdml.problem import Problem
from sparkdml.problem.gradient import loss_and_gradient

#: A pull begins at this share of the workers' smoothness, is multiplied by GROWTH when the objective rose, and divided
#: by DECAY when it fell.
FIRST_PULL, GROWTH, DECAY = 0.1, 8.0, 2.0


@dataclass(frozen=True)
class DSVRGState(Progress):
    """``coef`` is a point whose gradient is asked for, or ``[snapshot, gradient there, strength of the pull]``.

    ``gradient`` is that of the mean loss at ``best``, which is the snapshot.
    """

    gradient: np.ndarray = field(default_factory=lambda: np.empty(0))
    pull: float = 0.0
    smoothness: float = 0.0


@dataclass(frozen=True)
class DSVRG(Algorithm):
    """``c <- sum_k W_k c_k / sum_k W_k``: worker k's SVRG steps from the snapshot, with all rows' gradient there.

    Lee, Lin, Ma & Yang, *Distributed Stochastic Variance Reduced Gradient Methods* (2017), in the form of Cen, Zhang,
    Chi, Chen & Liu, *Convergence of Distributed Stochastic Variance Reduced Methods Without Sampling Extra Data*
    (2020): workers step along ``grad f_m(c) - grad f_m(snapshot) + gradient``, pulled to the snapshot where their rows
    differ much. Strongly convex: linear convergence, slower the stronger the pull has to be; smooth non-convex: no
    guarantee here. Not for losses with kinks, nor for rows sorted by label: the pull then leaves little to gain.

    Two rounds make an outer step, and each sends one vector: the gradient and loss at a new point, then local steps. A
    point that is not better is given up, and the next steps from the old snapshot are pulled harder. So workers rest
    at the optimum of all rows, however these are spread. ``local_steps`` counts batches; 0 is a pass over a worker's
    rows. Memory: the solver's.
    """

    solver: SVRG
    limits: Limits
    local_steps: int = 0
    compressible: ClassVar[frozenset[str]] = frozenset()

    def init(self, problem: Problem, coef: np.ndarray) -> DSVRGState:
        require_plain(problem, type(self).__name__)
        return DSVRGState(coef=coef, best=coef)

    def work(
        self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, memory: float | None, turn: Turn
    ) -> tuple[Update, float | None]:
        if len(coef) == problem.size:
            return loss_and_gradient(problem.loss, blocks, *problem.to_raw(coef)), memory
        snapshot, gradient, strength = coef[: problem.size], coef[problem.size : -1], float(coef[-1])
        objective = LocalObjective(problem, blocks, Pull(strength, snapshot) if strength > 0.0 else None)
        weight = objective.weight_sum
        point, memory = self.solver.corrected(objective, snapshot, gradient, memory, self.local_steps, turn)
        return {"point": weight * point, "weight": weight, "smoothness": weight * (memory or 0.0)}, memory

    def advance(self, problem: Problem, state: DSVRGState, total: Update) -> DSVRGState:
        if "point" in total:
            weight = float(total["weight"])
            smoothness = float(total["smoothness"]) / weight
            return replace(state, coef=np.asarray(total["point"]) / weight, smoothness=smoothness)
        tried = observed(state, problem, state.coef, float(total["loss"]), self.limits)
        if tried.objective < state.objective:
            following = replace(tried, gradient=_mean_gradient(problem, state.coef, total), pull=state.pull / DECAY)
        else:
            pull = max(GROWTH * state.pull, FIRST_PULL * state.smoothness)
            following = replace(tried, pull=pull)
        return replace(following, coef=np.concatenate([following.best, following.gradient, [following.pull]]))


def _mean_gradient(problem: Problem, point: np.ndarray, total: Update) -> np.ndarray:
    """Of the loss alone, for the penalty is the proximal step's."""
    _, gradient = problem.evaluate(point, total)
    scaled, _ = problem.split(point)
    gradient[: scaled.size] -= problem.penalty.gradient(scaled).ravel()
    return gradient
