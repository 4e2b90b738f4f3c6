"""One byte an entry: 8 times fewer bytes than float64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sparkdml.comm.codecs.base import Codec, Packet, Parts, Seed, seed_sequence
from sparkdml.resources.compiled import compiled

#: Entries that share a scale.
BLOCK = 1024
_LEVELS = 127


@dataclass(frozen=True)
class Int8(Codec):
    """``q_i = round(127 x_i / m)`` with ``m`` the largest magnitude among 1,024 entries; decoded ``m q_i / 127``.

    Rounds to the nearest, ties to even, or with ``stochastic`` up with a probability of the fraction that is cut off,
    which is unbiased (to 2^-24 of a step; Alistarh et al., 2017, QSGD). The block's largest entry is exact, so the
    relative error is at most ``sqrt(1023) / 254 = 0.13``, or twice that.
    """

    stochastic: bool = False

    @property
    def name(self) -> str:
        return "int8-stochastic" if self.stochastic else "int8"

    @property
    def unbiased(self) -> bool:
        return self.stochastic

    def compress(self, array: np.ndarray, seed: Seed, previous: Packet | None) -> Parts:
        codes, largest = np.empty(array.size, np.int8), np.empty(-(-array.size // BLOCK))
        if self.stochastic:
            key = seed_sequence(seed).generate_state(1, np.uint64)[0]
            _quantize_stochastic(array.reshape(-1), key, codes, largest)
        else:
            _quantize(array.reshape(-1), codes, largest)
        return {"codes": codes, "largest": largest}

    def expand(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        codes, largest = np.asarray(parts["codes"]), np.asarray(parts["largest"])
        if largest.size != -(-codes.size // BLOCK):
            raise ValueError(f"{codes.size} codes have {largest.size} scales")
        out = np.empty(codes.size)
        _dequantize(codes, largest, out)
        return out

    def error_bound(self, array: np.ndarray) -> float:
        step = 1.0 if self.stochastic else 0.5
        return step * math.sqrt(max(min(array.size, BLOCK) - 1, 0)) / _LEVELS


@compiled()
def _largest_magnitude(values, start, stop):
    """Compared as integers, which order as the magnitudes do: the compiler vectorises that."""
    largest = np.uint64(0)
    for i in range(start, stop):
        magnitude = np.float64(values[i]).view(np.uint64) & np.uint64(0x7FFFFFFFFFFFFFFF)
        largest = magnitude if magnitude > largest else largest
    return np.uint64(largest).view(np.float64)


@compiled()
def _quantize(values, codes, largest):
    for block in range(largest.shape[0]):
        start = block * BLOCK
        stop = min(start + BLOCK, values.shape[0])
        m = _largest_magnitude(values, start, stop)
        largest[block] = m
        divisor = m if m > 0.0 else 1.0
        for i in range(start, stop):
            # 127 / m would overflow for subnormal m
            codes[i] = np.int8(np.rint(values[i] / divisor * 127.0))


@compiled()
def _quantize_stochastic(values, key, codes, largest):
    """Draws are splitmix64 (Steele et al., 2014) of the entry's place: no state, so the loop is vectorised."""
    for block in range(largest.shape[0]):
        start = block * BLOCK
        stop = min(start + BLOCK, values.shape[0])
        m = _largest_magnitude(values, start, stop)
        largest[block] = m
        divisor = m if m > 0.0 else 1.0
        for i in range(start, stop):
            z = key + np.uint64(i + 1) * np.uint64(0x9E3779B97F4A7C15)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
            # 24 bits: 127 plus the largest of these draws still is below 128
            uniform = np.float64(z >> np.uint64(40)) * 2.0**-24
            codes[i] = np.int8(np.floor(values[i] / divisor * 127.0 + uniform))


@compiled()
def _dequantize(codes, largest, out):
    for block in range(largest.shape[0]):
        m = largest[block]
        start = block * BLOCK
        for i in range(start, min(start + BLOCK, out.shape[0])):
            out[i] = np.float64(codes[i]) / 127.0 * m
