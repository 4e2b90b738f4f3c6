"""Logistic loss for labels 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdml.losses.base import Loss
from sparkdml.losses.exponential import exp_nonpositive, log1p_unit
from sparkdml.resources.compiled import compiled


@dataclass(frozen=True)
class Logistic(Loss):
    """``loss(m, y) = log(1 + exp(m)) - y * m`` for y in {0, 1}; slope ``sigmoid(m) - y``."""

    outputs: int = 1
    curvature: float = 0.25

    def evaluate(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray, slopes: np.ndarray) -> float:
        return _logistic(margins[:, 0], labels, weights, slopes[:, 0])

    def curvatures(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        small = np.exp(-np.abs(margins))
        return np.asarray(weights * small / (1.0 + small) ** 2)


@compiled(fastmath={"reassoc", "contract", "nsz"})
def _logistic(margins, labels, weights, slopes):
    rows = margins.shape[0]
    small = np.empty(rows)
    # exp of a negative number only: nothing overflows, and log1p keeps tiny losses exact
    for i in range(rows):
        slopes[i] = -abs(margins[i])
    exp_nonpositive(slopes, small)
    total = 0.0
    for i in range(rows):
        margin, e = margins[i], small[i]
        share = 1.0 / (1.0 + e)
        probability = share if margin >= 0.0 else e * share
        total += weights[i] * (max(margin, 0.0) - labels[i] * margin + log1p_unit(e))
        slopes[i] = weights[i] * (probability - labels[i])
    return total
