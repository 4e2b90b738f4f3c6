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

    @abstractmethod
    def prox(self, coefficients: np.ndarray, rate: np.ndarray | float) -> np.ndarray:
        """``argmin_x penalty(x) + sum_jk (x_jk - c_jk)^2 / (2 rate_jk)``, shape (d, K), L1 part included.

        ``rate`` is not negative; it is a number, or has shape (d, 1) or (d, K).
        """

    @abstractmethod
    def of(self, features: np.ndarray) -> Penalty:
        """The penalty on the coefficients of some ``features`` (their numbers) alone."""

    def l1(self) -> np.ndarray | None:
        """What one unit of ``|c_jk|`` costs for each feature, shape (d, 1); None without an L1 part."""
        return None
