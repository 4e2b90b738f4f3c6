"""All-reduce over a hypercube: few messages, and few bytes where the number of workers is a power of two."""

from __future__ import annotations

import numpy as np

from sparkdml.comm.links import Links
from sparkdml.comm.topologies.base import Cost, Network, Topology


class HalvingDoubling(Topology):
    """Rabenseifner's: reduce-scatter by halving the vector, all-gather by doubling it.

    With ``P`` the largest power of two up to K, ``2 log2 P alpha + 2 (P-1)/P n beta + (P-1)/P n gamma``; for short
    vectors recursive doubling, which exchanges all of it, ``log2 P (alpha + n beta + n gamma)``. The K - P ranks beyond
    fold onto others before and get the sum after: ``2 (alpha + n beta) + n gamma`` more (Thakur, Rabenseifner & Gropp,
    Optimization of collective communication operations in MPICH, Int. J. High Perform. Comput. Appl. 19, 2005). Ranks
    that are close exchange the large pieces.
    """

    name = "halving-doubling"

    def neighbours(self, rank: int, size: int) -> frozenset[int]:
        core = _core(size)
        if rank >= core:
            return frozenset({rank - core})
        folded = [rank + core] if rank + core < size else []
        return frozenset([rank ^ bit for bit in _bits(core)] + folded)

    def cost(self, size: int, nbytes: int, network: Network) -> Cost:
        core = _core(size)
        folds = 1 if size > core else 0
        best = min(_halving(core, nbytes), _doubling(core, nbytes), key=lambda cost: cost.seconds(network))
        return Cost(best.messages + 2 * folds, best.bytes_moved + 2 * folds * nbytes, best.bytes_added + folds * nbytes)

    def _sum(self, links: Links, array: np.ndarray) -> None:
        core = _core(links.size)
        if links.rank >= core:
            links.send(links.rank - core, array)
            links.receive(links.rank - core, array)
            return
        folded = links.rank + core
        if folded < links.size:
            came = links.scratch(len(array))
            links.receive(folded, came)
            array += came
        # the same on all ranks, as it is decided by constants
        network = Network()
        if _doubling(core, array.nbytes).seconds(network) <= _halving(core, array.nbytes).seconds(network):
            _exchange_all(links, array, core)
        else:
            _exchange_halves(links, array, core)
        if folded < links.size:
            links.send(folded, array)


def _core(size: int) -> int:
    return 1 << (size.bit_length() - 1)


def _bits(core: int) -> list[int]:
    return [1 << k for k in range(core.bit_length() - 1)]


def _halving(core: int, nbytes: int) -> Cost:
    share = (core - 1) / core * nbytes
    return Cost(2 * len(_bits(core)), 2 * share, share)


def _doubling(core: int, nbytes: int) -> Cost:
    steps = len(_bits(core))
    return Cost(steps, steps * nbytes, steps * nbytes)


def _exchange_all(links: Links, array: np.ndarray, core: int) -> None:
    """Both partners add the same two vectors, and a + b is b + a bit for bit."""
    came = links.scratch(len(array))
    for bit in _bits(core):
        links.exchange(links.rank ^ bit, array, links.rank ^ bit, came)
        array += came


def _exchange_halves(links: Links, array: np.ndarray, core: int) -> None:
    """Every number is summed on one rank and copied from there."""
    halves = []  # (bit, what this rank keeps, what it gives away)
    mine = array
    scratch = links.scratch(len(array) - len(array) // 2)
    for bit in _bits(core):
        low, high = mine[: len(mine) // 2], mine[len(mine) // 2 :]
        mine, given = (high, low) if links.rank & bit else (low, high)
        came = scratch[: len(mine)]
        links.exchange(links.rank ^ bit, given, links.rank ^ bit, came)
        mine += came
        halves.append((bit, mine, given))
    for bit, kept, given in reversed(halves):
        links.exchange(links.rank ^ bit, kept, links.rank ^ bit, given)
