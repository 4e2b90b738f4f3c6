"""All-reduce between workers. See :class:`sparkdml.comm.topologies.base.Topology`."""

from __future__ import annotations

from sparkdml.comm.topologies.base import Cost, LayoutError, Network, Topology, sum_updates
from sparkdml.comm.topologies.gossip import Gossip
from sparkdml.comm.topologies.halving_doubling import HalvingDoubling
from sparkdml.comm.topologies.ring import Ring
from sparkdml.comm.topologies.tree import Tree

__all__ = [
    "TOPOLOGIES",
    "Cost",
    "Gossip",
    "HalvingDoubling",
    "LayoutError",
    "Network",
    "Ring",
    "Topology",
    "Tree",
    "choose",
    "named",
    "sum_updates",
]

#: Topologies by the name that asks for them.
TOPOLOGIES: dict[str, type[Topology]] = {t.name: t for t in (Ring, Tree, HalvingDoubling, Gossip)}


def named(name: str) -> Topology:
    """The topology called ``name``."""
    if name not in TOPOLOGIES:
        raise ValueError(f"topology='{name}' is not known; it can be {', '.join(TOPOLOGIES)}")
    return TOPOLOGIES[name]()


def choose(size: int, nbytes: int, network: Network | None = None) -> Topology:
    """The exact topology that sums ``nbytes`` over ``size`` workers in the least time by its :meth:`Topology.cost`.

    Short vectors go by halving and doubling. Long ones do too where the number of workers is a power of two, as it
    moves no more bytes than a ring; else they go by ring, which needs no folding. Of equals, the ring comes first.
    """
    network = network or Network()
    exact = [topology() for topology in TOPOLOGIES.values() if topology.exact]
    return min(exact, key=lambda topology: topology.cost(size, nbytes, network).seconds(network))
