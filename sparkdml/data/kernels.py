"""Margins and gradients of stored rows, compiled.

Stored values may be float32 or float64; every product and sum is float64. Reductions may be reassociated (that is
what lets them use vector registers), so sums depend on the order of rows only in their last digits. Indices are taken
as unsigned: numba then leaves out its look at negative ones. The kernels of one margin a sparse row may not
reassociate: with that liberty the compiler gathers coefficients into vector registers, which is slower here.
"""

from __future__ import annotations

import numpy as np

from sparkdml.resources.compiled import compiled

_REASSOCIATE = {"reassoc", "contract", "nsz", "arcp"}
_fast = compiled(fastmath=_REASSOCIATE)
_in_order = compiled()


@_fast
def dense_margins(values, start, stop, coefficients, intercepts, out):
    """``out_i = sum_j values_ij * coefficients_j + intercept`` for rows start to stop, four at a time."""
    features = values.shape[1]
    weights = coefficients.reshape(-1)
    result = out.reshape(-1)
    intercept = intercepts[0]
    i = start
    while i + 4 <= stop:
        a = b = c = d = 0.0
        for j in range(features):
            w = weights[j]
            a += values[i, j] * w
            b += values[i + 1, j] * w
            c += values[i + 2, j] * w
            d += values[i + 3, j] * w
        k = i - start
        result[k] = a + intercept
        result[k + 1] = b + intercept
        result[k + 2] = c + intercept
        result[k + 3] = d + intercept
        i += 4
    while i < stop:
        a = 0.0
        for j in range(features):
            a += values[i, j] * weights[j]
        result[i - start] = a + intercept
        i += 1


@_fast
def dense_accumulate(values, start, stop, slopes, gradient):
    """``gradient_j += sum_i slopes_i * values_ij`` for rows start to stop, four at a time."""
    features = values.shape[1]
    slope = slopes.reshape(-1)
    result = gradient.reshape(-1)
    i = start
    while i + 4 <= stop:
        k = i - start
        a, b, c, d = slope[k], slope[k + 1], slope[k + 2], slope[k + 3]
        for j in range(features):
            result[j] += a * values[i, j] + b * values[i + 1, j] + c * values[i + 2, j] + d * values[i + 3, j]
        i += 4
    while i < stop:
        a = slope[i - start]
        for j in range(features):
            result[j] += a * values[i, j]
        i += 1


@_in_order
def sparse_margins(indptr, indices, values, start, stop, coefficients, intercepts, out):
    """``out_i = sum_p values_p * coefficients[indices_p] + intercept`` over the non-zeros p of row i."""
    weights = coefficients.reshape(-1)
    for i in range(start, stop):
        total = intercepts[0]
        for p in range(indptr[i], indptr[i + 1]):
            total += values[p] * weights[np.uint32(indices[p])]
        out[i - start, 0] = total


@_in_order
def sparse_accumulate(indptr, indices, values, start, stop, slopes, gradient):
    """``gradient[indices_p] += slopes_i * values_p``."""
    result = gradient.reshape(-1)
    for i in range(start, stop):
        slope = slopes[i - start, 0]
        for p in range(indptr[i], indptr[i + 1]):
            result[np.uint32(indices[p])] += slope * values[p]


@_fast
def sparse_margins_multi(indptr, indices, values, start, stop, coefficients, intercepts, out):
    """As :func:`sparse_margins` for K margins a row; coefficients are padded to full registers."""
    outputs = out.shape[1]
    row = np.empty(coefficients.shape[1])
    for i in range(start, stop):
        row[:] = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            value = np.float64(values[p])
            j = np.uint32(indices[p])
            for k in range(row.shape[0]):
                row[k] += value * coefficients[j, k]
        for k in range(outputs):
            out[i - start, k] = row[k] + intercepts[k]


@_fast
def sparse_accumulate_multi(indptr, indices, values, start, stop, slopes, gradient):
    """As :func:`sparse_accumulate` for K slopes a row; the gradient is padded to full registers."""
    outputs = slopes.shape[1]
    row = np.zeros(gradient.shape[1])
    for i in range(start, stop):
        for k in range(outputs):
            row[k] = slopes[i - start, k]
        for p in range(indptr[i], indptr[i + 1]):
            value = np.float64(values[p])
            j = np.uint32(indices[p])
            for k in range(row.shape[0]):
                gradient[j, k] += value * row[k]


@_fast
def sparse_gram(indptr, indices, values, weights, start, stop, total):
    """``total[j, k] += w_i x_ij x_ik`` for k <= j, over the non-zeros of rows start to stop.

    ``weights`` has one number for each of these rows.
    """
    for i in range(start, stop):
        low, high = indptr[i], indptr[i + 1]
        for p in range(low, high):
            scaled = weights[i - start] * values[p]
            j = indices[p]
            for q in range(low, p + 1):
                total[j, indices[q]] += scaled * values[q]


@_in_order
def sparse_take(indptr, indices, values, rows, taken_indices, taken_values):
    """Copy the non-zeros of ``rows``, one row after another."""
    at = 0
    for i in range(rows.shape[0]):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            taken_indices[at] = indices[p]
            taken_values[at] = values[p]
            at += 1


@_in_order
def sparse_compact(keys, columns, local):
    """Number the features of sorted ``keys = index << 32 | place``; returns how many there are.

    ``columns`` becomes the sorted features, and ``local[place]`` the rank of the feature that is at ``place``.
    """
    count = 0
    for n in range(keys.shape[0]):
        column = keys[n] >> 32
        if count == 0 or columns[count - 1] != column:
            columns[count] = column
            count += 1
        local[keys[n] & 0xFFFFFFFF] = count - 1
    return count
