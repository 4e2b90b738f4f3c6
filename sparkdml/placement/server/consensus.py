"""The alternating direction method of multipliers at everyone's own pace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdml.algorithms import ADMM
from sparkdml.core import Turn
from sparkdml.data.block import Block
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

    Servers keep each worker's part as well, and every push changes both alike: one that begins anew, without its
    multipliers, replaces what it had told before.
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
    def sums(self) -> Mapping[str, int]:
        sizes = {name: len(push.update) for name, push in self.parts(np.zeros(self.problem.size)).items()}
        return {_of(name, worker): rows for name, rows in sizes.items() for worker in range(self.workers)}

    def begin(self, coef: np.ndarray) -> dict[str, Push]:
        """Everyone is at ``coef``."""
        own = [self._own(worker, coef) for worker in range(self.workers)]
        return {name: push for tables in (self.parts(self.workers * coef), *own) for name, push in tables.items()}

    def point(self, pulled: Mapping[str, np.ndarray]) -> np.ndarray:
        return self.algorithm.shared(self.problem, self.joined(pulled) / self.workers, self.workers * self.rho)

    def before(self, blocks: Sequence[Block], memory: Share | None, turn: Turn) -> Draft:
        own = {} if memory is not None else dict.fromkeys(_of(name, turn.worker) for name in self.parameters)
        return Draft({**self.whole, **own}, memory)

    def work(self, blocks: Sequence[Block], own: Share | None, pulled: Mapping[str, np.ndarray], turn: Turn) -> Done:
        z = self.point(pulled)
        if own is None:
            told = np.concatenate([pulled[_of(name, turn.worker)] for name in self.parameters])
            own = Share(z, np.zeros(len(z)), told)
        x = self.algorithm.local(
            self.problem, blocks, own.x, z - own.u, self.rho, self.algorithm.exactness(own.x - z, self.rho)
        )
        u = own.u + x - z
        change = x + u - own.told
        updates = {**self.parts(change), **self._own(turn.worker, change)}
        return Done(updates, Share(x, u, own.told + change), 1.0 / self.workers)

    def _own(self, worker: int, vector: np.ndarray) -> dict[str, Push]:
        return {_of(name, worker): push for name, push in self.parts(vector).items()}


def _of(name: str, worker: int) -> str:
    """A worker's part of a table, cut among shards as that is."""
    return f"{name} of {worker}"
