"""The contract of a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np


class Loss(ABC):
    """A loss that sees margins, never features.

    Attributes
    ----------
    outputs : margins a row has (K): 1 for a binary or regression loss, the number of classes for softmax.
    curvature : an upper bound of the second derivative in any one margin; it sets the first step.
    """

    outputs: int
    curvature: float
    #: Parameters of the loss itself that are trained along with the coefficients.
    extras: int = 0

    @abstractmethod
    def evaluate(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray, slopes: np.ndarray) -> float:
        """Return ``sum_i w_i * loss(margins_i, y_i)`` and write the weighted slopes.

        Parameters
        ----------
        margins : float64 (n, K), features @ coefficients + intercept.
        labels, weights : float64 (n,).
        slopes : float64 (n, K), overwritten with ``w_i * d loss / d margin_ik``.
        """

    def at(self, extras: np.ndarray) -> Loss:
        """The loss with its own parameters set to ``extras``, shape (extras,)."""
        return self

    def extra_slopes(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Derivatives of the weighted sum by the loss's own parameters, shape (extras,)."""
        return np.zeros(self.extras)

    def curvatures(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """``w_i * d^2 loss / d margin_i^2``, float64 (n,), for a loss of one margin a row; margins (n,)."""
        raise NotImplementedError(f"{type(self).__name__} does not tell its second derivatives")
