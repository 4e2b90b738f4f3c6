"""Hinge loss of linear support vector machines, for labels 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdml.losses.base import Loss


@dataclass(frozen=True)
class Hinge(Loss):
    """``loss(m, y) = max(0, 1 - (2y - 1) m)`` for y in {0, 1}; slope ``-(2y - 1)`` where it is positive, else 0.

    Not differentiable where the loss reaches 0: the slope there is a subgradient.
    """

    outputs: int = 1
    #: It has none; this sets the first step only.
    curvature: float = 1.0

    def evaluate(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray, slopes: np.ndarray) -> float:
        signs = 2.0 * labels - 1.0
        shortfall = 1.0 - signs * margins[:, 0]
        wrong = shortfall > 0.0
        slopes[:, 0] = np.where(wrong, -signs * weights, 0.0)
        return float(weights @ np.where(wrong, shortfall, 0.0))
