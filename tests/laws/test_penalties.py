"""Laws of every penalty."""

from __future__ import annotations

import numpy as np
import pytest
from cases import PENALTIES
from oracles import finite_difference

from sparkdml.penalties import L2

FACTORS = np.array([1.0, 0.25, 0.0, 3.0])

every_penalty = pytest.mark.parametrize("penalty", [make(FACTORS) for make in PENALTIES.values()], ids=PENALTIES.keys())


def coefficients(outputs: int) -> np.ndarray:
    return np.random.default_rng(outputs).standard_normal((len(FACTORS), outputs))


@every_penalty
@pytest.mark.parametrize("outputs", [1, 3])
def test_gradient_is_the_finite_difference_of_the_value(penalty, outputs: int) -> None:
    c = coefficients(outputs)
    gradient = penalty.gradient(c)
    assert gradient.shape == c.shape
    np.testing.assert_allclose(gradient, finite_difference(penalty.value, c, 1e-4), atol=1e-9)


@every_penalty
def test_curvature_is_the_second_difference(penalty) -> None:
    c, step = coefficients(2), 1e-3
    curvature = penalty.curvature()
    assert curvature.shape == (len(FACTORS), 1)
    for j, k in np.ndindex(c.shape):
        move = np.zeros_like(c)
        move[j, k] = step
        change = penalty.value(c + move) - 2 * penalty.value(c) + penalty.value(c - move)
        assert change / step**2 == pytest.approx(curvature[j, 0], abs=1e-8)


@every_penalty
def test_value_is_0_at_0_and_never_negative(penalty) -> None:
    assert penalty.value(np.zeros((len(FACTORS), 2))) == 0.0
    assert penalty.value(coefficients(2)) >= 0.0


@every_penalty
def test_coefficients_are_left_alone(penalty) -> None:
    c = coefficients(3)
    before = c.copy()
    penalty.value(c)
    penalty.gradient(c)[:] = 7.0
    np.testing.assert_array_equal(c, before)


def test_l2_is_half_the_weighted_sum_of_squares() -> None:
    c = np.array([[1.0, -2.0], [4.0, 0.0]])
    # 0.5 * 3 * (2 * (1 + 4) + 0.5 * 16)
    assert L2(3.0, np.array([[2.0], [0.5]])).value(c) == 27.0


@pytest.mark.parametrize("rate", [0.0, 0.3, 40.0])
@every_penalty
def test_the_proximal_point_minimises_what_it_says(penalty, rate: float) -> None:
    rng = np.random.default_rng(4)
    given = rng.standard_normal((len(FACTORS), 3))
    found = penalty.prox(given, rate)
    if rate == 0.0:
        np.testing.assert_array_equal(found, given)
        return
    strengths = penalty.l1()

    def value(x: np.ndarray) -> float:
        sharp = 0.0 if strengths is None else float(np.sum(strengths * np.abs(x)))
        return penalty.value(x) + sharp + float(np.sum((x - given) ** 2)) / (2 * rate)

    for _ in range(200):
        assert value(found) <= value(found + 1e-3 * rng.standard_normal(found.shape)) + 1e-15
    some = np.array([3, 1])
    np.testing.assert_array_equal(penalty.of(some).prox(given[some], rate), found[some])
