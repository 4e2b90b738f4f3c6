"""Averaging with neighbours only: nobody waits for all, and nobody has the exact mean."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sparkdml.comm.links import Links
from sparkdml.comm.topologies.base import Cost, Network, Topology, check_vector


def _ring(rank: int, size: int) -> list[tuple[int, int]]:
    after, before = (rank + 1) % size, (rank - 1) % size
    return list(dict.fromkeys([(after, before), (before, after)])) if size > 1 else []


def _hypercube(rank: int, size: int) -> list[tuple[int, int]]:
    if size & (size - 1):
        raise ValueError(f"a hypercube has 2, 4, 8, ... workers, not {size}; take graph='ring'")
    return [(rank ^ (1 << k),) * 2 for k in range(size.bit_length() - 1)]


#: From (rank, size) to whom to send to, and from whom to receive meanwhile; all ranks go through it side by side.
GRAPHS: dict[str, Callable[[int, int], list[tuple[int, int]]]] = {"ring": _ring, "hypercube": _hypercube}


class Gossip(Topology):
    """``x_i <- sum_j W_ij x_j`` over a worker and its neighbours, with Metropolis weights.

    ``W_ij = 1 / (1 + max(d_i, d_j))`` for neighbours of degrees d, and the rest of the row on the diagonal: symmetric
    and doubly stochastic, so the mean over workers stays, and the distance to it shrinks in every step by the second
    largest modulus of W's eigenvalues (Xiao & Boyd, Fast linear iterations for distributed averaging, Systems & Control
    Letters 53, 2004). A step costs ``d (alpha + n beta + n gamma)``, whatever K is; d is 2 on the ``ring`` and log2 K
    on the ``hypercube``.
    """

    name = "gossip"
    exact = False

    def __init__(self, graph: str = "ring") -> None:
        if graph not in GRAPHS:
            raise ValueError(f"graph='{graph}' is not known; it can be {', '.join(GRAPHS)}")
        self.graph = graph

    def neighbours(self, rank: int, size: int) -> frozenset[int]:
        return frozenset(to for to, _ in GRAPHS[self.graph](rank, size))

    def weights(self, rank: int, size: int) -> dict[int, float]:
        """Row ``rank`` of W: the weights of its neighbours and of itself."""
        near = {other: self.neighbours(other, size) for other in self.neighbours(rank, size)}
        row = {other: 1.0 / (1 + max(len(near), len(theirs))) for other, theirs in near.items()}
        return {**row, rank: 1.0 - sum(row.values())}

    def cost(self, size: int, nbytes: int, network: Network) -> Cost:
        """Of one step of :meth:`mix`."""
        degree = len(self.neighbours(0, size))
        return Cost(degree, degree * nbytes, degree * nbytes)

    def mix(self, links: Links, array: np.ndarray) -> None:
        """One step of averaging, in place; ``array`` as in :meth:`all_reduce`."""
        check_vector(array)
        if links.size == 1:
            return
        links.kind = self.name
        weights = self.weights(links.rank, links.size)
        came, mixed = links.scratch(2 * len(array)).reshape(2, -1)
        np.multiply(array, weights[links.rank], out=mixed)
        for to, from_ in GRAPHS[self.graph](links.rank, links.size):
            links.exchange(to, array, from_, came)
            came *= weights[from_]
            mixed += came
        array[:] = mixed

    def _sum(self, links: Links, array: np.ndarray) -> None:
        raise TypeError("gossip has no all_reduce, as no worker hears of all others; mix, or take an exact topology")
