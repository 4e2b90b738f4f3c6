"""Convex conjugates of losses of one margin, and how far one row's dual variable should move, compiled.

The dual variable ``u`` of a row stands for minus the slope of its loss: at the optimum ``u = -loss'(m)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sparkdml.losses.base import Loss
from sparkdml.losses.hinge import Hinge
from sparkdml.losses.logistic import Logistic
from sparkdml.losses.squared import Squared
from sparkdml.resources.compiled import compiled

_LOGISTIC, _SQUARED, _HINGE = range(3)


@dataclass(frozen=True)
class Conjugate:
    """``loss*(-u, y) = sup_m (-u m - loss(m, y))``, as kernels take it: which one, and its scale.

    ========  =======================================================  ==================
    loss      ``loss*(-u)``                                            where it is finite
    ========  =======================================================  ==================
    logistic  ``p log p + (1 - p) log(1 - p)`` with ``p = y - u``      ``0 <= p <= 1``
    squared   ``u^2 / (2 scale) - u y``                                everywhere
    hinge     ``-(2y - 1) u``                                          ``0 <= (2y - 1) u <= 1``
    ========  =======================================================  ==================
    """

    kind: int
    scale: float = 1.0

    def total(self, duals: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
        """``sum_i w_i loss*(-u_i, y_i)``; ``duals`` has shape (n,) and lies where that is finite."""
        return float(conjugate_total(self.kind, self.scale, duals, labels, weights))


def conjugate_of(loss: Loss) -> Conjugate:
    """Raises ValueError for a loss whose conjugate is not known here."""
    if isinstance(loss, Logistic):
        return Conjugate(_LOGISTIC)
    if isinstance(loss, Squared):
        return Conjugate(_SQUARED, loss.scale)
    if isinstance(loss, Hinge):
        return Conjugate(_HINGE)
    raise ValueError(
        f"dual methods know the conjugates of Logistic, Squared and Hinge, not of {type(loss).__name__}; use one of "
        "these losses, or a primal solver"
    )


@compiled()
def dual_step(kind, scale, dual, label, margin, curvature):
    """``argmax_u -loss*(-u) - (u - dual) margin - curvature / 2 (u - dual)^2``; curvature >= 0."""
    if kind == _SQUARED:
        return dual + (label - margin - dual / scale) / (1.0 / scale + curvature)
    if kind == _HINGE:
        sign = 2.0 * label - 1.0
        short = 1.0 - sign * margin
        if short == 0.0:
            return dual
        return sign * min(max(sign * dual + short / curvature, 0.0), 1.0)
    logit = _logit_step(label - dual, margin, curvature)
    if label == 1.0:
        return 1.0 / (1.0 + math.exp(logit))
    return label - 1.0 / (1.0 + math.exp(-logit))


@compiled()
def _logit_step(start, margin, curvature):
    """The root z of ``z + curvature (sigmoid(z) - start) = margin``, by Newton steps that stay within a bracket.

    The function rises with slope 1 at least, so the distance to its root is at most its value.
    """
    low, high = margin - curvature * (1.0 - start), margin + curvature * start
    inner = min(max(start, 1e-15), 1.0 - 1e-15)
    logit = min(max(math.log(inner / (1.0 - inner)), low), high)
    for _ in range(60):
        share = 1.0 / (1.0 + math.exp(-logit))
        excess = logit + curvature * (share - start) - margin
        if abs(excess) <= 1e-14 * (1.0 + abs(logit) + curvature):
            break
        if excess > 0.0:
            high = logit
        else:
            low = logit
        logit -= excess / (1.0 + curvature * share * (1.0 - share))
        if not low <= logit <= high:
            logit = 0.5 * (low + high)
    return logit


@compiled()
def conjugate_total(kind, scale, duals, labels, weights):
    """See :meth:`Conjugate.total`."""
    total = 0.0
    for i in range(duals.shape[0]):
        if kind == _SQUARED:
            value = duals[i] * (0.5 * duals[i] / scale - labels[i])
        elif kind == _HINGE:
            value = -(2.0 * labels[i] - 1.0) * duals[i]
        else:
            value = _entropy(labels[i] - duals[i])
        total += weights[i] * value
    return total


@compiled()
def _entropy(share):
    """``p log p + (1 - p) log(1 - p)``, 0 at both ends."""
    if share <= 0.0 or share >= 1.0:
        return 0.0
    return share * math.log(share) + (1.0 - share) * math.log1p(-share)
