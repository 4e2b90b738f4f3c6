"""Sets of keys that both ends remember, so that a second call with the same keys names them by a digest."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from hashlib import blake2b

import numpy as np

_DIGEST_BYTES = 16


class Keys:
    """Row numbers that increase, int64 (n,). Make one for keys that are used again: its digest is computed once.

    Raises ValueError if they are not integers of 0 or more that increase.
    """

    def __init__(self, keys: np.ndarray) -> None:
        given = np.asarray(keys)
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise ValueError(f"keys are integers of shape (n,), not {given.dtype} of shape {given.shape}")
        self.array = given.astype(np.int64)
        self.array.flags.writeable = False
        if len(given) and (self.array[0] < 0 or (np.diff(self.array) <= 0).any()):
            raise ValueError("keys must be 0 or more, and increase; take np.unique of them")

    def __len__(self) -> int:
        return len(self.array)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.array)

    def split(self, bounds: np.ndarray) -> list[tuple[int, slice, Keys]]:
        """For each range of ``bounds`` that has any of the keys: its number, where they are in the array, and they."""
        remembered = self.__dict__.setdefault("_splits", {})
        name = bounds.tobytes()
        if name not in remembered:
            ends = np.searchsorted(self.array, bounds).tolist()
            parts = [(number, slice(*ends[number : number + 2])) for number in range(len(bounds) - 1)]
            remembered[name] = [(n, at, Keys(self.array[at])) for n, at in parts if at.stop > at.start]
        found: list[tuple[int, slice, Keys]] = remembered[name]
        return found


def digest_of(keys: np.ndarray) -> str:
    return blake2b(np.ascontiguousarray(keys, np.int64).data, digest_size=_DIGEST_BYTES).hexdigest()


class KeyCache:
    """The server's: keys by digest, those used longest ago forgotten when they take more than ``most_bytes``.

    Digests are the server's own, so that no client can give keys another's name. One thread at a time.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.bytes = most_bytes, 0
        self.hits = self.misses = 0
        self._keys: OrderedDict[str, np.ndarray] = OrderedDict()

    def find(self, digest: str) -> np.ndarray | None:
        keys = self._keys.get(digest)
        if keys is None:
            self.misses += 1
            return None
        self.hits += 1
        self._keys.move_to_end(digest)
        return keys

    def add(self, keys: np.ndarray) -> np.ndarray:
        """A copy of the keys, remembered. Raises ValueError as :class:`Keys` does."""
        made = Keys(keys)
        digest = made.digest
        if digest not in self._keys and made.array.nbytes <= self.most_bytes:
            self._keys[digest] = made.array
            self.bytes += made.array.nbytes
            while self.bytes > self.most_bytes:
                self.bytes -= self._keys.popitem(last=False)[1].nbytes
        return made.array


class KnownDigests:
    """The client's: which digests a server was given, the last ``most`` of them. The server may know fewer."""

    def __init__(self, most: int = 1024) -> None:
        self.most = most
        self._digests: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, digest: str) -> bool:
        return digest in self._digests

    def add(self, digest: str) -> None:
        self._digests[digest] = None
        self._digests.move_to_end(digest)
        if len(self._digests) > self.most:
            self._digests.popitem(last=False)

    def forget(self) -> None:
        self._digests.clear()
