"""All-reduce up and down a tree: few messages, all numbers through every level."""

from __future__ import annotations

import numpy as np

from sparkdml.comm.links import Links
from sparkdml.comm.topologies.base import Cost, Network, Topology, log2_ceil


class Tree(Topology):
    """Sums go up a binomial tree to rank 0, and the total comes down it.

    ``2 ceil(log2 K) (alpha + n beta) + ceil(log2 K) n gamma`` (Thakur, Rabenseifner & Gropp, Optimization of collective
    communication operations in MPICH, Int. J. High Perform. Comput. Appl. 19, 2005). A rank's parent is the rank
    without its lowest bit, so most messages go between ranks that are close.
    """

    name = "tree"

    def neighbours(self, rank: int, size: int) -> frozenset[int]:
        return frozenset([*_children(rank, size), *([rank & (rank - 1)] if rank else [])])

    def cost(self, size: int, nbytes: int, network: Network) -> Cost:
        levels = log2_ceil(size)
        return Cost(2 * levels, 2 * levels * nbytes, levels * nbytes)

    def _sum(self, links: Links, array: np.ndarray) -> None:
        children, parent = _children(links.rank, links.size), links.rank & (links.rank - 1)
        came = links.scratch(len(array))
        for child in children:
            links.receive(child, came)
            array += came
        if links.rank:
            links.send(parent, array)
            links.receive(parent, array)
        # those with the longest way below them first
        for child in reversed(children):
            links.send(child, array)


def _children(rank: int, size: int) -> list[int]:
    """``rank + 2^k`` for all powers below its own lowest bit; those that are ready first come first."""
    lowest = rank & -rank or 1 << log2_ceil(size)
    return [rank + (1 << k) for k in range(lowest.bit_length() - 1) if rank + (1 << k) < size]
