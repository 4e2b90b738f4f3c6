"""Softmax (multinomial logistic) loss for labels 0 .. K-1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sparkdml.losses.base import Loss
from sparkdml.losses.exponential import exp_nonpositive
from sparkdml.resources.compiled import compiled


@dataclass(frozen=True)
class Softmax(Loss):
    """``loss(m, y) = log(sum_k exp(m_k)) - m_y``; slope ``softmax(m)_k - [k = y]``."""

    outputs: int
    curvature: float = 0.25

    def evaluate(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray, slopes: np.ndarray) -> float:
        return _softmax(margins, labels, weights, slopes)


@compiled()
def _softmax(margins, labels, weights, slopes):
    rows, classes = margins.shape
    below = np.empty((rows, classes))
    for i in range(rows):
        top = margins[i, 0]
        for k in range(1, classes):
            top = max(top, margins[i, k])
        for k in range(classes):
            below[i, k] = margins[i, k] - top
    exp_nonpositive(below.reshape(-1), slopes.reshape(-1))
    total = 0.0
    for i in range(rows):
        mass = 0.0
        for k in range(classes):
            mass += slopes[i, k]
        label = int(labels[i])
        total += weights[i] * (math.log(mass) - below[i, label])
        scale = weights[i] / mass
        for k in range(classes):
            slopes[i, k] *= scale
        slopes[i, label] -= weights[i]
    return total
