"""The contracts of a family and of a link.

McCullagh & Nelder, *Generalized Linear Models* (1989), chapter 2. What the formulas leave open (starting means, how
near to the border of its domain a mean may come) is as in Spark's ``GeneralizedLinearRegression``.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod

import numpy as np

#: How near a mean may come to the border of its domain.
EPSILON = 1e-16
#: Stands for infinity.
LARGEST = sys.float_info.max


class Link(ABC):
    """``eta = link(mu)``: from a row's mean to its linear predictor, elementwise over arrays."""

    name: str

    @abstractmethod
    def link(self, mu: np.ndarray) -> np.ndarray:
        """The linear predictor of mean ``mu``."""

    @abstractmethod
    def unlink(self, eta: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`link`."""

    @abstractmethod
    def derivative(self, mu: np.ndarray) -> np.ndarray:
        """``d eta / d mu``."""


class Family(ABC):
    """An exponential dispersion family, elementwise over arrays of rows.

    Attributes
    ----------
    default_link : the link where none is named.
    allowed_links : names of the links that it can be combined with.
    lowest, highest : the range of labels; ``lowest`` itself is not a label where ``positive``.
    """

    name: str
    default_link: Link
    allowed_links: tuple[str, ...]
    lowest: float = -np.inf
    highest: float = np.inf
    positive: bool = False

    @abstractmethod
    def variance(self, mu: np.ndarray) -> np.ndarray:
        """The variance of a label with mean ``mu``, up to the dispersion."""

    @abstractmethod
    def initialize(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Means to start from: the labels, moved off the border."""

    @abstractmethod
    def deviance(self, y: np.ndarray, mu: np.ndarray) -> np.ndarray:
        """Twice the log-likelihood that mean ``mu`` falls short of mean ``y``, for weight and dispersion 1."""

    def project(self, mu: np.ndarray) -> np.ndarray:
        """The nearest mean within the domain; NaN stays NaN."""
        return np.clip(mu, EPSILON, LARGEST)

    def check(self, y: np.ndarray) -> str | None:
        """What is wrong with the labels, or None."""
        low = y <= self.lowest if self.positive else y < self.lowest
        wrong = np.flatnonzero(low | (y > self.highest) | np.isnan(y))
        if not len(wrong):
            return None
        allowed = f"above {self.lowest:g}" if self.positive else f"of at least {self.lowest:g}"
        if np.isfinite(self.highest):
            allowed = f"from {self.lowest:g} to {self.highest:g}"
        elif np.isinf(self.lowest):
            allowed = "that are numbers"
        return f"the {self.name} family takes labels {allowed}, but there is {y[wrong[0]]:g}"
