"""From keys to the rows of an array: a hash table of open addresses (linear probing, at most half full)."""

from __future__ import annotations

import numpy as np

from sparkdml.resources.compiled import compiled

_EMPTY = -1


class Places:
    """Keys are int64, 0 or more; each gets the next row when it first comes, and keeps it."""

    def __init__(self) -> None:
        self.count = 0
        self._keys = np.full(16, _EMPTY, np.int64)
        self._rows = np.zeros(16, np.int64)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The row of each key, -1 for those that are not there."""
        rows = np.empty(len(keys), np.int64)
        _find(keys, self._keys, self._rows, rows)
        return rows

    def add(self, keys: np.ndarray) -> np.ndarray:
        """The row of each key, new ones for those that are not there."""
        if 2 * (self.count + len(keys)) > len(self._keys):
            self._grow(self.count + len(keys))
        rows = np.empty(len(keys), np.int64)
        self.count = _add(keys, self._keys, self._rows, rows, self.count)
        return rows

    def keys(self) -> np.ndarray:
        """All keys, in the order of their rows."""
        used = self._keys != _EMPTY
        keys = np.empty(self.count, np.int64)
        keys[self._rows[used]] = self._keys[used]
        return keys

    def _grow(self, count: int) -> None:
        keys = self.keys()
        size = 1 << (4 * count).bit_length()
        self._keys, self._rows = np.full(size, _EMPTY, np.int64), np.zeros(size, np.int64)
        _add(keys, self._keys, self._rows, np.empty(len(keys), np.int64), 0)


@compiled()
def _place(key, mask):
    # Fibonacci hashing: neighbours scatter, and the high bits know all others
    return np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask


@compiled()
def _find(keys, table, table_rows, rows):
    mask = table.shape[0] - 1
    for i in range(keys.shape[0]):
        at = _place(keys[i], mask)
        while table[at] != keys[i] and table[at] != -1:
            at = (at + 1) & mask
        rows[i] = table_rows[at] if table[at] == keys[i] else -1


@compiled()
def _add(keys, table, table_rows, rows, count):
    mask = table.shape[0] - 1
    for i in range(keys.shape[0]):
        at = _place(keys[i], mask)
        while table[at] != keys[i] and table[at] != -1:
            at = (at + 1) & mask
        if table[at] == -1:
            table[at], table_rows[at] = keys[i], count
            count += 1
        rows[i] = table_rows[at]
    return count
