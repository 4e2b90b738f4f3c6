"""Squared error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdml.losses.base import Loss


@dataclass(frozen=True)
class Squared(Loss):
    """``loss(m, y) = scale / 2 * (m - y)^2``; slope ``scale * (m - y)``.

    ``scale = 1 / std(y)^2`` is the objective that pyspark.ml reports, of labels scaled to unit variance.
    """

    scale: float = 1.0
    outputs: int = 1

    @property
    def curvature(self) -> float:  # type: ignore[override]
        return self.scale

    def evaluate(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray, slopes: np.ndarray) -> float:
        residuals = margins[:, 0] - labels
        slopes[:, 0] = self.scale * weights * residuals
        return 0.5 * float(slopes[:, 0] @ residuals)

    def curvatures(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return self.scale * weights
