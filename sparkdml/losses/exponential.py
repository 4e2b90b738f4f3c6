"""exp and log1p over arrays, in a form that compilers turn into vector instructions."""

from __future__ import annotations

import numpy as np

from sparkdml.resources.compiled import compiled

_LOG2E = 1.4426950408889634
_LN2_HIGH = 0.6931471803691238
_LN2_LOW = 1.9082149292705877e-10
#: exp of less would leave the normal numbers.
_LOWEST = -708.0

_vector = compiled(fastmath={"contract", "nsz"})


@_vector
def exp_nonpositive(values, out):
    """``out = exp(values)`` for values <= 0, within 2 units in the last place; below -708 as at -708.

    ``exp(x) = 2^k exp(r)`` with ``|r| <= ln 2 / 2`` and the Taylor polynomial of degree 13, whose remainder is
    below 1e-17. (The library's exp is a call for each number, which nothing vectorises.)
    """
    n = values.shape[0]
    bits = np.empty(n, np.int64)
    power = bits.view(np.float64)
    for i in range(n):
        x = max(values[i], _LOWEST)
        k = np.floor(x * _LOG2E + 0.5)
        r = (x - k * _LN2_HIGH) - k * _LN2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        out[i] = p * r + 1.0
        bits[i] = (np.int64(k) + 1023) << 52
    for i in range(n):
        out[i] *= power[i]


@_vector
def log1p_unit(x):
    """``log(1 + x)`` for 0 <= x <= 1, to a relative 4e-16: ``2 artanh(z)`` with ``z = x / (2 + x) <= 1/3``."""
    z = x / (2.0 + x)
    s = z * z
    p = 1.0 / 31.0
    p = p * s + 1.0 / 29.0
    p = p * s + 1.0 / 27.0
    p = p * s + 1.0 / 25.0
    p = p * s + 1.0 / 23.0
    p = p * s + 1.0 / 21.0
    p = p * s + 1.0 / 19.0
    p = p * s + 1.0 / 17.0
    p = p * s + 1.0 / 15.0
    p = p * s + 1.0 / 13.0
    p = p * s + 1.0 / 11.0
    p = p * s + 1.0 / 9.0
    p = p * s + 1.0 / 7.0
    p = p * s + 1.0 / 5.0
    p = p * s + 1.0 / 3.0
    return 2.0 * (z + z * s * p)
