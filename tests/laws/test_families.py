"""Laws of every family and every link of generalized linear models."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from sparkdml.families import (
    Binomial,
    CLogLog,
    FamilyAndLink,
    Gamma,
    Gaussian,
    Identity,
    Inverse,
    Log,
    Logit,
    Poisson,
    Power,
    Probit,
    Sqrt,
    Tweedie,
    family_and_link,
)
from sparkdml.families.family_and_link import FAMILIES, LINKS

POSITIVE = np.array([1e-3, 0.05, 0.4, 0.9, 1.7, 6.0, 80.0])
SHARES = np.array([1e-6, 0.01, 0.2, 0.5, 0.77, 0.999, 1.0 - 1e-6])

#: Links with means from their domain.
DOMAINS = [
    (Identity(), np.concatenate([-POSITIVE, POSITIVE])),
    (Log(), POSITIVE),
    (Inverse(), np.concatenate([-POSITIVE, POSITIVE])),
    (Sqrt(), POSITIVE),
    (Power(-0.5), POSITIVE),
    (Power(2.0), POSITIVE),
    (Power(0.0), POSITIVE),
    (Logit(), SHARES),
    (Probit(), SHARES),
    (CLogLog(), SHARES),
]
every_link = pytest.mark.parametrize(("link", "mu"), DOMAINS, ids=[str(link) for link, _ in DOMAINS])

#: Families with labels, the border ones included, and means from their domain.
LABELS = [
    (Gaussian(), np.array([-3.0, 0.0, 2.5]), np.array([-1.0, 0.3, 2.0])),
    (Binomial(), np.array([0.0, 0.3, 1.0]), np.array([0.2, 0.4, 0.9])),
    (Poisson(), np.array([0.0, 1.0, 7.0]), np.array([0.2, 1.5, 6.0])),
    (Gamma(), np.array([0.01, 1.0, 7.0]), np.array([0.2, 1.5, 6.0])),
    (Tweedie(1.0), np.array([0.5, 1.0, 7.0]), np.array([0.2, 1.5, 6.0])),
    (Tweedie(1.5), np.array([0.4, 1.0, 7.0]), np.array([0.2, 1.5, 6.0])),
    (Tweedie(2.0), np.array([0.5, 1.0, 7.0]), np.array([0.2, 1.5, 6.0])),
    (Tweedie(3.0), np.array([0.5, 1.0, 7.0]), np.array([0.2, 1.5, 6.0])),
]
every_family = pytest.mark.parametrize(("family", "y", "mu"), LABELS, ids=[str(case[0]) for case in LABELS])


@every_link
def test_unlink_inverts_link(link, mu) -> None:
    np.testing.assert_allclose(link.unlink(link.link(mu)), mu, rtol=1e-9)


@every_link
def test_derivative_is_the_finite_difference(link, mu) -> None:
    step = 1e-5 * np.minimum(np.abs(mu), np.abs(1.0 - mu))
    slopes = (link.link(mu + step) - link.link(mu - step)) / (2.0 * step)
    np.testing.assert_allclose(link.derivative(mu), slopes, rtol=1e-6)


def test_links_of_shares_are_scipys_distributions() -> None:
    eta = np.array([-30.0, -3.0, 0.1, 2.0])
    np.testing.assert_allclose(Logit().unlink(eta), stats.logistic.cdf(eta), rtol=1e-14)
    np.testing.assert_allclose(Probit().unlink(eta), stats.norm.cdf(eta), rtol=1e-14)
    np.testing.assert_allclose(CLogLog().unlink(eta), stats.gumbel_l.cdf(eta), rtol=1e-14)


def test_power_links_with_a_name_are_the_named_ones() -> None:
    for power, named in ((0.0, Log()), (1.0, Identity()), (-1.0, Inverse()), (0.5, Sqrt())):
        for method in ("link", "unlink", "derivative"):
            expected = getattr(named, method)(POSITIVE)
            np.testing.assert_allclose(getattr(Power(power), method)(POSITIVE), expected, rtol=1e-14)


def test_variances_are_those_of_scipys_distributions() -> None:
    mu = np.array([0.2, 0.7])
    np.testing.assert_allclose(Gaussian().variance(mu), stats.norm(mu).var())
    np.testing.assert_allclose(Binomial().variance(mu), stats.bernoulli(mu).var())
    np.testing.assert_allclose(Poisson().variance(mu), stats.poisson(mu).var())
    np.testing.assert_allclose(Gamma().variance(mu), stats.gamma(1.0, scale=mu).var())
    # inverse Gaussian of mean mu and dispersion 1
    np.testing.assert_allclose(Tweedie(3.0).variance(mu), stats.invgauss(mu).var())
    for power, named in ((1.0, Poisson()), (2.0, Gamma())):
        np.testing.assert_allclose(Tweedie(power).variance(mu), named.variance(mu))


@every_family
def test_deviance_is_the_integral_of_the_score(family, y, mu) -> None:
    """``2 * integral over t from mu to y of (y - t) / V(t)``."""
    for label, mean in zip(y, mu, strict=True):
        integrand = lambda t, label=label: (label - t) / float(family.variance(np.array(t)))  # noqa: E731
        expected = 2.0 * integrate.quad(integrand, mean, label)[0]
        found = family.deviance(np.array([label]), np.array([mean]))[0]
        assert found == pytest.approx(expected, rel=1e-6), (label, mean)


@every_family
def test_initial_means_lie_within_the_domain(family, y, mu) -> None:
    for weights in (np.ones(3), np.array([0.0, 0.5, 20.0])):
        start = family.initialize(y, weights)
        np.testing.assert_array_equal(family.project(start), start)
        assert np.isfinite(family.default_link.link(start)).all()


def test_initial_means_are_the_labels_moved_off_the_border() -> None:
    y, weights = np.array([0.0, 1.0]), np.array([3.0, 1.0])
    np.testing.assert_allclose(Binomial().initialize(y, weights), [0.5 / 4.0, 0.75])
    np.testing.assert_allclose(Poisson().initialize(np.array([0.0, 0.05, 2.0]), np.ones(3)), [0.1, 0.1, 2.0])
    np.testing.assert_allclose(Tweedie(1.5).initialize(np.array([0.0, 0.05, 2.0]), np.ones(3)), [0.1, 0.05, 2.0])


def test_means_are_kept_off_the_border_and_nan_stays() -> None:
    infinite = np.array([-np.inf, np.inf, np.nan])
    largest = np.finfo(float).max
    np.testing.assert_array_equal(Gaussian().project(infinite), [-largest, largest, np.nan])
    np.testing.assert_array_equal(Gamma().project(infinite), [1e-16, largest, np.nan])
    np.testing.assert_array_equal(Binomial().project(infinite), [1e-16, 1.0 - 1e-16, np.nan])
    assert Binomial().project(np.array([1.0]))[0] < 1.0


@every_family
def test_labels_on_the_border_and_inside_are_fine(family, y, mu) -> None:
    assert family.check(y) is None
    assert family.check(np.array([])) is None


@pytest.mark.parametrize(
    ("family", "label"),
    [
        (Binomial(), -0.1),
        (Binomial(), 1.5),
        (Poisson(), -1.0),
        (Gamma(), 0.0),
        (Tweedie(1.5), -2.0),
        (Tweedie(2.5), 0.0),
        (Gaussian(), np.nan),
    ],
)
def test_wrong_labels_are_named(family, label: float) -> None:
    message = family.check(np.array([0.5, label]))
    assert family.name in message
    assert f"{label:g}" in message


def test_zero_is_a_label_of_a_compound_poisson() -> None:
    assert Tweedie(1.5).check(np.array([0.0])) is None


@every_family
def test_working_response_and_weights_are_fisher_scoring(family, y, mu) -> None:
    """They turn into the gradient and the expected second derivative of half the deviance, by finite differences."""
    model = FamilyAndLink(family, family.default_link)
    offset = np.array([0.1, 0.0, 0.2])
    weights = np.array([1.0, 2.0, 0.5])
    eta = model.link.link(mu)
    response, working = model.working(y, weights, offset, eta)
    step = 1e-6 * np.abs(eta).clip(0.1)
    for i in range(3):
        one = np.arange(3) == i
        ahead, behind = (model.deviance(y, weights, eta + sign * step * one) for sign in (1.0, -1.0))
        slope = 0.5 * (ahead - behind) / (2.0 * step[i])
        # d (w/2 (z - eta)^2) / d eta
        assert -working[i] * (response[i] + offset[i] - eta[i]) == pytest.approx(slope, rel=1e-5, abs=1e-7)
    unlinked = (model.predict(eta + step) - model.predict(eta - step)) / (2.0 * step)
    np.testing.assert_allclose(working, weights * unlinked**2 / family.variance(mu), rtol=1e-6)


def test_predictors_of_any_size_warn_of_nothing() -> None:
    eta = np.array([-1e6, -800.0, 0.0, 800.0, 1e6])
    for family in FAMILIES.values():
        for name in family.allowed_links:
            model = FamilyAndLink(family, LINKS[name])
            mu = model.predict(eta)
            np.testing.assert_array_equal(family.project(mu), mu)
            model.working(np.ones(5), np.ones(5), 0.0, eta)


def test_parameters_name_families_and_links() -> None:
    assert family_and_link() == FamilyAndLink(Gaussian(), Identity())
    assert family_and_link("Poisson", "SQRT") == FamilyAndLink(Poisson(), Sqrt())
    for name, family in FAMILIES.items():
        assert family_and_link(name) == FamilyAndLink(family, family.default_link)
    assert family_and_link("tweedie") == FamilyAndLink(Gaussian(), Identity())
    assert family_and_link("tweedie", variance_power=1.0) == FamilyAndLink(Poisson(), Log())
    assert family_and_link("tweedie", variance_power=2.0, link_power=0.0) == FamilyAndLink(Gamma(), Log())
    assert family_and_link("tweedie", variance_power=1.5) == FamilyAndLink(Tweedie(1.5), Power(-0.5))
    assert family_and_link("tweedie", variance_power=1.5, link_power=0.3).link == Power(0.3)
    assert family_and_link("gaussian", variance_power=1.5, link_power=0.3) == family_and_link()


def test_parameters_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="cauchy.*gaussian, binomial, poisson, gamma or tweedie"):
        family_and_link("cauchy")
    with pytest.raises(ValueError, match="poisson.*logit.*log, identity, sqrt"):
        family_and_link("poisson", "logit")
    for power in (0.5, -1.0):
        with pytest.raises(ValueError, match=f"variancePower={power}"):
            family_and_link("tweedie", variance_power=power)
