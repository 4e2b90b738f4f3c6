"""How workers that run side by side get from each one's update to a total."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sparkdml.comm.codecs import Packet
from sparkdml.comm.gather import all_gather
from sparkdml.comm.links import Links
from sparkdml.comm.packets import Packets
from sparkdml.comm.topologies import Gossip, Topology, sum_updates
from sparkdml.core import Stop, Update
from sparkdml.data.block import Block
from sparkdml.problem import Differentiable

#: Names that a placement adds to updates; no algorithm's begins with a space.
ASKED, SECONDS = " asked", " seconds"
#: Why workers stop, the gravest first.
REASONS = ("diverged", "stalled", "max_iterations", "converged")
#: Under gossip, rounds between two questions whether the fit is over: the only thing that all workers settle together.
SETTLE_ROUNDS = 5


class Agreement(ABC):
    """One a worker and fit; all workers call it side by side."""

    @abstractmethod
    def total(self, update: Update, clock: int) -> Update:
        """What ``advance`` is given in place of the sum of all workers' updates."""

    @abstractmethod
    def kept(self, problem: Differentiable, state: Any, blocks: Sequence[Block], clock: int) -> Any:
        """The state to go on with after ``advance``."""


class Exact(Agreement):
    """The sum itself, the same on all workers to the last bit."""

    def __init__(self, topology: Topology, links: Links) -> None:
        self._topology, self._links = topology, links

    def total(self, update: Update, clock: int) -> Update:
        packets = {name: value for name, value in update.items() if isinstance(value, Packets)}
        numbers = {name: value for name, value in update.items() if name not in packets}
        total = sum_updates(self._topology, self._links, numbers)
        for name, value in packets.items():
            ((_, own),) = value.by_worker
            began = time.perf_counter()
            told = own.to_bytes()
            packed = time.perf_counter()
            everyone = all_gather(self._topology, self._links, told)
            heard = time.perf_counter()
            total[name] = Packets(tuple((rank, Packet.from_bytes(data)) for rank, data in enumerate(everyone)))
            self._links.packing_seconds += time.perf_counter() - heard + packed - began
        return total

    def kept(self, problem: Differentiable, state: Any, blocks: Sequence[Block], clock: int) -> Any:
        return state


class Mixed(Agreement):
    """K times the average of a worker's and its neighbours' updates; every worker goes its own way from there.

    Every 5 rounds all workers settle, exactly, whether one of them wants to stop. If so the fit ends with the mean of
    all points and its objective over all rows, for the gravest reason that any of them has.

    Lian, Zhang, Zhang, Hsieh, Zhang & Liu, *Can Decentralized Algorithms Outperform Centralized Algorithms?* (2017).
    """

    def __init__(self, gossip: Gossip, exact: Topology, links: Links) -> None:
        self._gossip, self._exact, self._links = gossip, exact, links
        self._stop: Stop | None = None
        self._asked = 0.0

    def total(self, update: Update, clock: int) -> Update:
        own = dict(update)
        self._asked = max(self._asked, float(own.pop(ASKED)))
        seconds = own.pop(SECONDS)
        names = sorted(own)
        flat = np.concatenate([np.ravel(own[name]) for name in names]).astype(np.float64)
        self._gossip.mix(self._links, flat)
        flat *= self._links.size
        mixed: Update = {ASKED: 0.0, SECONDS: seconds}
        first = 0
        for name in names:
            size = np.size(own[name])
            part = flat[first : first + size]
            mixed[name] = part.reshape(np.shape(own[name])) if isinstance(own[name], np.ndarray) else float(part[0])
            first += size
        return mixed

    def kept(self, problem: Differentiable, state: Any, blocks: Sequence[Block], clock: int) -> Any:
        self._stop = self._stop or state.stop
        state = replace(state, stop=None)
        if (clock + 1) % SETTLE_ROUNDS:
            return state
        mine = None if self._stop is None else self._stop.reason
        settled = sum_updates(
            self._exact, self._links, {ASKED: self._asked, **{reason: float(reason == mine) for reason in REASONS}}
        )
        wished = [reason for reason in REASONS if settled[reason]]
        if not wished and not settled[ASKED]:
            return state
        point = state.coef[: problem.size] / self._links.size
        mean = np.asarray(sum_updates(self._exact, self._links, {"point": point})["point"]).copy()
        loss = problem.loss_sum(blocks, mean)
        objective = problem.objective(mean, sum_updates(self._exact, self._links, {"loss": loss})["loss"])
        reason = "diverged" if not np.isfinite(objective) else (wished or ["callback"])[0]
        own = self._stop if self._stop is not None and self._stop.reason == reason else None
        remedy = "use a smaller stepSize" if reason in REASONS[:2] else ""
        stop = own or Stop(reason, "another worker, or the driver, asked to stop", remedy)
        return replace(state, best=mean, objective=objective, stop=stop)
