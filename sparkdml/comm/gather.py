"""Everybody gets what everybody has, however long it is."""

from __future__ import annotations

import numpy as np

from sparkdml.comm.links import Links
from sparkdml.comm.topologies import Topology


def all_gather(topology: Topology, links: Links, data: bytes) -> list[bytes]:
    """The ``data`` of all ranks, in their order.

    Lengths are summed first, each in a slot of its own, by an exact ``topology``. Then everything goes around a ring:
    in K - 1 steps each rank hands on what it received last, so every rank sends the bytes of all others but one.
    """
    if links.size == 1:
        return [data]
    lengths = np.zeros(links.size)
    lengths[links.rank] = len(data)
    topology.all_reduce(links, lengths)
    links.kind = "gather"
    after, before = (links.rank + 1) % links.size, (links.rank - 1) % links.size
    pieces: list[np.ndarray] = [np.empty(int(length), np.uint8) for length in lengths]
    pieces[links.rank] = np.frombuffer(data, np.uint8)
    for step in range(links.size - 1):
        mine, theirs = (links.rank - step) % links.size, (before - step) % links.size
        links.exchange(after, pieces[mine], before, pieces[theirs])
    return [piece.tobytes() for piece in pieces]
