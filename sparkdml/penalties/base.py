"""The contract of a penalty."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np


class Penalty(ABC):
    """A separable penalty on coefficients of shape (d, K); intercepts are never penalised.

    ``value``, ``gradient`` and ``curvature`` are of its smooth part; :meth:`l1` is the rest.
    """

    @abstractmethod
    def value(self, coefficients: np.ndarray) -> float:
        """The penalty at ``coefficients``."""

    @abstractmethod
    def gradient(self, coefficients: np.ndarray) -> np.ndarray:
        """Its gradient, shape (d, K)."""

    @abstractmethod
    def curvature(self) -> np.ndarray:
        """Its second derivative for each feature, shape (d, 1)."""

    def l1(self) -> np.ndarray | None:
        """What one unit of ``|c_jk|`` costs for each feature, shape (d, 1); None without an L1 part."""
        return None
