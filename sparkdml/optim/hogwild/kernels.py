"""Steps of single rows on a shared table of coefficients, compiled. Nothing here takes a lock.

A record of the table holds all that a step needs of a feature, so that a thread which takes it from another core's
cache takes one line: ``[steps seen, 1 / std, K coefficients, K sums of squared gradients (AdaGrad)]``.
"""

from __future__ import annotations

import math

import numpy as np

from sparkdml.losses.slopes import to_slopes
from sparkdml.optim.variance_reduction.kernels import proximal_step, repeated_steps
from sparkdml.resources.compiled import compiled
from sparkdml.resources.prefetch import prefetch_to_write

#: Columns of a record.
SEEN, INVERSE_STD, COEFFICIENTS = 0, 1, 2
#: Rows after which a thread tells its own change of the intercepts, which every row changes, and hears of others'.
MERGE_ROWS = 16
#: ``indptr`` and ``indices`` of dense rows: read-only, as those of mapped files are.
NO_INDICES = np.frombuffer(b"", np.int64), np.frombuffer(b"", np.int32)


@compiled()
def rested(value, l1, ridge, rate, count):
    """``value`` after ``count`` proximal steps of the penalty alone."""
    if value == 0.0 or count <= 0.0:
        return value
    if l1 > 0.0:
        return repeated_steps(value, 0.0, l1, ridge, rate, count)
    bend = rate * ridge
    if bend > 1e-4:
        return value * math.exp(-count * math.log1p(bend))
    y = count * bend * (1.0 - bend * (0.5 - bend * (1.0 / 3.0 - bend * 0.25)))
    return value * (_small_exp(y) if y < 0.5 else math.exp(-y))


@compiled()
def _small_exp(y):
    """``exp(-y)`` for 0 <= y <= 0.5, to a relative 1e-13, as the eighth power of a series: no call for every value."""
    z = 0.125 * y
    p = 1.0 - z * (1.0 / 6.0) * (1.0 - z * (1.0 / 7.0))
    p = 1.0 - z * (1.0 / 4.0) * (1.0 - z * (1.0 / 5.0) * p)
    p = 1.0 - z * (1.0 - z * (1.0 / 2.0) * (1.0 - z * (1.0 / 3.0) * p))
    p *= p
    p *= p
    return p * p


@compiled()
def rate_of(step_size, epsilon, squares):
    """``step_size / (sqrt(squares) + epsilon)``, and ``step_size`` before the first gradient."""
    return step_size / (math.sqrt(squares) + epsilon) if squares > 0.0 else step_size


