"""The vectorised exp and log1p are the library's, to the last places."""

from __future__ import annotations

import numpy as np
import pytest

from sparkdml.losses.exponential import exp_nonpositive, log1p_unit

RNG = np.random.default_rng(53)
EDGES = [0.0, -0.0, -1e-300, -(2.0**-53), -np.log(2.0) / 2, -np.log(2.0), -1.0, -707.999, -708.0]


def exp(x: np.ndarray) -> np.ndarray:
    out = np.full(x.shape, np.nan)
    exp_nonpositive(x, out)
    return out


@pytest.mark.parametrize("size", [1e-9, 1.0, 40.0, 708.0])
def test_exp_is_within_2_units_in_the_last_place(size: float) -> None:
    x = np.concatenate([-size * RNG.random(20_000), EDGES])
    expected = np.exp(x.astype(np.longdouble)).astype(np.float64)
    assert (np.abs(exp(x) - expected) <= 2.0 * np.spacing(expected)).all()


def test_exp_of_0_is_exactly_1() -> None:
    assert exp(np.array([0.0, -0.0])).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("x", [-709.0, -745.2, -1e4, -1e300, -np.inf])
def test_exp_below_the_normal_numbers_is_as_good_as_0(x: float) -> None:
    assert 0.0 <= exp(np.array([x]))[0] <= 1e-307


def test_exp_of_nan_is_nan() -> None:
    assert np.isnan(exp(np.array([np.nan, -1.0]))).tolist() == [True, False]


def test_exp_of_nothing_is_nothing() -> None:
    assert exp(np.zeros(0)).size == 0


def test_log1p_is_relatively_exact_from_tiny_to_1() -> None:
    x = np.concatenate([RNG.random(20_000), 10.0 ** RNG.uniform(-307, 0, 20_000), [0.0, 1.0]])
    found = np.array([log1p_unit(value) for value in x])
    expected = np.log1p(x.astype(np.longdouble)).astype(np.float64)
    assert (np.abs(found - expected) <= 4e-16 * expected).all()
