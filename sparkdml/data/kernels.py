"""Margins and gradients of stored rows, compiled.

Stored values may be float32 or float64; every product and sum is float64. Reductions may be reassociated (that is
what lets them use vector registers), so sums depend on the order of rows only in their last digits.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numba
import numpy as np

_REASSOCIATE = {"reassoc", "contract", "nsz", "arcp"}
_fast = numba.njit(cache=True, nogil=True, fastmath=_REASSOCIATE, error_model="numpy")


@_fast
def dense_margins(values, coefficients, out):
    """``out_i = sum_j values_ij * coefficients_j``, four rows at a time."""
    rows, features = values.shape
    i = 0
    while i + 4 <= rows:
        a = b = c = d = 0.0
        for j in range(features):
            w = coefficients[j]
            a += values[i, j] * w
            b += values[i + 1, j] * w
            c += values[i + 2, j] * w
            d += values[i + 3, j] * w
        out[i] = a
        out[i + 1] = b
        out[i + 2] = c
        out[i + 3] = d
        i += 4
    while i < rows:
        a = 0.0
        for j in range(features):
            a += values[i, j] * coefficients[j]
        out[i] = a
        i += 1


@_fast
def dense_accumulate(values, slopes, gradient):
    """``gradient_j += sum_i slopes_i * values_ij``, four rows at a time."""
    rows, features = values.shape
    i = 0
    while i + 4 <= rows:
        a, b, c, d = slopes[i], slopes[i + 1], slopes[i + 2], slopes[i + 3]
        for j in range(features):
            gradient[j] += (
                a * values[i, j] + b * values[i + 1, j] + c * values[i + 2, j] + d * values[i + 3, j]
            )
        i += 4
    while i < rows:
        a = slopes[i]
        for j in range(features):
            gradient[j] += a * values[i, j]
        i += 1


@_fast
def sparse_margins(indptr, indices, values, coefficients, out):
    """``out_i = sum_p values_p * coefficients[indices_p]`` over the non-zeros p of row i."""
    for i in range(out.shape[0]):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += values[p] * coefficients[indices[p]]
        out[i] = total


@_fast
def sparse_accumulate(indptr, indices, values, slopes, gradient):
    """``gradient[indices_p] += slopes_i * values_p``."""
    for i in range(slopes.shape[0]):
        slope = slopes[i]
        for p in range(indptr[i], indptr[i + 1]):
            gradient[indices[p]] += slope * values[p]


@_fast
def sparse_margins_multi(indptr, indices, values, coefficients, out):
    """As :func:`sparse_margins` for K margins a row; coefficients are padded to full registers."""
    outputs = out.shape[1]
    row = np.empty(coefficients.shape[1])
    for i in range(out.shape[0]):
        row[:] = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            value = np.float64(values[p])
            j = indices[p]
            for k in range(row.shape[0]):
                row[k] += value * coefficients[j, k]
        for k in range(outputs):
            out[i, k] = row[k]


@_fast
def sparse_accumulate_multi(indptr, indices, values, slopes, gradient):
    """As :func:`sparse_accumulate` for K slopes a row; the gradient is padded to full registers."""
    outputs = slopes.shape[1]
    row = np.zeros(gradient.shape[1])
    for i in range(slopes.shape[0]):
        for k in range(outputs):
            row[k] = slopes[i, k]
        for p in range(indptr[i], indptr[i + 1]):
            value = np.float64(values[p])
            j = indices[p]
            for k in range(row.shape[0]):
                gradient[j, k] += value * row[k]