@compiled()
def take_steps(
    indptr,
    indices,
    values,
    width,
    centre,
    labels,
    weights,
    rows,
    places,
    kind,
    scale,
    weight_scale,
    step_size,
    epsilon,
    l1,
    ridge,
    table,
    tail,
    kept,
):
    """A step for each of ``rows``, of which row m is step ``places[m]`` of all threads together.

    indptr, indices, values : sparse rows, and ``width`` 0; of dense ones ``values`` (rows * width,) alone.
    centre : (d,), of dense rows.
    epsilon : AdaGrad's; negative for plain steps. l1, ridge : (d,), or (1,) where all features have the same.
    tail : (2, K), the intercepts and their squares, or (0, K) without them.
    kept : (rows, K) gets the slopes, and intercepts stay as they are; (0, K) lets them move with every row.

    A coefficient's penalty is made up for when it is next met. Where another thread, further on, has seen to it
    already, the step is along the gradient alone, so that each step's penalty is counted once.
    """
    outputs, adaptive, dense = tail.shape[1], epsilon >= 0.0, width > 0
    intercept, keeps, squares = tail.shape[0] > 0, kept.shape[0] > 0, COEFFICIENTS + outputs
    own, base, margins = np.zeros((2, outputs)), np.zeros((2, outputs)), np.empty(outputs)
    if intercept:
        own[:], base[:] = tail, tail
    # what was read of a row's coefficients, as it was stored and after the penalty that was due
    longest = _longest(indptr, width, rows)
    stored, here = np.empty((longest, outputs)), np.empty((longest, outputs))
    per_l1, per_ridge = l1.shape[0] > 1, ridge.shape[0] > 1
    for m in range(rows.shape[0]):
        i, now = rows[m], np.float64(places[m])
        if dense:
            low, high = i * width, (i + 1) * width
        else:
            low, high = indptr[i], indptr[i + 1]
            if m + 1 < rows.shape[0]:
                for p in range(indptr[rows[m + 1]], indptr[rows[m + 1] + 1]):
                    prefetch_to_write(table, np.int64(indices[p]))
        for k in range(outputs):
            margin = own[0, k]
            for p in range(low, high):
                j = np.uint32(p - low if dense else indices[p])
                a = (values[p] - centre[j] if dense else values[p]) * table[j, INVERSE_STD]
                x = table[j, COEFFICIENTS + k]
                stored[p - low, k] = x
                rate = rate_of(step_size, epsilon, table[j, squares + k]) if adaptive else step_size
                x = rested(x, l1[j * per_l1], ridge[j * per_ridge], rate, now - table[j, SEEN])
                here[p - low, k] = x
                margin += a * x
            margins[k] = margin
        to_slopes(kind, scale, labels[i], weights[i] * weight_scale, margins)
        for p in range(low, high):
            j = np.uint32(p - low if dense else indices[p])
            a = (values[p] - centre[j] if dense else values[p]) * table[j, INVERSE_STD]
            due = table[j, SEEN] <= now
            j_l1, j_ridge = (l1[j * per_l1], ridge[j * per_ridge]) if due else (0.0, 0.0)
            for k in range(outputs):
                gradient, rate = a * margins[k], step_size
                if adaptive:
                    table[j, squares + k] += gradient * gradient
                    rate = rate_of(step_size, epsilon, table[j, squares + k])
                moved = proximal_step(here[p - low, k], gradient, j_l1, j_ridge, rate)
                # added, so that what another thread did meanwhile is not undone
                table[j, COEFFICIENTS + k] += moved - stored[p - low, k]
            if due:
                table[j, SEEN] = now + 1.0
        if keeps:
            kept[m] = margins
        elif intercept:
            for k in range(outputs):
                rate = step_size
                if adaptive:
                    own[1, k] += margins[k] * margins[k]
                    rate = rate_of(step_size, epsilon, own[1, k])
                own[0, k] -= rate * margins[k]
            if (m + 1) % MERGE_ROWS == 0 or m + 1 == rows.shape[0]:
                _merge(own, base, tail)


@compiled()
def _longest(indptr, width, rows):
    """The most values that one of ``rows`` has."""
    if width > 0:
        return width
    most = 0
    for i in rows:
        most = max(most, indptr[i + 1] - indptr[i])
    return most


@compiled()
def _merge(own, base, tail):
    """Add to ``tail`` how far ``own`` has come from ``base``, and begin both there."""
    for q in range(tail.shape[0]):
        for k in range(tail.shape[1]):
            tail[q, k] += own[q, k] - base[q, k]
            own[q, k] = base[q, k] = tail[q, k]


@compiled()
def settle(table, outputs, now, step_size, epsilon, l1, ridge):
    """Every coefficient gets what penalty it has missed up to step ``now``; the count begins anew."""
    per_l1, per_ridge, squares = l1.shape[0] > 1, ridge.shape[0] > 1, COEFFICIENTS + outputs
    for j in range(table.shape[0]):
        for k in range(outputs):
            rate = rate_of(step_size, epsilon, table[j, squares + k]) if epsilon >= 0.0 else step_size
            missed = now - table[j, SEEN]
            table[j, COEFFICIENTS + k] = rested(
                table[j, COEFFICIENTS + k], l1[j * per_l1], ridge[j * per_ridge], rate, missed
            )
        table[j, SEEN] = 0.0
