"""Requests: the part of a batch of rows that one shard has the features of, and the shard's answer."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np

from sparkdml.resources.compiled import compiled
from sparkdml.wide.rows import SparseBatch
from sparkdml.wide.scorer import Scorer
from sparkdml.wide.shard import Shard


def split(rows: SparseBatch, bounds: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """For each shard that the rows touch, in order, its number and its part of the features.

    A part has the distinct features, and compressed sparse rows of these for the rows that have any: see
    :func:`answer` for the layout.
    """
    if not len(rows.indices):
        return
    order = np.argsort(rows.indices, kind="stable")
    local = np.empty(len(order), np.int32)
    features = np.empty(len(order), np.int64)
    features = features[: _rank(rows.indices, order, features, local)]
    touched, first = np.unique(np.searchsorted(bounds, features, side="right") - 1, return_index=True)
    first = np.append(first, len(features))
    counts = np.zeros(len(touched) + 1, np.int64)
    part_of = np.repeat(np.arange(len(touched), dtype=np.int32), np.diff(first))
    _count(part_of, local, counts)
    ends = np.cumsum(counts)
    values, places, row_of = np.empty(len(order)), np.empty(len(order), np.int32), np.empty(len(order), np.int32)
    _deal(rows.indptr, rows.values, local, part_of, first, ends.copy(), values, places, row_of)
    for part, shard in enumerate(touched.tolist()):
        chosen = slice(ends[part], ends[part + 1])
        mine = row_of[chosen]
        starts = np.flatnonzero(np.append(True, mine[1:] != mine[:-1]))
        own = features[first[part] : first[part + 1]]
        header = np.array([len(starts), len(own), len(mine)], np.int64)
        arrays = [header, own, values[chosen], np.append(starts, len(mine)), mine[starts], places[chosen]]
        yield shard, b"".join([array.tobytes() for array in arrays])


def answer(request: bytearray, shard: Shard, scorer: Scorer) -> bytes:
    """The sums for a request: digest, number of rows, sums, numbers of the rows."""
    _, rows, count, stored = np.frombuffer(request, np.int64, 4).tolist()
    at = 32
    arrays = []
    for kind, length in (
        (np.int64, count),
        (np.float64, stored),
        (np.int64, rows + 1),
        (np.int32, rows),
        (np.int32, stored),
    ):
        arrays.append(np.frombuffer(request, kind, length, at))
        at += arrays[-1].nbytes
    features, values, indptr, numbers, local = arrays
    sums = scorer.partial(indptr, local, values, shard.take(features))
    return bytes(request[:8]) + np.int64(rows).tobytes() + sums.tobytes() + numbers.tobytes()


def digest_of(rows: SparseBatch) -> int:
    """Tells batches with other rows, or with their rows in another order, apart."""
    digest = blake2b(digest_size=8)
    for array in rows:
        digest.update(np.ascontiguousarray(array).data)
    return int.from_bytes(digest.digest(), "little", signed=True)


@compiled()
def _rank(indices, order, features, local):
    """The distinct ``indices`` into ``features``, and the rank of each into ``local``; returns how many."""
    count = 0
    for n in range(order.shape[0]):
        index = indices[order[n]]
        if count == 0 or features[count - 1] != index:
            features[count] = index
            count += 1
        local[order[n]] = count - 1
    return count


@compiled()
def _count(part_of, local, counts):
    for p in range(local.shape[0]):
        counts[part_of[local[p]] + 1] += 1


@compiled()
def _deal(indptr, values, local, part_of, first, ends, dealt_values, places, row_of):
    """Non-zeros by part, within a part by row; ``ends`` are where parts begin, and move."""
    for i in range(indptr.shape[0] - 1):
        for p in range(indptr[i], indptr[i + 1]):
            part = part_of[local[p]]
            at = ends[part]
            ends[part] += 1
            dealt_values[at] = values[p]
            places[at] = local[p] - first[part]
            row_of[at] = i
