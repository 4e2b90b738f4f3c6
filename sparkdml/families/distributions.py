"""Families of distributions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from sparkdml.families.base import EPSILON, LARGEST, Family, Link
from sparkdml.families.links import Identity, Inverse, Log, Logit, Power

#: Stands for a label of 0 where its logarithm is needed.
DELTA = 0.1


@dataclass(frozen=True)
class Gaussian(Family):
    """``variance = 1``."""

    name = "gaussian"
    default_link = Identity()
    allowed_links = ("identity", "log", "inverse")

    def variance(self, mu: np.ndarray) -> np.ndarray:
        return np.ones_like(mu)

    def initialize(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return y

    def deviance(self, y: np.ndarray, mu: np.ndarray) -> np.ndarray:
        return (y - mu) ** 2

    def project(self, mu: np.ndarray) -> np.ndarray:
        return np.clip(mu, -LARGEST, LARGEST)


@dataclass(frozen=True)
class Binomial(Family):
    """``variance = mu (1 - mu)``; a label is the share of successes, its weight the number of trials."""

    name = "binomial"
    default_link = Logit()
    allowed_links = ("logit", "probit", "cloglog")
    lowest = 0.0
    highest = 1.0

    def variance(self, mu: np.ndarray) -> np.ndarray:
        return mu * (1.0 - mu)

    def initialize(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return (weights * y + 0.5) / (weights + 1.0)

    def deviance(self, y: np.ndarray, mu: np.ndarray) -> np.ndarray:
        return 2.0 * (xlogy(y, y / mu) + xlogy(1.0 - y, (1.0 - y) / (1.0 - mu)))

    def project(self, mu: np.ndarray) -> np.ndarray:
        return np.clip(mu, EPSILON, 1.0 - EPSILON)


@dataclass(frozen=True)
class Poisson(Family):
    """``variance = mu``."""

    name = "poisson"
    default_link = Log()
    allowed_links = ("log", "identity", "sqrt")
    lowest = 0.0

    def variance(self, mu: np.ndarray) -> np.ndarray:
        return mu

    def initialize(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.maximum(y, DELTA)

    def deviance(self, y: np.ndarray, mu: np.ndarray) -> np.ndarray:
        return 2.0 * (xlogy(y, y / mu) - (y - mu))


@dataclass(frozen=True)
class Gamma(Family):
    """``variance = mu ** 2``."""

    name = "gamma"
    default_link = Inverse()
    allowed_links = ("inverse", "identity", "log")
    lowest = 0.0
    positive = True

    def variance(self, mu: np.ndarray) -> np.ndarray:
        return mu * mu

    def initialize(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return y

    def deviance(self, y: np.ndarray, mu: np.ndarray) -> np.ndarray:
        return -2.0 * (np.log(y / mu) - (y - mu) / mu)


@dataclass(frozen=True)
class Tweedie(Family):
    """``variance = mu ** variance_power`` for a power of at least 1: between 1 and 2 compound Poisson, 3 inverse
    Gaussian (Jorgensen, 1987).

    Powers 0, 1 and 2 are Gaussian, Poisson and Gamma, which start from other means than this class does where labels
    are 0: ask :func:`~.family_and_link.family_and_link` for them.
    """

    variance_power: float
    name = "tweedie"
    allowed_links = ("power", "identity", "log", "inverse", "sqrt")
    lowest = 0.0

    @property
    def default_link(self) -> Link:  # type: ignore[override]
        return Power(1.0 - self.variance_power)

    @property
    def positive(self) -> bool:  # type: ignore[override]
        return self.variance_power >= 2.0

    def variance(self, mu: np.ndarray) -> np.ndarray:
        return mu**self.variance_power

    def initialize(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.where(y == 0.0, DELTA, y)

    def deviance(self, y: np.ndarray, mu: np.ndarray) -> np.ndarray:
        logged = y if self.positive else np.maximum(y, DELTA)
        first = y * _power_difference(logged, mu, 1.0 - self.variance_power)
        return 2.0 * (first - _power_difference(y, mu, 2.0 - self.variance_power))


def _power_difference(y: np.ndarray, mu: np.ndarray, power: float) -> np.ndarray:
    """The integral of ``t ** (power - 1)`` from ``mu`` to ``y``."""
    return np.log(y / mu) if power == 0.0 else (y**power - mu**power) / power
