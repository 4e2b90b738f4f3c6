"""Families and links of generalized linear models. See :class:`sparkdml.families.base.Family`."""

from sparkdml.families.base import Family, Link
from sparkdml.families.distributions import Binomial, Gamma, Gaussian, Poisson, Tweedie
from sparkdml.families.family_and_link import FamilyAndLink, family_and_link
from sparkdml.families.links import CLogLog, Identity, Inverse, Log, Logit, Power, Probit, Sqrt

__all__ = [
    "Binomial",
    "CLogLog",
    "Family",
    "FamilyAndLink",
    "Gamma",
    "Gaussian",
    "Identity",
    "Inverse",
    "Link",
    "Log",
    "Logit",
    "Poisson",
    "Power",
    "Probit",
    "Sqrt",
    "Tweedie",
    "family_and_link",
]
