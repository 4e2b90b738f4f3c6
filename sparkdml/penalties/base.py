"""The contract of a smooth penalty."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np


class Penalty(ABC):
    """A separable penalty on coefficients of shape (d, K); intercepts are never penalised."""

    @abstractmethod
    def value(self, coefficients: np.ndarray) -> float:
        """The penalty at ``coefficients``."""

    @abstractmethod
    def gradient(self, coefficients: np.ndarray) -> np.ndarray:
        """Its gradient, shape (d, K)."""

    @abstractmethod
    def curvature(self) -> np.ndarray:
        """Its second derivative for each feature, shape (d, 1)."""
