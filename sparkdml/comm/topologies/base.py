"""What every topology does, what it costs, and the sum of named updates over it."""

from __future__ import annotations

import hashlib
import math
import time
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from sparkdml.comm.links import Links
from sparkdml.core import Update


class Network(NamedTuple):
    """The alpha-beta-gamma model: a message of n bytes takes ``alpha + n beta`` seconds, adding n bytes ``n gamma``.

    The defaults are near what processes of one machine measure, and near 10 Gbit/s Ethernet.
    """

    alpha: float = 5e-5
    beta: float = 1e-9
    gamma: float = 1e-10


class Cost(NamedTuple):
    """What the busiest worker does, one after another; sending and receiving at the same time counts once."""

    messages: float
    bytes_moved: float
    bytes_added: float

    def seconds(self, network: Network) -> float:
        return self.messages * network.alpha + self.bytes_moved * network.beta + self.bytes_added * network.gamma


class Topology(ABC):
    """Who talks with whom so that all K workers get the sum of what each has.

    Exact topologies leave the same numbers, bit for bit, on all ranks, and in every run: each sum is made in one fixed
    order, in one place or alike in all.
    """

    name: ClassVar[str]
    #: Whether :meth:`all_reduce` is offered. Gossip only averages with neighbours.
    exact: ClassVar[bool] = True

    @abstractmethod
    def neighbours(self, rank: int, size: int) -> frozenset[int]:
        """Ranks with which ``rank`` of ``size`` exchanges messages; it is one of theirs too."""

    @abstractmethod
    def cost(self, size: int, nbytes: int, network: Network) -> Cost:
        """What one sum of ``nbytes`` costs."""

    def all_reduce(self, links: Links, array: np.ndarray) -> None:
        """Sum ``array`` (contiguous, (n,) doubles, the same n everywhere) in place over all ranks.

        Raises what :meth:`Links.exchange` raises; ``array`` then holds parts of sums.
        """
        check_vector(array)
        if links.size > 1:
            links.kind = self.name
            self._sum(links, array)

    @abstractmethod
    def _sum(self, links: Links, array: np.ndarray) -> None:
        """``all_reduce`` for two ranks or more."""


def check_vector(array: np.ndarray) -> None:
    """Raise ValueError unless ``array`` can be summed in place."""
    flags = array.flags
    if array.dtype != np.float64 or array.ndim != 1 or not flags.c_contiguous or not flags.writeable:
        raise ValueError(
            f"only a contiguous, writable vector of float64 can be summed in place, not shape {array.shape} of "
            f"{array.dtype}, contiguous: {flags.c_contiguous}, writable: {flags.writeable}"
        )


class LayoutError(ValueError):
    """Workers gave updates of different names or shapes."""


def sum_updates(topology: Topology, links: Links, update: Update) -> Update:
    """The sum of all workers' updates, in one all-reduce; arrays come back as views of one flat vector.

    Names and shapes must be the same on all ranks. Whenever they are others than in the call before, all ranks first
    sum one digest each in a slot of its own, and a LayoutError says which ranks differ. A rank that changes them alone
    is out of step (:class:`sparkdml.comm.links.OutOfStepError`).
    """
    names = sorted(update)
    layout = f"{topology.name}: {', '.join(_describe(name, update[name]) for name in names)}"
    if layout != links.layout:
        _agree(topology, links, layout)
        links.layout = layout
    began = time.perf_counter()
    flat = np.empty(sum(np.size(update[name]) for name in names))
    parts, first = {}, 0
    for name in names:
        value = update[name]
        part = flat[first : first + np.size(value)].reshape(np.shape(value))
        part[...] = value
        parts[name] = part
        first += part.size
    links.packing_seconds += time.perf_counter() - began
    topology.all_reduce(links, flat)
    return {
        name: parts[name] if isinstance(value, np.ndarray) else float(parts[name]) for name, value in update.items()
    }


def _describe(name: str, value: np.ndarray | float) -> str:
    if not isinstance(value, np.ndarray):
        return f"{name} (number)"
    if not np.can_cast(value.dtype, np.float64):
        raise ValueError(f"'{name}' holds {value.dtype}, which doubles cannot hold; only real numbers add up here")
    return f"{name} {value.shape}"


def _agree(topology: Topology, links: Links, layout: str) -> None:
    """Raise LayoutError on all ranks unless all have the same layout."""
    if links.size == 1:
        return
    digests = np.zeros(links.size)
    # 52 bits, so that a double holds them and adding zeros leaves them
    digests[links.rank] = int.from_bytes(hashlib.sha256(layout.encode()).digest()[:8], "big") >> 12
    links.kind = f"{topology.name} layout"
    topology._sum(links, digests)
    groups = [np.flatnonzero(digests == digest).tolist() for digest in dict.fromkeys(digests.tolist())]
    if len(groups) > 1:
        same = "; ".join(f"ranks {group} have the same" for group in groups)
        raise LayoutError(f"workers sum different updates: {same}. Rank {links.rank} has {layout}")


def log2_ceil(size: int) -> int:
    """Levels of a binary tree over ``size`` ranks."""
    return math.ceil(math.log2(size))
