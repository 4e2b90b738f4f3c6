"""One shard's coefficients in memory: chunks as bytes, chunks put in order, look-ups by feature."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

#: ``indices`` int64 (n,), increasing feature numbers; ``values`` float64 (n, C).
Chunk = tuple[np.ndarray, np.ndarray]

#: Most rows of a chunk.
CHUNK_ROWS = 2**18


@dataclass(frozen=True)
class Shard:
    """The coefficients of a range of features: ``indices`` increase, features that are not there have zeros."""

    indices: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, chunks: Iterable[Chunk], columns: int) -> Shard:
        """``chunks`` in any order, with C = ``columns``."""
        parts = [chunk for chunk in chunks if len(chunk[0])]
        if not parts:
            return cls(np.zeros(0, np.int64), np.zeros((0, columns)))
        parts.sort(key=lambda part: int(part[0][0]))
        indices = np.concatenate([part[0] for part in parts])
        values = np.concatenate([part[1] for part in parts])
        steps = np.diff(indices)
        if (steps <= 0).any():  # files may be read in any order
            order = np.argsort(indices, kind="stable")
            indices, values = indices[order], values[order]
            steps = np.diff(indices)
        if (steps == 0).any():
            twice = int(indices[np.argmax(steps == 0)])
            raise ValueError(f"feature {twice} has two rows of coefficients; shards and chunks must be disjoint")
        return cls(indices, values)

    def take(self, features: np.ndarray) -> np.ndarray:
        """The coefficients (n, C) of ``features`` (n,), zeros for those that are not stored."""
        found = np.zeros((len(features), self.values.shape[1]))
        if len(self.indices):
            at = np.minimum(np.searchsorted(self.indices, features), len(self.indices) - 1)
            stored = self.indices[at] == features
            found[stored] = self.values[at[stored]]
        return found

    def dense(self, features: int) -> np.ndarray:
        """The coefficients (``features``, C), zeros included."""
        coefficients = np.zeros((features, self.values.shape[1]))
        coefficients[self.indices] = self.values
        return coefficients

    def chunks(self) -> Iterator[Chunk]:
        """At most :data:`CHUNK_ROWS` rows each."""
        for start in range(0, len(self.indices), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            yield self.indices[part], self.values[part]


def to_bytes(indices: np.ndarray, values: np.ndarray) -> bytes:
    """A chunk as bytes: indices, then values by rows."""
    return np.ascontiguousarray(indices, np.int64).tobytes() + np.ascontiguousarray(values, np.float64).tobytes()


def from_bytes(payload: bytes | bytearray | memoryview, columns: int) -> Chunk:
    """The inverse of :func:`to_bytes`."""
    rows = len(payload) // (8 * (1 + columns))
    indices = np.frombuffer(payload, np.int64, rows)
    return indices, np.frombuffer(payload, np.float64, rows * columns, 8 * rows).reshape(rows, columns)


def small_chunks(chunk: Chunk, nbytes: int) -> Iterator[Chunk]:
    """``chunk`` in parts of about ``nbytes``, at least a row each."""
    indices, values = chunk
    rows = max(nbytes // (8 * (1 + values.shape[1])), 1)
    for start in range(0, len(indices), rows):
        yield indices[start : start + rows], values[start : start + rows]
