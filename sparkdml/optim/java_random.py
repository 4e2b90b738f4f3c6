"""The random numbers of ``java.util.Random`` and Spark: what Spark starts from, it starts from here too."""

from __future__ import annotations

import math

import numpy as np

from sparkdml.resources.compiled import compiled

_MULTIPLIER = np.uint64(0x5DEECE66D)
_INCREMENT = np.uint64(0xB)
_MASK = np.uint64(2**48 - 1)
#: With what Scala begins to hash an array.
_ARRAY_SEED = 0x3C074A61


def java_gaussians(seed: int, count: int) -> np.ndarray:
    """The first ``count`` answers of ``new java.util.Random(seed).nextGaussian()``, float64 (count,).

    They differ from Java's in the last digit at most, where the C library's logarithm does.
    """
    result = np.empty(count)
    _gaussians(np.uint64(seed % 2**64), result)
    return result


@compiled()
def _gaussians(seed, result):
    """Marsaglia's polar method on a linear congruential generator of 48 bits."""
    state = (seed ^ _MULTIPLIER) & _MASK
    n = 0
    while n < result.shape[0]:
        square = 0.0
        while square >= 1.0 or square == 0.0:
            state, u = _uniform(state)
            state, v = _uniform(state)
            u, v = 2.0 * u - 1.0, 2.0 * v - 1.0
            square = u * u + v * v
        factor = math.sqrt(-2.0 * math.log(square) / square)
        result[n] = u * factor
        if n + 1 < result.shape[0]:
            result[n + 1] = v * factor
        n += 2


@compiled()
def _uniform(state):
    """The next state, and ``nextDouble()``: 26 bits of one step and 27 of another."""
    first = (state * _MULTIPLIER + _INCREMENT) & _MASK
    second = (first * _MULTIPLIER + _INCREMENT) & _MASK
    bits = ((first >> np.uint64(22)) << np.uint64(27)) + (second >> np.uint64(21))
    return second, np.float64(bits) * 2.0**-53


def xor_shift_uniforms(seed: int, count: int) -> np.ndarray:
    """The first ``count`` answers of ``nextDouble()`` of Spark's ``XORShiftRandom(seed)``, float64 (count,).

    Marsaglia, "Xorshift RNGs" (2003), whose state begins as a hash of the seed.
    """
    data = (seed % 2**64).to_bytes(8, "big")
    low = murmur3(data, _ARRAY_SEED)
    result = np.empty(count)
    _xor_shift(np.uint64(murmur3(data, low) << 32 | low), result)
    return result


def murmur3(data: bytes, seed: int) -> int:
    """MurmurHash3 (x86, 32 bits) of a multiple of 4 bytes."""
    state = seed
    for first in range(0, len(data), 4):
        word = int.from_bytes(data[first : first + 4], "little") * 0xCC9E2D51 % 2**32
        state ^= _rotated(word, 15) * 0x1B873593 % 2**32
        state = (_rotated(state, 13) * 5 + 0xE6546B64) % 2**32
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B % 2**32
    state = (state ^ state >> 13) * 0xC2B2AE35 % 2**32
    return state ^ state >> 16


def _rotated(word: int, places: int) -> int:
    return (word << places | word >> 32 - places) % 2**32


@compiled()
def _xor_shift(state, result):
    """``nextDouble()``: 26 bits of one step and 27 of another, the lowest of each."""
    for n in range(result.shape[0]):
        state = _shifted(state)
        high = state & np.uint64(2**26 - 1)
        state = _shifted(state)
        low = state & np.uint64(2**27 - 1)
        result[n] = np.float64((high << np.uint64(27)) + low) * 2.0**-53


@compiled()
def _shifted(state):
    state = state ^ (state << np.uint64(21))
    state = state ^ (state >> np.uint64(35))
    return state ^ (state << np.uint64(4))
