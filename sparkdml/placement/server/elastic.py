"""Elastic averaging at everyone's own pace: replicas on workers, tied to a centre at the servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdml.algorithms import EASGD
from sparkdml.core import Turn
from sparkdml.data.block import Block
from sparkdml.optim.local_solver import LocalObjective
from sparkdml.placement.server.sidework import Done, Draft, SideWork


@dataclass(frozen=True)
class Replica:
    """A worker's memory: its point, its solver's memory, and the share of all rows that its last steps read."""

    point: np.ndarray
    solver: Any
    read: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Elastic(SideWork):
    """A turn is ``steps`` local steps of worker k from ``x_k`` (0: a pass over its rows), then with the centre c as it
    is by then ``x_k <- x_k - alpha (x_k - c)`` and, at the servers, ``c <- c + beta W_k / W (x_k - c)`` with the old
    ``x_k``; ``alpha = beta / K`` of K workers. With equal weights both moves are the paper's. The centre is the model.

    Zhang, Choromanska & LeCun, *Deep Learning with Elastic Averaging SGD* (2015), algorithm 1; a local solver with
    momentum makes it EAMSGD (algorithm 2). Where it rests, and when not to use it: as
    :class:`~sparkdml.algorithms.EASGD`, whose rounds are in step. A replica that is lost starts again at the centre.
    """

    algorithm: EASGD

    def rule(self, penalised: bool) -> Mapping[str, Any]:
        return {"name": "add"}

    def before(self, blocks: Sequence[Block], memory: Replica | None, turn: Turn) -> Draft:
        if memory is None:
            return Draft(self.whole, None)
        objective, steps = LocalObjective(self.problem, blocks), self.algorithm.interval.first()
        solver, share = self.algorithm.solver, objective.weight_sum / self.problem.weight_sum
        point, kept = solver.solve(objective, memory.point, memory.solver, steps, turn)
        return Draft(self.whole, Replica(point, kept, share * solver.passes(objective, steps)))

    def work(self, blocks: Sequence[Block], own: Replica | None, pulled: Mapping[str, np.ndarray], turn: Turn) -> Done:
        centre = self.point(pulled)
        if own is None:
            return Done({}, Replica(centre, None), 0.0)
        apart = own.point - centre
        share = LocalObjective(self.problem, blocks).weight_sum / self.problem.weight_sum
        moved = own.point - self.algorithm.share_of(turn.workers) * apart
        return Done(self.parts(self.algorithm.beta * share * apart), Replica(moved, own.solver), own.read)
