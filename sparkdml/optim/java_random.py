"""The random numbers of ``java.util.Random``: what Spark starts from, it starts from here too."""

from __future__ import annotations

import math

import numpy as np

from sparkdml.resources.compiled import compiled

_MULTIPLIER = np.uint64(0x5DEECE66D)
_INCREMENT = np.uint64(0xB)
_MASK = np.uint64(2**48 - 1)


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
