"""Stochastic variance reduced gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparkdml.core import Turn
from sparkdml.optim.local_solver import LocalObjective
from sparkdml.optim.variance_reduction.stepping import BatchSolver, all_slopes, mean_gradient
from sparkdml.optim.variance_reduction.walk import Batch, Walk, slopes_of, walk

#: Passes between two gradients over all rows (the paper's m = 2n).
EPOCH_PASSES = 2


@dataclass(frozen=True)
class SVRG(BatchSolver):
    """``c <- prox(c - rate (grad f_m(c) - grad f_m(anchor) + grad f(anchor)))`` for a batch m.

    Johnson & Zhang, *Accelerating Stochastic Gradient Descent using Predictive Variance Reduction* (2013), with the
    proximal step of Xiao & Zhang (2014). Strongly convex: linear convergence (their proofs ask for a step of 0.1 / L
    and random or averaged iterates; here it is 1 / (3 L) and the last one); smooth non-convex: stationary points, with
    smaller steps (Reddi et al., 2016). Not where one more pass for every two is too dear, nor for losses with kinks.

    Every call of :meth:`solve` begins with a gradient over all rows. Memory: the smoothness.
    """

    def solve(
        self, objective: LocalObjective, start: np.ndarray, memory: float | None, steps: int, turn: Turn
    ) -> tuple[np.ndarray, float | None]:
        if objective.weight_sum == 0.0:
            return start, memory
        smoothness = self.smoothness(objective) if memory is None else memory
        batches = self.batches(objective)
        order, epoch = self.order(len(batches), steps, turn), EPOCH_PASSES * len(batches)
        point = start
        for first in range(0, len(order), epoch):
            slopes = all_slopes(objective, point)
            path = walk(objective, point, mean_gradient(objective, slopes), self.rate(smoothness))
            point = follow(
                path, objective, [batches[number] for number in order[first : first + epoch]], slopes, len(batches)
            )
        return point, smoothness

    def corrected(
        self,
        objective: LocalObjective,
        anchor: np.ndarray,
        gradient: np.ndarray,
        memory: float | None,
        steps: int,
        turn: Turn,
    ) -> tuple[np.ndarray, float | None]:
        """As :meth:`solve` from ``anchor``, whose ``gradient`` of the mean loss over more rows than these is known."""
        if objective.weight_sum == 0.0:
            return anchor, memory
        smoothness = self.smoothness(objective) if memory is None else memory
        batches = self.batches(objective)
        drawn = [batches[number] for number in self.order(len(batches), steps, turn)]
        path = walk(objective, anchor, gradient, self.rate(smoothness))
        return follow(path, objective, drawn, all_slopes(objective, anchor), len(batches)), smoothness


def follow(path: Walk, objective: LocalObjective, drawn: Sequence[Batch], slopes: np.ndarray, count: int) -> np.ndarray:
    """The end of steps along ``drawn`` of ``count`` batches, given the ``slopes`` of all rows at the anchor."""
    share = count / objective.weight_sum
    for batch in drawn:
        changes = slopes_of(objective.problem, batch, path.margins(batch)) - slopes[batch.places]
        path.step(batch, changes, share, 0.0)
    return path.point()
