"""Huber's robust loss, with the scale of the residuals estimated along with the coefficients."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sparkdml.losses.base import Loss


@dataclass(frozen=True)
class Huber(Loss):
    """``loss(r, sigma) = 1/2 (sigma + r^2 / sigma)`` where ``|r| <= epsilon sigma``, else
    ``1/2 (sigma + 2 epsilon |r| - sigma epsilon^2)``, with ``r = m - y / unit``.

    Jointly convex in the coefficients and sigma > 0 (Owen, *A robust hybrid of lasso and ridge regression*, 2007). The
    extra parameter is ``log sigma``, which has no bounds.
    """

    epsilon: float = 1.35
    sigma: float = 1.0
    unit: float = 1.0
    outputs: int = 1
    extras: int = 1

    @property
    def curvature(self) -> float:  # type: ignore[override]
        return 1.0 / self.sigma

    def at(self, extras: np.ndarray) -> Huber:
        # far trial steps of a line search must not overflow
        return replace(self, sigma=math.exp(min(max(float(extras[0]), -700.0), 700.0)))

    def evaluate(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray, slopes: np.ndarray) -> float:
        residuals = margins[:, 0] - labels / self.unit
        limit = self.epsilon * self.sigma
        near = np.abs(residuals) <= limit
        clipped = np.clip(residuals, -limit, limit)
        slopes[:, 0] = weights * clipped / self.sigma
        far = 2.0 * self.epsilon * np.abs(residuals) - self.sigma * self.epsilon**2
        losses = np.where(near, residuals * (clipped / self.sigma), far)
        return 0.5 * float(weights @ (self.sigma + losses))

    def extra_slopes(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The derivative by ``log sigma``, shape (1,)."""
        bounded = np.minimum(np.abs(margins[:, 0] - labels / self.unit) / self.sigma, self.epsilon)
        return np.array([0.5 * self.sigma * float(weights @ (1.0 - bounded**2))])
