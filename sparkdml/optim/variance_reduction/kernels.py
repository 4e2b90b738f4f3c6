"""Proximal steps, of all coefficients or of those that a batch of sparse rows touches, compiled.

Coefficients have shape (D, K): a row for each feature, and a last one for the intercepts if there are any.
"""

from __future__ import annotations

import math

import numpy as np

from sparkdml.resources.compiled import compiled


@compiled()
def proximal_step(value, slope, l1, ridge, rate):
    """``argmin_x slope x + l1 |x| + ridge / 2 x^2 + (x - value)^2 / (2 rate)``."""
    moved = value - rate * slope
    return math.copysign(max(abs(moved) - rate * l1, 0.0) / (1.0 + rate * ridge), moved)


@compiled()
def repeated_steps(value, slope, l1, ridge, rate, count):
    """The result of ``count`` equal :func:`proximal_step`, in a number of operations that does not depend on it.

    While x keeps its sign s, a step is affine: ``z' = (z - d) / (1 + rate ridge)`` with ``z = s x`` and
    ``d = rate (s slope + l1)``. The step is monotone, so signs change once at most.
    """
    left = count
    while left > 0:
        sign = math.copysign(1.0, value) if value != 0.0 else -math.copysign(1.0, slope)
        fall = rate * (sign * slope + l1)
        size = abs(value)
        if size == 0.0 and fall >= 0.0:
            return 0.0
        jump = _steps_of_one_sign(size, fall, rate * ridge, left)
        value = sign * _affine_steps(size, fall, rate * ridge, jump)
        left -= jump
        if left > 0:
            value = proximal_step(value, slope, l1, ridge, rate)
            left -= 1
    return value


@compiled()
def _steps_of_one_sign(size, fall, shrink, limit):
    """How many of at most ``limit`` steps leave ``size`` positive."""
    if fall <= 0.0:
        return limit
    # z_k = (1 + shrink)^-k (z + d / shrink) - d / shrink
    steps = size / fall if shrink == 0.0 else math.log1p(size * shrink / fall) / math.log1p(shrink)
    return limit if steps >= limit else int(steps)


@compiled()
def _affine_steps(size, fall, shrink, count):
    if shrink == 0.0:
        return max(size - count * fall, 0.0)
    lost = -math.expm1(-count * math.log1p(shrink))
    return max(size - lost * (size + fall / shrink), 0.0)


@compiled()
def step_all(sums, share, kept, coef, drift, l1, ridge, rate):
    """A proximal step of every coefficient along ``share * sums + drift``; then ``drift += kept * sums``."""
    for j in range(coef.shape[0]):
        for k in range(coef.shape[1]):
            coef[j, k] = proximal_step(coef[j, k], share * sums[j, k] + drift[j, k], l1[j], ridge[j], rate)
            drift[j, k] += kept * sums[j, k]


@compiled()
def catch_up(features, now, last, coef, drift, l1, ridge, rate):
    """Give ``features`` the steps along ``drift`` that they have missed since step ``last``."""
    for p in range(features.shape[0]):
        j = features[p]
        missed = now - last[j]
        if missed > 0:
            for k in range(coef.shape[1]):
                coef[j, k] = repeated_steps(coef[j, k], drift[j, k], l1[j], ridge[j], rate, missed)
            last[j] = now


@compiled()
def lazy_margins(indptr, indices, values, start, stop, inverse_std, coef, out):
    """Margins of sparse rows from scaled coefficients, which :func:`catch_up` has seen to."""
    intercept = coef.shape[0] > inverse_std.shape[0]
    for k in range(coef.shape[1]):
        for i in range(start, stop):
            total = coef[inverse_std.shape[0], k] if intercept else 0.0
            for p in range(indptr[i], indptr[i + 1]):
                j = indices[p]
                total += values[p] * inverse_std[j] * coef[j, k]
            out[i - start, k] = total


@compiled()
def lazy_step(
    indptr,
    indices,
    values,
    start,
    stop,
    inverse_std,
    changes,
    share,
    kept,
    now,
    last,
    sums,
    coef,
    drift,
    l1,
    ridge,
    rate,
):
    """Step ``now`` of the intercepts and of the features in these rows, which have had all steps before.

    As :func:`step_all` with ``sums = X' changes``; the buffer ``sums`` is 0 before and after.
    """
    features, outputs = inverse_std.shape[0], coef.shape[1]
    for i in range(start, stop):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            scaled = values[p] * inverse_std[j]
            for k in range(outputs):
                sums[j, k] += scaled * changes[i - start, k]
    for p in range(indptr[start], indptr[stop]):
        j = indices[p]
        if last[j] > now:
            continue
        last[j] = now + 1
        for k in range(outputs):
            coef[j, k] = proximal_step(coef[j, k], share * sums[j, k] + drift[j, k], l1[j], ridge[j], rate)
            drift[j, k] += kept * sums[j, k]
            sums[j, k] = 0.0
    if coef.shape[0] > features:
        for k in range(outputs):
            total = 0.0
            for i in range(stop - start):
                total += changes[i, k]
            slope = share * total + drift[features, k]
            coef[features, k] = proximal_step(coef[features, k], slope, 0.0, ridge[features], rate)
            drift[features, k] += kept * total


@compiled()
def sparse_row_products(indptr, indices, values, start, stop, inverse_std, row, out):
    """``out_il = a_i' a_l`` of scaled sparse rows start to stop; the buffer ``row`` (d,) is 0 before and after."""
    for i in range(start, stop):
        for p in range(indptr[i], indptr[i + 1]):
            row[indices[p]] = values[p] * inverse_std[indices[p]] ** 2
        for other in range(start, i + 1):
            total = 0.0
            for p in range(indptr[other], indptr[other + 1]):
                total += values[p] * row[indices[p]]
            out[i - start, other - start] = total
            out[other - start, i - start] = total
        for p in range(indptr[i], indptr[i + 1]):
            row[np.int64(indices[p])] = 0.0
