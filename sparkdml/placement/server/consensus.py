"""The alternating direction method of multipliers at everyone's own pace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdml.algorithms import ADMM
from sparkdml.core import Turn
from sparkdml.data.block import Block
from sparkdml.placement.server.shares import Shares
from sparkdml.placement.server.sidework import Done, Draft, SideWork
from sparkdml.problem import Problem
from sparkdml.server.client import Push


@dataclass(frozen=True)
class Share:
    """A worker's memory: its x, its scaled multipliers u, and what it has in the servers' sum."""

    x: np.ndarray
    u: np.ndarray
    told: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Consensus(SideWork):
    """``min sum_k f_k(x_k) + penalty(z)`` subject to ``x_k = z``. Servers hold ``sum_k (x_k + u_k)``, of which whoever
    pulls it makes ``z = prox_{penalty / (K rho)}(sum / K)``, the model. A turn of worker k finds
    ``x_k = argmin f_k(x) + rho/2 ||x - z + u_k||^2``, then ``u_k <- u_k + x_k - z``, and replaces its part of the sum.

    Zhang & Kwok, *Asynchronous distributed ADMM for consensus optimization* (2014): workers go on from the z that there
    is (their partial barrier), none more than a number of clocks behind the others (their bounded delay), here
    ``staleness``. Convex: the optimum, under bounded delays; non-convex: no guarantee. rho stays what it is at first,
    for nobody sees residuals of one moment. Not where workers are as fast as each other: rounds then balance rho.

    A worker that begins anew, without its multipliers, replaces what it had told before (:class:`~.shares.Shares`).
    """

    problem: Problem
    algorithm: ADMM

    def rule(self, penalised: bool) -> Mapping[str, Any]:
        return {"name": "add"}

    @property
    def rho(self) -> float:
        """The algorithm's, or half of the curvature of an ``f_k`` over columns of variance 1."""
        rho = self.algorithm.rho
        return 0.5 * self.problem.loss.curvature / self.workers if rho is None else rho

    @property
    def shares(self) -> Shares:
        return Shares("", self.sizes)

    @property
    def sums(self) -> Mapping[str, int]:
        return self.shares.tables(self.workers)

    def begin(self, coef: np.ndarray) -> dict[str, Push]:
        """Everyone is at ``coef``."""
        own = [self.shares.change(worker, coef) for worker in range(self.workers)]
        return {**{name: push for tables in own for name, push in tables.items()}, **self.parts(self.workers * coef)}

    def point(self, pulled: Mapping[str, np.ndarray]) -> np.ndarray:
        return self.algorithm.shared(self.problem, self.joined(pulled) / self.workers, self.workers * self.rho)

    def before(self, blocks: Sequence[Block], memory: Share | None, turn: Turn) -> Draft:
        own = [] if memory is not None else self.shares.own(turn.worker)
        return Draft({**self.whole, **dict.fromkeys(own)}, memory)

    def work(self, blocks: Sequence[Block], own: Share | None, pulled: Mapping[str, np.ndarray], turn: Turn) -> Done:
        z, method = self.point(pulled), self.algorithm
        if own is None:
            own = Share(z, np.zeros(len(z)), self.shares.joined(pulled, self.shares.own(turn.worker)))
        exactness = method.exactness(own.x - z, self.rho)
        x = method.local(self.problem, blocks, own.x, z - own.u, self.rho, exactness)
        u = own.u + x - z
        change = x + u - own.told
        return Done(self.shares.change(turn.worker, change), Share(x, u, own.told + change), 1.0 / self.workers)
