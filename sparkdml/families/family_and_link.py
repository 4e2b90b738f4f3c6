"""A family together with a link: what a generalized linear model needs to know of its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdml.families.base import Family, Link
from sparkdml.families.distributions import Binomial, Gamma, Gaussian, Poisson, Tweedie
from sparkdml.families.links import CLogLog, Identity, Inverse, Log, Logit, Power, Probit, Sqrt

FAMILIES: dict[str, Family] = {family.name: family for family in (Gaussian(), Binomial(), Poisson(), Gamma())}
LINKS: dict[str, Link] = {
    link.name: link for link in (Identity(), Log(), Inverse(), Logit(), Probit(), CLogLog(), Sqrt())
}
#: Powers of the Tweedie variance, and of the power link, that have a name of their own.
NAMED_VARIANCE_POWERS: dict[float, Family] = {0.0: Gaussian(), 1.0: Poisson(), 2.0: Gamma()}
NAMED_LINK_POWERS: dict[float, Link] = {0.0: Log(), 1.0: Identity(), -1.0: Inverse(), 0.5: Sqrt()}


@dataclass(frozen=True)
class FamilyAndLink:
    """``E[y_i] = mu_i``, ``link(mu_i) = eta_i = x_i' b + b0 + offset_i``, ``Var[y_i] = dispersion * V(mu_i) / w_i``."""

    family: Family
    link: Link

    @property
    def is_least_squares(self) -> bool:
        """Whether one linear least squares problem gives the answer."""
        return isinstance(self.family, Gaussian) and isinstance(self.link, Identity)

    def predict(self, eta: np.ndarray) -> np.ndarray:
        """The means at linear predictors ``eta``, within the family's domain."""
        with np.errstate(all="ignore"):
            return self.family.project(self.link.unlink(eta))

    def start(self, y: np.ndarray, weights: np.ndarray, offset: np.ndarray | float) -> np.ndarray:
        """The response of the least squares problem that a fit starts from: ``link(initial mean) - offset``.

        Its weights are ``weights``.
        """
        with np.errstate(all="ignore"):
            return self.link.link(self.family.project(self.family.initialize(y, weights))) - offset

    def working(
        self, y: np.ndarray, weights: np.ndarray, offset: np.ndarray | float, eta: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Working response and working weights at ``eta``, which includes ``offset``; all of shape (n,).

        ``eta - offset + (y - mu) * eta'(mu)`` and ``weights / (eta'(mu)^2 * V(mu))``: regressing the one on the
        features with the other is a step of Fisher scoring.
        """
        mu = self.predict(eta)
        with np.errstate(all="ignore"):
            derivative = self.link.derivative(mu)
            response = eta - offset + (y - mu) * derivative
            return response, weights / (derivative**2 * self.family.variance(mu))

    def deviance(self, y: np.ndarray, weights: np.ndarray, eta: np.ndarray) -> float:
        """The sum over rows of ``weights`` times the family's deviance at ``eta``."""
        with np.errstate(all="ignore"):
            return float(weights @ self.family.deviance(y, self.predict(eta)))


def family_and_link(
    family: str = "gaussian",
    link: str | None = None,
    variance_power: float = 0.0,
    link_power: float | None = None,
) -> FamilyAndLink:
    """From the parameters of ``GeneralizedLinearRegression``; names in any case.

    ``link`` counts for every family but tweedie, ``variance_power`` and ``link_power`` for tweedie only. Without a
    link the family's own is taken: for tweedie the power ``1 - variance_power``.

    Raises
    ------
    ValueError : an unknown name, a variance power between 0 and 1 or below 0, or a link that the family does not
        take.
    """
    family = family.lower()
    if family == "tweedie":
        return _tweedie(variance_power, link_power)
    if family not in FAMILIES:
        raise ValueError(f"family='{family}' is not known; it can be {', '.join(FAMILIES)} or tweedie")
    found = FAMILIES[family]
    if link is None:
        return FamilyAndLink(found, found.default_link)
    if link.lower() not in found.allowed_links:
        raise ValueError(f"family='{family}' does not take link='{link}'; it can be {', '.join(found.allowed_links)}")
    return FamilyAndLink(found, LINKS[link.lower()])


def _tweedie(variance_power: float, link_power: float | None) -> FamilyAndLink:
    if not (variance_power == 0.0 or variance_power >= 1.0):
        raise ValueError(f"variancePower={variance_power} is not allowed; it must be 0 or at least 1")
    family = NAMED_VARIANCE_POWERS.get(variance_power) or Tweedie(variance_power)
    if link_power is None:
        return FamilyAndLink(family, family.default_link)
    return FamilyAndLink(family, NAMED_LINK_POWERS.get(link_power) or Power(link_power))
