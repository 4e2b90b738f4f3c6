"""Passes of dual coordinate ascent over stored rows, compiled.

``step`` is ``sigma / W``. Coordinates are the problem's: of shape (D,), the last one being the intercept's if D > d.
"""

from __future__ import annotations

from sparkdml.losses.conjugates import dual_step
from sparkdml.resources.compiled import compiled


@compiled()
def _shrunk(value, l1, inverse_ridge):
    """``argmax_c value c - l1 |c| - c^2 / (2 inverse_ridge)``."""
    if value > l1:
        return (value - l1) * inverse_ridge
    if value < -l1:
        return (value + l1) * inverse_ridge
    return 0.0


@compiled()
def ascend_dense(
    values, labels, weights, order, centre, inverse_std, kind, scale, step, l1, inverse_ridge, v, c, duals
):
    """Maximise over the dual variables of the rows in ``order``, one after the other.

    ``v`` and ``c``, the point that belongs to it, follow: ``v += step w_i (change of u_i) a_i``.
    """
    features = values.shape[1]
    intercept = c.shape[0] > features
    for i in order:
        weight = weights[i]
        if weight == 0.0:
            continue
        margin = c[features] if intercept else 0.0
        size = inverse_ridge[features] if intercept else 0.0
        for j in range(features):
            a = (values[i, j] - centre[j]) * inverse_std[j]
            margin += a * c[j]
            size += a * a * inverse_ridge[j]
        dual = dual_step(kind, scale, duals[i], labels[i], margin, step * weight * size)
        change = step * weight * (dual - duals[i])
        duals[i] = dual
        if change == 0.0:
            continue
        for j in range(features):
            v[j] += change * (values[i, j] - centre[j]) * inverse_std[j]
            c[j] = _shrunk(v[j], l1[j], inverse_ridge[j])
        if intercept:
            v[features] += change
            c[features] = _shrunk(v[features], 0.0, inverse_ridge[features])


@compiled()
def ascend_sparse(
    indptr, indices, values, labels, weights, order, inverse_std, kind, scale, step, l1, inverse_ridge, v, c, duals
):
    """As :func:`ascend_dense`, for rows in coordinates that keep 0 where it is."""
    features = inverse_std.shape[0]
    intercept = c.shape[0] > features
    for i in order:
        weight = weights[i]
        if weight == 0.0:
            continue
        margin = c[features] if intercept else 0.0
        size = inverse_ridge[features] if intercept else 0.0
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            a = values[p] * inverse_std[j]
            margin += a * c[j]
            size += a * a * inverse_ridge[j]
        dual = dual_step(kind, scale, duals[i], labels[i], margin, step * weight * size)
        change = step * weight * (dual - duals[i])
        duals[i] = dual
        if change == 0.0:
            continue
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            v[j] += change * values[p] * inverse_std[j]
            c[j] = _shrunk(v[j], l1[j], inverse_ridge[j])
        if intercept:
            v[features] += change
            c[features] = _shrunk(v[features], 0.0, inverse_ridge[features])
