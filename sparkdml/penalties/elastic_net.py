"""L1 and L2 together (Zou & Hastie, 2005)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sparkdml.penalties.l2 import L2


@dataclass(frozen=True)
class ElasticNet(L2):
    """``sum_jk l1_strength * l1_factors_j * |c_jk| + strength / 2 * factors_j * c_jk^2``.

    Both factors have shape (d, 1). With Spark's ``standardization=True`` they are 1; with False ``1 / std_j`` and
    ``1 / std_j^2``, which is the penalty on coefficients of the features as given.
    """

    l1_strength: float
    l1_factors: np.ndarray

    def prox(self, coefficients: np.ndarray, rate: np.ndarray | float) -> np.ndarray:
        shrunk = np.sign(coefficients) * np.maximum(
            np.abs(coefficients) - rate * self.l1_strength * self.l1_factors, 0.0
        )
        return super().prox(shrunk, rate)

    def of(self, features: np.ndarray) -> ElasticNet:
        return replace(self, factors=self.factors[features], l1_factors=self.l1_factors[features])

    def l1(self) -> np.ndarray | None:
        return self.l1_strength * self.l1_factors
