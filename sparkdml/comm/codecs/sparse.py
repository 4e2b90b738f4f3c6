"""Entries that matter, with their places: 12 bytes each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sparkdml.comm.codecs.base import Codec, Packet, Parts, Seed, relative_norms, seed_sequence

_ENTRY_BYTES = 12  # uint32 and float64
_MAX_SIZE = 2**32


def sparse_parts(values: np.ndarray, indices: np.ndarray) -> dict[str, np.ndarray | int | float]:
    """``values[indices]`` and ascending ``indices`` (uint32), for ``values`` of shape (n,)."""
    if values.size > _MAX_SIZE:
        raise ValueError(f"places are sent as uint32, so {_MAX_SIZE:,} entries at most, and there are {values.size:,}")
    return {"indices": indices.astype(np.uint32), "values": values[indices]}


def scatter(parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros (n,) with the entries of :func:`sparse_parts` in their places."""
    out = np.zeros(math.prod(shape))
    out[np.asarray(parts["indices"])] = parts["values"]
    return out


def share_of(share: float, size: int) -> int:
    """``share * size`` entries to the nearest, but at least one if there is one."""
    return min(max(round(share * size), 1), size)


def check_share(share: float, name: str) -> None:
    if not 0.0 < share <= 1.0:
        raise ValueError(f"the share of {name} must be above 0 and at most 1, and is {share}")


@dataclass(frozen=True)
class SparseOrDense(Codec):
    """Places and values of what is not 0, or all entries: whichever is smaller. Bit for bit.

    The former is below two thirds non-zeros. A negative zero counts as an entry.
    """

    lossless = True

    @property
    def name(self) -> str:
        return "sparse-or-dense"

    def compress(self, array: np.ndarray, seed: Seed, previous: Packet | None) -> Parts:
        values = array.reshape(-1)
        kept = values.view(np.uint64) != 0
        if np.count_nonzero(kept) * _ENTRY_BYTES < values.nbytes and values.size <= _MAX_SIZE:
            return sparse_parts(values, np.flatnonzero(kept))
        return {"values": values.copy()}

    def expand(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        return scatter(parts, shape) if "indices" in parts else np.array(parts["values"])


@dataclass(frozen=True)
class Threshold(Codec):
    """Entries of magnitude ``tau * sqrt(mean x^2)`` and above, and the largest in any case; the others become 0.

    The relative error is below ``min(tau, 1)``. The size of a packet follows the data: few entries that stand out
    are few bytes, and a constant array is sent as it is (Strom, 2015, with a threshold relative to the array). With
    error feedback, tau above about 1.5 sends hardly more than the largest entry a round: residuals even out.
    """

    tau: float

    def __post_init__(self) -> None:
        if not 0.0 < self.tau < math.inf:
            raise ValueError(f"tau of threshold must be above 0 and finite, and is {self.tau}")

    @property
    def name(self) -> str:
        return f"threshold:{float(self.tau)!r}"

    def compress(self, array: np.ndarray, seed: Seed, previous: Packet | None) -> Parts:
        largest, _, squares = relative_norms(array)
        cut = largest * min(self.tau * math.sqrt(squares / max(array.size, 1)), 1.0)
        return SparseOrDense().compress(np.where(np.abs(array) >= cut, array, 0.0), seed, previous)

    def expand(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        return SparseOrDense().expand(parts, shape)

    def error_bound(self, array: np.ndarray) -> float:
        return min(self.tau, 1.0) * math.sqrt(1.0 - 1.0 / max(array.size, 1))


@dataclass(frozen=True)
class TopK(Codec):
    """The ``k = share * n`` entries of largest magnitude; the others become 0 (Stich et al., 2018).

    Equal magnitudes are taken from the front. The relative error is at most ``sqrt(1 - k / n)``.
    """

    share: float

    def __post_init__(self) -> None:
        check_share(self.share, "top-k")

    @property
    def name(self) -> str:
        return f"top-k:{float(self.share)!r}"

    def compress(self, array: np.ndarray, seed: Seed, previous: Packet | None) -> Parts:
        values = array.reshape(-1)
        return sparse_parts(values, _largest(np.abs(values), share_of(self.share, values.size)))

    def expand(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        return scatter(parts, shape)

    def error_bound(self, array: np.ndarray) -> float:
        return math.sqrt(1.0 - share_of(self.share, array.size) / max(array.size, 1))


@dataclass(frozen=True)
class RandomK(Codec):
    """``k = share * n`` entries drawn without replacement, times ``n / k``; the others become 0.

    Unbiased, with a variance of ``(n / k - 1) ||x||^2`` and a relative error of at most ``max(1, n / k - 1)``. Error
    feedback would amplify that, so there the factor is 1 (``scaled=False``; Stich et al., 2018). Products beyond
    float64 become its largest number.
    """

    share: float
    scaled: bool = True

    def __post_init__(self) -> None:
        check_share(self.share, "random-k")

    @property
    def name(self) -> str:
        return f"random-k:{float(self.share)!r}"

    @property
    def unbiased(self) -> bool:
        return self.scaled

    def contractive(self) -> Codec:
        return RandomK(self.share, scaled=False)

    def compress(self, array: np.ndarray, seed: Seed, previous: Packet | None) -> Parts:
        values = array.reshape(-1)
        count = share_of(self.share, values.size)
        drawn = np.random.default_rng(seed_sequence(seed)).choice(values.size, count, replace=False, shuffle=False)
        factor = values.size / count if self.scaled and count else 1.0
        return {"factor": factor, **sparse_parts(values, np.sort(drawn))}

    def expand(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        limit = np.finfo(np.float64).max
        with np.errstate(over="ignore"):
            values = np.clip(parts["values"] * np.float64(parts["factor"]), -limit, limit)
        return scatter({"indices": parts["indices"], "values": values}, shape)

    def error_bound(self, array: np.ndarray) -> float:
        count = share_of(self.share, array.size)
        if count == array.size:
            return 0.0
        return max(array.size / count - 1.0, 1.0) if self.scaled else 1.0


def _largest(magnitudes: np.ndarray, count: int) -> np.ndarray:
    """The places, ascending, of the ``count`` largest of ``magnitudes``, zeros left out.

    Selecting the value first and the places by comparison is faster than selecting places (np.argpartition), and does
    not leave the choice among equal ones to the machine's kind of sort.
    """
    if count == magnitudes.size:
        return np.flatnonzero(magnitudes)
    place = magnitudes.size - count
    last = np.partition(magnitudes, place)[place]
    if last == 0.0:
        return np.flatnonzero(magnitudes)
    found = np.flatnonzero(magnitudes >= last)
    surplus = found.size - count
    ties = np.flatnonzero(magnitudes[found] == last)
    return np.delete(found, ties[ties.size - surplus :])
