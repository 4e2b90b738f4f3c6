"""What moves between the stages of a transform: bytes with an address, in rows of a DataFrame.

Spark hands thousands of rows to Python at once, so a row holds a piece of a payload, small enough for them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

#: Kinds of records, in the order in which stages need them: shards before requests, rows before sums.
COEFFICIENTS, ROWS, REQUEST, SUMS = range(4)

#: ``key``: decides the partition; ``batch``: which rows; ``piece``: of a payload, from 0.
COLUMNS = "key int, shard int, kind int, batch long, piece int, payload binary"
_SCHEMA = pa.schema(
    [
        ("key", pa.int32()),
        ("shard", pa.int32()),
        ("kind", pa.int32()),
        ("batch", pa.int64()),
        ("piece", pa.int32()),
        ("payload", pa.binary()),
    ]
)

#: Bytes of the rows that Spark hands to Python at once.
_AT_ONCE = 2**27
#: Bytes after which collected records are handed to Spark.
_FULL = 2**25


def piece_bytes(rows_at_once: int) -> int:
    """The size of pieces if Spark hands over ``rows_at_once`` (``spark.sql.execution.arrow.maxRecordsPerBatch``)."""
    return min(max(_AT_ONCE // (rows_at_once if rows_at_once > 0 else 10_000), 2**12), 2**20)


class Record(NamedTuple):
    """A whole payload and its address."""

    shard: int
    kind: int
    batch: int
    payload: bytearray


class Writer:
    """Collects payloads and cuts them into pieces of ``limit`` bytes; ``keys`` are the shards' (:func:`place`)."""

    def __init__(self, keys: np.ndarray, limit: int) -> None:
        self._keys, self._limit = keys, limit
        self._clear()

    def _clear(self) -> None:
        self._heads: list[tuple[int, int, int, int]] = []
        self._payloads: list[bytes] = []
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether it is time to :meth:`flush`."""
        return self._bytes >= _FULL

    def add(self, shard: int, kind: int, batch: int, payload: bytes) -> None:
        """One payload."""
        self._heads.append((int(self._keys[shard]), shard, kind, batch))
        self._payloads.append(payload)
        self._bytes += len(payload)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """What has been collected, if anything has."""
        if not self._heads:
            return
        heads = np.array(self._heads, np.int64)
        sizes = np.array([len(payload) for payload in self._payloads], np.int64)
        pieces = np.maximum(-(-sizes // self._limit), 1)
        piece = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        starts = np.repeat(np.cumsum(sizes) - sizes, pieces) + piece * self._limit
        offsets = np.append(starts, sizes.sum())
        if offsets[-1] > np.iinfo(np.int32).max:
            raise ValueError(
                f"a batch of rows has {offsets[-1]} bytes, more than Arrow's 2 GiB; lower "
                "spark.sql.execution.arrow.maxRecordsPerBatch"
            )
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(self._payloads))]
        key, shard, kind, batch = np.repeat(heads, pieces, axis=0).T
        arrays = [pa.array(column.astype(np.int32)) for column in (key, shard, kind)]
        arrays += [pa.array(np.ascontiguousarray(batch)), pa.array(piece.astype(np.int32))]
        arrays.append(pa.Array.from_buffers(pa.binary(), len(piece), buffers))
        self._clear()
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


class Joiner:
    """Puts pieces together again: records must come sorted by their address, then ``piece``."""

    def __init__(self) -> None:
        self._head: tuple[int, int, int] = (0, 0, 0)
        self._pieces: list[pa.Buffer] = []

    def feed(self, batch: pa.RecordBatch) -> Iterator[Record]:
        """The records that are whole now; the last one may go on in the next batch."""
        columns = [batch.column(name).to_pylist() for name in ("shard", "kind", "batch", "piece")]
        payloads = batch.column("payload")
        for row, (shard, kind, number, piece) in enumerate(zip(*columns, strict=True)):
            if piece == 0:
                yield from self.rest()
            self._head = (shard, kind, number)
            self._pieces.append(payloads[row].as_buffer())

    def rest(self) -> Iterator[Record]:
        """The last record, if there is one."""
        if self._pieces:
            yield Record(*self._head, bytearray().join(self._pieces))
            self._pieces = []


def read(batches: Iterable[pa.RecordBatch]) -> Iterator[Record]:
    """The payloads of sorted records."""
    joiner = Joiner()
    for batch in batches:
        yield from joiner.feed(batch)
    yield from joiner.rest()


def place(shards: int) -> np.ndarray:
    """A key for each shard, so that Spark's hash partitioning puts it into the partition of the shard's number.

    Without it some partitions had several shards and others none. Nothing but balance depends on it: shards with one
    partition are worked on one after another.
    """
    keys = np.full(shards, -1, np.int64)
    start = 0
    while (keys < 0).any():
        candidates = np.arange(start, start + 16 * shards)
        partitions = _murmur3(candidates) % shards
        # assigned from the last to the first, so that the smallest candidate stays
        free = keys[partitions] < 0
        keys[partitions[free][::-1]] = candidates[free][::-1]
        start += 16 * shards
    return keys


def _murmur3(keys: np.ndarray) -> np.ndarray:
    """Spark's hash of an int (MurmurHash3 x86 with seed 42), as signed numbers."""
    with np.errstate(over="ignore"):
        k = _rotate(keys.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        h = _rotate(np.uint32(42) ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        h ^= np.uint32(4)
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return (h ^ (h >> np.uint32(16))).view(np.int32).astype(np.int64)


def _rotate(x: np.ndarray, bits: int) -> np.ndarray:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))
