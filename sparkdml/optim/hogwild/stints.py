"""The rows of a pass, in the order of its steps, cut into what a thread does at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sparkdml.data.block import Block

#: Neighbours that stay together: a row's page and its place in the caches serve the next row too.
MOST_NEIGHBOURS = 64
#: Of so many runs of neighbours a pass has at least, while there are rows for it; short passes are shuffled row by row.
LEAST_RUNS = 1024


class Stint(NamedTuple):
    """Rows of one block by their numbers, int64 (n,); the first of them is step ``first`` of the pass."""

    block: Block
    rows: np.ndarray
    first: int


def stints(blocks: Sequence[Block], size: int, count: int, rng: np.random.Generator) -> list[Stint]:
    """At most ``count`` of the rows of weights above 0, each once, ``size`` rows of one block at a time.

    Runs of neighbouring rows are in random order within their block, and stints of all blocks among each other:
    shuffling in two levels, of which Xu et al., "In-database machine learning with CorgiPile: stochastic gradient
    descent without full data shuffle" (2022) show that it does as well as a full shuffle.
    """
    numbers = [np.flatnonzero(block.weights) for block in blocks]
    neighbours = min(max(sum(map(len, numbers)) // LEAST_RUNS, 1), MOST_NEIGHBOURS)
    parts: list[tuple[Block, np.ndarray]] = []
    for block, own in zip(blocks, numbers, strict=True):
        order = own[_runs(len(own), neighbours, rng)]
        parts += [(block, order[start : start + size]) for start in range(0, len(order), size)]
    found: list[Stint] = []
    first = 0
    for number in rng.permutation(len(parts)):
        block, order = parts[number]
        order = order[: count - first]
        if len(order):
            found.append(Stint(block, order, first))
            first += len(order)
    return found


def _runs(rows: int, neighbours: int, rng: np.random.Generator) -> np.ndarray:
    """The numbers below ``rows``, cut into runs of ``neighbours`` that are in random order."""
    starts = rng.permutation(-(-rows // neighbours)) * neighbours
    order = (starts[:, None] + np.arange(neighbours)).ravel()
    return order[order < rows]
