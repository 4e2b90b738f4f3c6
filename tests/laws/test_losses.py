"""Laws of every loss."""

from __future__ import annotations

import numpy as np
import pytest
from cases import LOSSES
from oracles import finite_difference, plain_losses, plain_slopes, random_labels

from sparkdml.losses import Logistic, Loss, Softmax

every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())

EXTREME = (-1e300, -1e4, -800.0, -40.0, 0.0, 40.0, 800.0, 1e4, 1e300)


def evaluated(loss: Loss, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray):
    """Value and slopes; slopes start as NaN, so that one left out would show."""
    slopes = np.full(margins.shape, np.nan)
    return loss.evaluate(margins, labels, weights, slopes), slopes


def some_rows(loss: Loss, rows: int = 23, spread: float = 3.0):
    rng = np.random.default_rng(rows)
    margins = spread * rng.standard_normal((rows, loss.outputs))
    return margins, random_labels(rng, loss, rows), rng.uniform(0.1, 3.0, rows)


@every_loss
def test_value_and_slopes_are_the_formula(loss: Loss) -> None:
    margins, labels, weights = some_rows(loss, rows=200, spread=8.0)
    value, slopes = evaluated(loss, margins, labels, weights)
    assert value == pytest.approx(weights @ plain_losses(loss, margins, labels), rel=1e-13)
    expected = weights[:, None] * plain_slopes(loss, margins, labels)
    np.testing.assert_allclose(slopes, expected, rtol=1e-12, atol=1e-14)


@every_loss
def test_slope_is_the_finite_difference_of_the_value(loss: Loss) -> None:
    margins, labels, weights = some_rows(loss)
    _, slopes = evaluated(loss, margins, labels, weights)
    differences = finite_difference(lambda m: evaluated(loss, m, labels, weights)[0], margins, step=1e-5)
    np.testing.assert_allclose(slopes, differences, atol=1e-7)


@every_loss
def test_weight_0_is_an_absent_row(loss: Loss) -> None:
    margins, labels, weights = some_rows(loss)
    weights[::3] = 0.0
    value, slopes = evaluated(loss, margins, labels, weights)
    there = weights > 0
    expected, expected_slopes = evaluated(loss, margins[there], labels[there], weights[there])
    assert value == pytest.approx(expected, rel=1e-14)
    assert not slopes[~there].any()
    np.testing.assert_array_equal(slopes[there], expected_slopes)


@every_loss
def test_weight_2_is_the_row_twice(loss: Loss) -> None:
    margins, labels, _ = some_rows(loss)
    ones = np.ones(len(labels))
    value, slopes = evaluated(loss, margins, labels, 2.0 * ones)
    once, once_slopes = evaluated(loss, margins, labels, ones)
    twice, _ = evaluated(loss, np.vstack([margins, margins]), np.tile(labels, 2), np.tile(ones, 2))
    assert value == pytest.approx(twice, rel=1e-14)
    assert value > once > 0
    np.testing.assert_allclose(slopes, 2.0 * once_slopes, rtol=1e-15)


@every_loss
@pytest.mark.parametrize("size", EXTREME)
def test_extreme_margins_give_finite_values_and_slopes(loss: Loss, size: float) -> None:
    for label in range(max(loss.outputs, 2)):
        margins = np.zeros((1, loss.outputs))
        margins[0, -1] = size
        value, slopes = evaluated(loss, margins, np.array([float(label)]), np.ones(1))
        assert np.isfinite(value)
        assert value >= 0.0
        assert np.isfinite(slopes).all()
        assert np.abs(slopes).max() <= 1.0
        expected = plain_losses(loss, margins, np.array([float(label)]))[0]
        assert value == pytest.approx(expected, rel=1e-12, abs=1e-15)


@every_loss
def test_value_is_never_negative(loss: Loss) -> None:
    margins, labels, weights = some_rows(loss, rows=500, spread=50.0)
    for i in range(len(labels)):
        one = slice(i, i + 1)
        assert evaluated(loss, margins[one], labels[one], weights[one])[0] >= 0.0


@every_loss
def test_curvature_bounds_the_second_difference(loss: Loss) -> None:
    """And is a tight bound: it is attained where the probability of a class is one half."""
    rng = np.random.default_rng(3)
    largest, step = 0.0, 1e-3
    for _ in range(300):
        margins = 2.0 * rng.standard_normal((1, loss.outputs))
        if loss.outputs > 2:
            # mass on two classes only, so that one half is reached
            margins[0, 2:] -= 20.0
        label, one = random_labels(rng, loss, 1), np.ones(1)
        k = rng.integers(loss.outputs)
        move = step * np.eye(loss.outputs)[k]
        values = [evaluated(loss, margins + t * move, label, one)[0] for t in (-1, 0, 1)]
        largest = max(largest, (values[0] - 2.0 * values[1] + values[2]) / step**2)
    assert largest <= loss.curvature * (1 + 1e-6)
    assert largest >= loss.curvature * 0.9


@every_loss
def test_no_rows_sum_to_nothing(loss: Loss) -> None:
    value, slopes = evaluated(loss, np.zeros((0, loss.outputs)), np.zeros(0), np.zeros(0))
    assert value == 0.0
    assert slopes.shape == (0, loss.outputs)


@every_loss
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_margin_that_is_not_finite_is_never_hidden(loss: Loss, bad: float) -> None:
    """A value may be infinite, or NaN, or the limit that scipy gives; it may not be some other number."""
    for label in range(max(loss.outputs, 2)):
        for k in range(loss.outputs):
            margins, labels = np.zeros((1, loss.outputs)), np.array([float(label)])
            margins[0, k] = bad
            value, _ = evaluated(loss, margins, labels, np.ones(1))
            if np.isfinite(value):
                assert value == pytest.approx(plain_losses(loss, margins, labels)[0])


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_slopes_of_softmax_sum_to_0(classes: int) -> None:
    margins, labels, weights = some_rows(Softmax(classes), rows=50, spread=5.0)
    _, slopes = evaluated(Softmax(classes), margins, labels, weights)
    np.testing.assert_allclose(slopes.sum(axis=1), 0.0, atol=1e-14)


def test_softmax_of_2_classes_is_logistic_of_the_difference() -> None:
    margins, labels, weights = some_rows(Softmax(2), rows=50, spread=5.0)
    value, slopes = evaluated(Softmax(2), margins, labels, weights)
    difference = margins[:, 1:] - margins[:, :1]
    expected, one_slope = evaluated(Logistic(), difference, labels, weights)
    assert value == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(slopes, one_slope * [-1.0, 1.0], rtol=1e-12, atol=1e-14)
