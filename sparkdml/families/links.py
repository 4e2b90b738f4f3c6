"""Link functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr, ndtri

from sparkdml.families.base import Link


@dataclass(frozen=True)
class Identity(Link):
    """``eta = mu``."""

    name = "identity"

    def link(self, mu: np.ndarray) -> np.ndarray:
        return mu

    def unlink(self, eta: np.ndarray) -> np.ndarray:
        return eta

    def derivative(self, mu: np.ndarray) -> np.ndarray:
        return np.ones_like(mu)


@dataclass(frozen=True)
class Log(Link):
    """``eta = log(mu)``."""

    name = "log"

    def link(self, mu: np.ndarray) -> np.ndarray:
        return np.log(mu)

    def unlink(self, eta: np.ndarray) -> np.ndarray:
        return np.exp(eta)

    def derivative(self, mu: np.ndarray) -> np.ndarray:
        return 1.0 / mu


@dataclass(frozen=True)
class Inverse(Link):
    """``eta = 1 / mu``."""

    name = "inverse"

    def link(self, mu: np.ndarray) -> np.ndarray:
        return 1.0 / mu

    def unlink(self, eta: np.ndarray) -> np.ndarray:
        return 1.0 / eta

    def derivative(self, mu: np.ndarray) -> np.ndarray:
        return -(mu**-2.0)


@dataclass(frozen=True)
class Sqrt(Link):
    """``eta = sqrt(mu)``; a negative ``eta`` has the mean of its absolute value."""

    name = "sqrt"

    def link(self, mu: np.ndarray) -> np.ndarray:
        return np.sqrt(mu)

    def unlink(self, eta: np.ndarray) -> np.ndarray:
        return eta * eta

    def derivative(self, mu: np.ndarray) -> np.ndarray:
        return 0.5 / np.sqrt(mu)


@dataclass(frozen=True)
class Power(Link):
    """``eta = mu ** link_power``, and ``log(mu)`` for power 0."""

    link_power: float
    name = "power"

    def link(self, mu: np.ndarray) -> np.ndarray:
        return np.log(mu) if self.link_power == 0.0 else mu**self.link_power

    def unlink(self, eta: np.ndarray) -> np.ndarray:
        return np.exp(eta) if self.link_power == 0.0 else eta ** (1.0 / self.link_power)

    def derivative(self, mu: np.ndarray) -> np.ndarray:
        return 1.0 / mu if self.link_power == 0.0 else self.link_power * mu ** (self.link_power - 1.0)


@dataclass(frozen=True)
class Logit(Link):
    """``eta = log(mu / (1 - mu))``."""

    name = "logit"

    def link(self, mu: np.ndarray) -> np.ndarray:
        return np.log(mu / (1.0 - mu))

    def unlink(self, eta: np.ndarray) -> np.ndarray:
        return expit(eta)

    def derivative(self, mu: np.ndarray) -> np.ndarray:
        return 1.0 / (mu * (1.0 - mu))


@dataclass(frozen=True)
class Probit(Link):
    """``eta`` is the quantile of the standard normal distribution at ``mu``."""

    name = "probit"

    def link(self, mu: np.ndarray) -> np.ndarray:
        return ndtri(mu)

    def unlink(self, eta: np.ndarray) -> np.ndarray:
        return ndtr(eta)

    def derivative(self, mu: np.ndarray) -> np.ndarray:
        return np.sqrt(2.0 * np.pi) * np.exp(0.5 * ndtri(mu) ** 2)


@dataclass(frozen=True)
class CLogLog(Link):
    """``eta = log(-log(1 - mu))``."""

    name = "cloglog"

    def link(self, mu: np.ndarray) -> np.ndarray:
        return np.log(-np.log1p(-mu))

    def unlink(self, eta: np.ndarray) -> np.ndarray:
        return -np.expm1(-np.exp(eta))

    def derivative(self, mu: np.ndarray) -> np.ndarray:
        return 1.0 / ((mu - 1.0) * np.log1p(-mu))
