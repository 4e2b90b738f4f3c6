"""Softmax (multinomial logistic) loss for labels 0 .. K-1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np

from sparkdml.losses.base import Loss


@dataclass(frozen=True)
class Softmax(Loss):
    """``loss(m, y) = log(sum_k exp(m_k)) - m_y``; slope ``softmax(m)_k - [k = y]``."""

    outputs: int
    curvature: float = 0.25

    def evaluate(
        self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray, slopes: np.ndarray
    ) -> float:
        return _softmax(margins, labels, weights, slopes)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _softmax(margins, labels, weights, slopes):  # type: ignore[no-untyped-def]
    classes = margins.shape[1]
    total = 0.0
    for i in range(margins.shape[0]):
        largest = margins[i, 0]
        for k in range(1, classes):
            largest = max(largest, margins[i, k])
        mass = 0.0
        for k in range(classes):
            e = math.exp(margins[i, k] - largest)
            slopes[i, k] = e
            mass += e
        label = int(labels[i])
        weight = weights[i]
        total += weight * (math.log(mass) + largest - margins[i, label])
        scale = weight / mass
        for k in range(classes):
            slopes[i, k] *= scale
        slopes[i, label] -= weight
    return total
