"""The line search: what it accepts is a Wolfe point, and it always ends."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdml.algorithms.line_search import CURVATURE, DECREASE, MAX_TRIALS, LineSearch, Point

Curve = Callable[[float], tuple[float, float]]


def search_along(curve: Curve, step: float = 1.0) -> tuple[LineSearch, list[Point]]:
    """The finished search along ``curve`` (value and slope at a step), and the points that it asked for."""
    search, asked = LineSearch.begin(*curve(0.0), step), []
    while not (search.accepted or search.failed):
        assert len(asked) < MAX_TRIALS
        assert math.isfinite(search.step)
        assert search.step > 0.0
        asked.append(Point(search.step, *curve(search.step)))
        search = search.told(asked[-1].value, asked[-1].slope)
    assert search.accepted != search.failed
    return search, asked


def assert_strong_wolfe(curve: Curve, step: float) -> None:
    value, slope = curve(0.0)
    there, slope_there = curve(step)
    assert there <= value + DECREASE * step * slope + 1e-13 * abs(value)
    assert abs(slope_there) <= CURVATURE * abs(slope)


scales = st.floats(-3.0, 3.0).map(lambda power: 10.0**power)


@st.composite
def bumpy_bowls(draw: st.DrawFn, size: st.SearchStrategy[float] = scales) -> Curve:
    """``q/2 t^2 + s sin(w t + p) - k t``: bounded below, sloping down at 0, with many valleys."""
    q, steepness = draw(size), draw(size)
    s, w, p = draw(st.floats(0.0, 10.0)), draw(st.floats(0.1, 20.0)), draw(st.floats(0.0, 6.3))
    k = s * w * math.cos(p) + steepness

    def curve(t: float) -> tuple[float, float]:
        value = q / 2 * t * t + s * math.sin(w * t + p) - k * t
        return value, q * t + s * w * math.cos(w * t + p) - k

    return curve


@given(curve=bumpy_bowls(), step=scales)
def test_accepted_steps_satisfy_the_strong_wolfe_conditions(curve: Curve, step: float) -> None:
    search, asked = search_along(curve, step)
    assert search.step == asked[-1].step or search.failed
    if search.accepted:
        assert_strong_wolfe(curve, search.step)


moderate = st.floats(-1.0, 1.0).map(lambda power: 10.0**power)


@given(curve=bumpy_bowls(moderate), step=moderate)
def test_smooth_curves_of_moderate_scale_are_searched_to_acceptance(curve: Curve, step: float) -> None:
    search, _ = search_along(curve, step)
    assert search.accepted
    assert_strong_wolfe(curve, search.step)


@st.composite
def convex_curves(draw: st.DrawFn) -> Curve:
    """Losses along a line: sums of ``log(1 + exp(a t + b))``, and a little quadratic."""
    q = draw(st.floats(1e-3, 1.0))
    terms = draw(st.lists(st.tuples(st.floats(-30.0, 30.0), st.floats(-5.0, 5.0)), min_size=1, max_size=6))
    a, b = np.array(terms).T
    # so that the slope at 0 is negative
    tilt = float(np.sum(a / (1.0 + np.exp(-b)))) + draw(st.floats(0.01, 10.0))

    def curve(t: float) -> tuple[float, float]:
        margins = a * t + b
        value = np.logaddexp(0.0, margins).sum() + q / 2 * t * t - tilt * t
        sigmoid = np.exp(-np.logaddexp(0.0, -margins))
        return float(value), float(a @ sigmoid + q * t - tilt)

    return curve


@given(curve=convex_curves(), step=scales)
def test_convex_losses_are_searched_to_acceptance(curve: Curve, step: float) -> None:
    search, _ = search_along(curve, step)
    assert search.accepted
    assert_strong_wolfe(curve, search.step)


@given(st.floats(1e-3, 1e3), st.floats(1.0, 1e6))
def test_values_that_are_not_finite_beyond_a_point_are_backed_out_of(minimum: float, edge: float) -> None:
    def curve(t: float) -> tuple[float, float]:
        if t > minimum * (1.0 + edge):
            return math.nan, math.nan
        return (t - minimum) ** 2, 2.0 * (t - minimum)

    search, _ = search_along(curve, step=1e3 * minimum * edge)
    assert search.accepted
    assert_strong_wolfe(curve, search.step)


PATHOLOGICAL: dict[str, Curve] = {
    "linear": lambda t: (-t, -1.0),
    "nan-everywhere": lambda t: (0.0, -1.0) if t == 0 else (math.nan, math.nan),
    "nan-slope": lambda t: (-t, -1.0) if t == 0 else (-t, math.nan),
    "infinite": lambda t: (0.0, -1.0) if t == 0 else (math.inf, math.inf),
    "minus-infinity": lambda t: (0.0, -1.0) if t == 0 else (-math.inf, -1.0),
    "uphill-though-the-slope-says-down": lambda t: (t, -1.0),
    "flat-though-the-slope-says-down": lambda t: (0.0, -1.0),
    "cusp": lambda t: (abs(t - 0.3), -1.0 if t < 0.3 else 1.0),
    "staircase": lambda t: (-math.floor(10.0 * t) / 10.0, -1.0),
    "steep-wall": lambda t: (-t + 1e200 * max(t - 0.5, 0.0) ** 2, -1.0 + 2e200 * max(t - 0.5, 0.0)),
    "huge-values": lambda t: (1e300 * (1.0 - t), -1e300),
    "no-slope": lambda t: (0.0, 0.0),
}


@pytest.mark.parametrize("step", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize("curve", PATHOLOGICAL.values(), ids=PATHOLOGICAL.keys())
def test_pathological_curves_end_within_the_bound(curve: Curve, step: float) -> None:
    search, asked = search_along(curve, step)
    assert len(asked) <= MAX_TRIALS
    if search.accepted:
        assert_strong_wolfe(curve, search.step)


@pytest.mark.parametrize("name", ["linear", "nan-everywhere", "uphill-though-the-slope-says-down"])
def test_curves_without_a_wolfe_point_fail(name: str) -> None:
    search, _ = search_along(PATHOLOGICAL[name])
    assert search.failed


def test_steep_curves_are_searched_down_to_tiny_steps() -> None:
    """A first step a billion times too long."""

    def curve(t: float) -> tuple[float, float]:
        return (1e9 * t - 1.0) ** 2, 2e9 * (1e9 * t - 1.0)

    search, _ = search_along(curve, step=1.0)
    assert search.accepted
    assert_strong_wolfe(curve, search.step)


def test_a_flat_point_is_accepted_where_the_decrease_drowns_in_rounding() -> None:
    def curve(t: float) -> tuple[float, float]:
        return 1e3 + 1e-15 * (t - 1.0) ** 2, 2e-15 * (t - 1.0)

    assert curve(0.0)[0] == curve(1.0)[0]
    search, _ = search_along(curve, step=1.0)
    assert search.accepted


def test_a_search_told_twice_gives_twice_the_same() -> None:
    search = LineSearch.begin(1.0, -1.0, 1.0)
    assert search.told(5.0, 3.0) == search.told(5.0, 3.0)
    assert search == LineSearch.begin(1.0, -1.0, 1.0)
