"""Logistic loss for labels 0 and 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np

from sparkdml.losses.base import Loss


@dataclass(frozen=True)
class Logistic(Loss):
    """``loss(m, y) = log(1 + exp(m)) - y * m`` for y in {0, 1}; slope ``sigmoid(m) - y``."""

    outputs: int = 1
    curvature: float = 0.25

    def evaluate(
        self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray, slopes: np.ndarray
    ) -> float:
        return _logistic(margins[:, 0], labels, weights, slopes[:, 0])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _logistic(margins, labels, weights, slopes):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(margins.shape[0]):
        margin = margins[i]
        # exp of a negative number only: nothing overflows, and log1p keeps tiny losses exact
        small = math.exp(-abs(margin))
        probability = 1.0 / (1.0 + small) if margin >= 0.0 else small / (1.0 + small)
        loss = max(margin, 0.0) - labels[i] * margin + math.log1p(small)
        total += weights[i] * loss
        slopes[i] = weights[i] * (probability - labels[i])
    return total
