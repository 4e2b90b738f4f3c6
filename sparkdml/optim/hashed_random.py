"""Random numbers that depend on a seed and on what they are for, and not on who draws them, or in which order."""

from __future__ import annotations

import math

import numpy as np

from sparkdml.resources.compiled import compiled


def hashed_gaussians(seed: int, keys: np.ndarray, count: int) -> np.ndarray:
    """``count`` normal deviates for each of ``keys`` (int64, (n,)), float64 (n, count).

    Box & Muller (1958) on hashes of seed, key and number (the finaliser of splitmix64).
    """
    result = np.empty((len(keys), count))
    _gaussians(np.uint64(seed % 2**64), keys, result)
    return result


@compiled()
def _uniform(seed, key, number):
    """In (0, 1]."""
    h = seed + np.uint64(key) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(number) * np.uint64(0xD1B54A32D192ED03)
    for _ in range(2):
        h ^= h >> np.uint64(30)
        h *= np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(27)
        h *= np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(31)
    return (np.float64(h >> np.uint64(11)) + 1.0) * 2.0**-53


@compiled()
def _gaussians(seed, keys, result):
    for n in range(keys.shape[0]):
        for k in range(result.shape[1]):
            length = math.sqrt(-2.0 * math.log(_uniform(seed, keys[n], 2 * k)))
            result[n, k] = length * math.cos(2.0 * math.pi * _uniform(seed, keys[n], 2 * k + 1))
