"""Squared Euclidean (ridge) penalty."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sparkdml.penalties.base import Penalty


@dataclass(frozen=True)
class L2(Penalty):
    """``strength / 2 * sum_jk factors_j * c_jk^2``; ``factors`` has shape (d, 1).

    With Spark's ``standardization=True`` every factor is 1 (the penalty is on coefficients of unit-variance
    features); with False it is ``1 / std_j^2``, which is the penalty on coefficients of the features as given.
    """

    strength: float
    factors: np.ndarray

    def value(self, coefficients: np.ndarray) -> float:
        weighted = self.factors * coefficients
        return 0.5 * self.strength * float(np.vdot(weighted, coefficients))

    def gradient(self, coefficients: np.ndarray) -> np.ndarray:
        return self.strength * self.factors * coefficients

    def prox(self, coefficients: np.ndarray, rate: np.ndarray | float) -> np.ndarray:
        return np.asarray(coefficients / (1.0 + rate * self.curvature()))

    def of(self, features: np.ndarray) -> L2:
        return replace(self, factors=self.factors[features])

    def curvature(self) -> np.ndarray:
        return self.strength * self.factors
