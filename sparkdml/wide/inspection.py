"""What can be asked of coefficients that nobody holds: the largest, how many are zero, all of them if they fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from sparkdml.data.combine import combine
from sparkdml.wide.shard import Chunk, Shard
from sparkdml.wide.shards import Shards

#: Numbers (features x C) up to which coefficients are brought to the driver.
COEFFICIENTS_LIMIT = 2**24

#: Coefficients with their features and classes: ``values`` (n,), ``features`` (n,), ``classes`` (n,).
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]


def collect(shards: Shards, what: str) -> Shard:
    """All stored coefficients, on the driver.

    Raises ValueError above :data:`COEFFICIENTS_LIMIT`; ``what`` was asked for.
    """
    size = shards.features * shards.columns
    if size > COEFFICIENTS_LIMIT:
        raise ValueError(
            f"{what} would bring {shards.features} features x {shards.columns} = {size} numbers to the driver, more "
            f"than {COEFFICIENTS_LIMIT}; use coefficientsRDD, topFeatures(k), or save and read the Parquet files"
        )
    return Shard.of(shards.chunks.collect(), shards.columns)


def take(shards: Shards, features: np.ndarray) -> np.ndarray:
    """The coefficients (n, C) of ``features`` (n,), which increase: by a job on the shards that have them."""
    found = np.zeros((len(features), shards.columns))
    ends = np.searchsorted(features, shards.bounds)
    touched = np.flatnonzero(np.diff(ends)).tolist()
    if touched:
        sc = shards.chunks.ctx
        parts = sc.runJob(shards.chunks.mapPartitionsWithIndex(_taker(features, ends, shards.columns)), list, touched)
        found[:] = np.concatenate(parts)
    return found


def count_nonzero(shards: Shards) -> int:
    """How many coefficients are not exactly 0."""
    return int(shards.chunks.map(_count).sum())


def largest(shards: Shards, k: int) -> Entries:
    """The ``k`` coefficients of largest magnitude, then by feature and class; zeros are never among them."""
    found = combine(
        shards.chunks.mapPartitions(_local_largest(k)),
        lambda one, other: _cut([np.concatenate(pair) for pair in zip(one, other, strict=True)], k),
        24 * min(k, 2**31),
        len(shards),
    )
    return found or (np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))


def _taker(features: np.ndarray, ends: np.ndarray, columns: int) -> Callable[[int, Iterable[Chunk]], Iterator[Any]]:
    def run(shard: int, chunks: Iterable[Chunk]) -> Iterator[Any]:
        asked = features[ends[shard] : ends[shard + 1]]
        found = np.zeros((len(asked), columns))
        for chunk in chunks:
            found += Shard(*chunk).take(asked)
        return iter([found])

    return run


def _count(chunk: Chunk) -> int:
    return int(np.count_nonzero(chunk[1]))


def _local_largest(k: int) -> Callable[[Iterable[Chunk]], Iterator[Entries]]:
    def run(chunks: Iterable[Chunk]) -> Iterator[Entries]:
        best: Entries | None = None
        for indices, values in chunks:
            rows, classes = np.nonzero(values)
            entries = values[rows, classes], indices[rows], classes
            if best is not None:
                entries = tuple(np.concatenate(pair) for pair in zip(best, entries, strict=True))  # type: ignore[assignment]
            best = _cut(entries, k)
        return iter([] if best is None else [best])

    return run


def _cut(entries: Iterable[np.ndarray], k: int) -> Entries:
    values, features, classes = entries
    size = np.abs(values)
    if len(size) > k:
        candidates = size >= np.partition(size, len(size) - k)[len(size) - k]
        values, features, classes, size = (
            values[candidates],
            features[candidates],
            classes[candidates],
            size[candidates],
        )
    order = np.lexsort((classes, features, -size))[:k]
    return values[order], features[order], classes[order]
