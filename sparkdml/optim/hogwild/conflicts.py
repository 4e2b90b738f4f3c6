"""Which rows of a batch share a feature, so that each thread gets rows that no other thread's rows touch."""

from __future__ import annotations

import numpy as np

from sparkdml.data.block import Block, SparseBlock
from sparkdml.resources.compiled import compiled


def dealt(block: Block, rows: np.ndarray, threads: int) -> list[np.ndarray]:
    """Places in ``rows`` (numbers of rows of ``block``) for each of ``threads``, increasing; together all of them.

    Rows that share a feature, by way of other rows too, go to one thread: they are a connected component of the
    graph whose edges are conflicts. Components go by their number of values, the largest first, each to the thread
    that has least. Dense rows are one component.
    """
    if not isinstance(block, SparseBlock):
        return [np.arange(len(rows))] + [np.zeros(0, np.int64)] * (threads - 1)
    parents, sizes = np.arange(len(rows)), np.zeros(len(rows), np.int64)
    _components(block.indptr, block.indices, rows, np.full(block.features, -1, np.int32), parents, sizes)
    thread_of, loads = np.zeros(len(rows), np.int64), np.zeros(threads, np.int64)
    _deal(np.argsort(-sizes, kind="stable"), sizes, loads, thread_of)
    thread_of = thread_of[parents]
    return [np.flatnonzero(thread_of == thread) for thread in range(threads)]


@compiled()
def _components(indptr, indices, rows, owner, parents, sizes):
    """``parents[m]`` becomes the first row of m's component, and ``sizes`` of that its number of values.

    ``owner`` (d,) is -1 before; union by the smaller number, with paths halved (Tarjan, 1975).
    """
    for m in range(rows.shape[0]):
        for p in range(indptr[rows[m]], indptr[rows[m] + 1]):
            j = indices[p]
            if owner[j] < 0:
                owner[j] = m
            else:
                one, other = _root(parents, owner[j]), _root(parents, m)
                parents[max(one, other)] = min(one, other)
    for m in range(rows.shape[0]):
        parents[m] = _root(parents, m)
        sizes[parents[m]] += indptr[rows[m] + 1] - indptr[rows[m]] + 1


@compiled()
def _root(parents, m):
    while parents[m] != m:
        parents[m] = parents[parents[m]]
        m = parents[m]
    return m


@compiled()
def _deal(order, sizes, loads, thread_of):
    for m in order:
        if sizes[m] == 0:
            break
        thread_of[m] = np.argmin(loads)
        loads[thread_of[m]] += sizes[m]
