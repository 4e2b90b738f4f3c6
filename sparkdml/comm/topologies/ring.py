"""All-reduce around a ring: as few bytes as possible, as many messages as workers."""

from __future__ import annotations

import numpy as np

from sparkdml.comm.links import Links
from sparkdml.comm.topologies.base import Cost, Network, Topology


class Ring(Topology):
    """Reduce-scatter, then all-gather, of K chunks passed to the next rank.

    ``2 (K-1) alpha + 2 (K-1)/K n beta + (K-1)/K n gamma``. No all-reduce moves fewer bytes a worker, and as only
    neighbours talk, no cable of a network that is a tree carries a chunk twice (Patarasuk & Yuan, Bandwidth optimal
    all-reduce algorithms for clusters of workstations, J. Parallel Distrib. Comput. 69, 2009).
    """

    name = "ring"

    def neighbours(self, rank: int, size: int) -> frozenset[int]:
        return frozenset({(rank + 1) % size, (rank - 1) % size} - {rank})

    def cost(self, size: int, nbytes: int, network: Network) -> Cost:
        share = (size - 1) / size * nbytes
        return Cost(2 * (size - 1), 2 * share, share)

    def _sum(self, links: Links, array: np.ndarray) -> None:
        size, rank = links.size, links.rank
        bounds = [len(array) * part // size for part in range(size + 1)]
        chunks = [array[bounds[part] : bounds[part + 1]] for part in range(size)]
        after, before = (rank + 1) % size, (rank - 1) % size
        scratch = links.scratch(-(-len(array) // size))
        for step in range(size - 1):
            chunk = chunks[rank - step - 1]
            came = scratch[: len(chunk)]
            links.exchange(after, chunks[rank - step], before, came)
            chunk += came
        # chunk rank + 1 is complete here
        for step in range(size - 1):
            links.exchange(after, chunks[(rank + 1 - step) % size], before, chunks[rank - step])
