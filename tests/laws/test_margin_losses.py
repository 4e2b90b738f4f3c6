"""Losses of regressions and support vector machines: formulas, derivatives, what a weight means."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from oracles import finite_difference

from sparkdml.algorithms import LBFGS, Newton
from sparkdml.losses import Hinge, Huber, Logistic, Loss, Squared


def huber(residuals: np.ndarray, sigma: float, epsilon: float) -> np.ndarray:
    size = np.abs(residuals)
    near = sigma + residuals**2 / sigma
    far = sigma + 2 * epsilon * size - sigma * epsilon**2
    return 0.5 * np.where(size <= epsilon * sigma, near, far)


FORMULAS: dict[str, tuple[Loss, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "squared": (Squared(), lambda m, y: 0.5 * (m - y) ** 2),
    "squared-scaled": (Squared(0.25), lambda m, y: 0.125 * (m - y) ** 2),
    "hinge": (Hinge(), lambda m, y: np.maximum(0.0, 1.0 - np.where(y == 1, 1.0, -1.0) * m)),
    "huber": (Huber(1.35, 0.7), lambda m, y: huber(m - y, 0.7, 1.35)),
    "huber-wide": (Huber(3.0, 2.0), lambda m, y: huber(m - y, 2.0, 3.0)),
}
every_loss = pytest.mark.parametrize(("loss", "formula"), FORMULAS.values(), ids=FORMULAS.keys())


def rows_of(loss: Loss, count: int = 60):
    rng = np.random.default_rng(count)
    labels = rng.integers(0, 2, count).astype(float) if isinstance(loss, Hinge) else 3.0 * rng.standard_normal(count)
    return 3.0 * rng.standard_normal((count, 1)), labels, rng.uniform(0.1, 3.0, count)


def evaluated(loss: Loss, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray):
    slopes = np.full(margins.shape, np.nan)
    return loss.evaluate(margins, labels, weights, slopes), slopes


@every_loss
def test_value_is_the_formula(loss, formula):
    margins, labels, weights = rows_of(loss)
    value, _ = evaluated(loss, margins, labels, weights)
    assert value == pytest.approx(weights @ formula(margins[:, 0], labels), rel=1e-13)


@every_loss
def test_slope_is_the_finite_difference_of_the_value(loss, formula):
    margins, labels, weights = rows_of(loss)
    _, slopes = evaluated(loss, margins, labels, weights)
    expected = finite_difference(lambda m: evaluated(loss, m, labels, weights)[0], margins, 1e-6)
    np.testing.assert_allclose(slopes, expected, atol=1e-6)


@every_loss
def test_weight_0_is_an_absent_row(loss, formula):
    margins, labels, weights = rows_of(loss)
    weights[::3] = 0.0
    there = weights > 0
    value, slopes = evaluated(loss, margins, labels, weights)
    expected, _ = evaluated(loss, margins[there], labels[there], weights[there])
    assert value == pytest.approx(expected, rel=1e-14)
    assert not slopes[~there].any()


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Squared(0.25)], ids=["logistic", "squared", "scaled"])
def test_curvature_is_the_finite_difference_of_the_slope(loss):
    margins, labels, weights = rows_of(Hinge())
    ahead = evaluated(loss, margins + 1e-6, labels, weights)[1]
    behind = evaluated(loss, margins - 1e-6, labels, weights)[1]
    found = loss.curvatures(margins[:, 0], labels, weights)
    np.testing.assert_allclose(found, (ahead - behind)[:, 0] / 2e-6, atol=1e-8)
    assert (found <= weights * loss.curvature * (1 + 1e-12)).all()


@pytest.mark.parametrize("sigma", [0.1, 1.0, 30.0])
def test_hubers_own_slope_is_the_finite_difference_by_log_sigma(sigma):
    margins, labels, weights = rows_of(Squared())

    def value(extras):
        return evaluated(Huber().at(extras), margins, labels, weights)[0]

    at = np.array([np.log(sigma)])
    found = Huber().at(at).extra_slopes(margins, labels, weights)
    np.testing.assert_allclose(found, finite_difference(value, at, 1e-6), rtol=1e-6)


def test_only_losses_that_know_their_second_derivative_have_a_hessian():
    with pytest.raises(NotImplementedError, match="Hinge"):
        Hinge().curvatures(np.zeros(1), np.zeros(1), np.ones(1))


@pytest.mark.parametrize("reg", [0.0, 0.1])
@pytest.mark.parametrize("intercept", [True, False])
def test_newton_reaches_the_optimum_of_l_bfgs_in_fewer_rounds(reg, intercept):
    from cases import BLOCK_FORMATS
    from problems import drive, make_problem

    rng = np.random.default_rng(4)
    X = rng.standard_normal((300, 5)) * [1, 10, 0.1, 1, 1] + [0, 5, 0, 0, 1]
    X[:, 4] = X[:, 0] + 0.1 * X[:, 4]
    y = (rng.random(300) < 1 / (1 + np.exp(-X[:, 0]))).astype(float)
    weights = rng.uniform(0.5, 2.0, 300)
    problem = make_problem(Logistic(), X, weights, reg, True, intercept)
    workers = [[BLOCK_FORMATS["dense-float64"](X[:100], y[:100], weights[:100])],
               [BLOCK_FORMATS["sparse-float64"](X[100:], y[100:], weights[100:])]]  # fmt: skip
    exact, slow = drive(Newton(100, 1e-12), problem, workers), drive(LBFGS(1000, 1e-12), problem, workers)
    assert exact[-1].objective == pytest.approx(slow[-1].objective, rel=1e-12)
    np.testing.assert_allclose(exact[-1].best, slow[-1].best, atol=1e-5)
    assert len(exact) < len(slow)
