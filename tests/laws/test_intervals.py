"""How many local steps a round has, given what workers measured."""

from __future__ import annotations

import math

import pytest

from sparkdml.algorithms.intervals import Auto, Fixed, Growing, Interval, Measured, seconds


def told(compute: float, exchange: float, passes: float = 0.0, workers: int = 4) -> Measured:
    """Of ``workers`` that each spent so many seconds."""
    return Measured(workers * compute, workers * exchange, float(workers), passes)


@pytest.mark.parametrize("steps", [0, 1, 17])
def test_fixed_never_changes(steps: int) -> None:
    interval = Fixed(steps)
    assert interval.first() == steps
    assert interval.after(steps, 1, told(1.0, 100.0)) == steps
    assert interval.after(steps, 900, told(100.0, 1.0)) == steps


def test_growing_grows_by_its_factor_up_to_its_most() -> None:
    interval, steps = Growing(2, 1.5, 12), []
    current = interval.first()
    for rounds in range(1, 7):
        steps.append(current)
        current = interval.after(current, rounds, told(1.0, 1.0))
    assert steps == [2, 3, 5, 8, 12, 12]
    # a factor near 1 grows too
    assert Growing(1, 1.01, 9).after(1, 1, Measured()) == 2
    assert Growing(1, 1.0, 9).after(1, 1, Measured()) == 1


@pytest.mark.parametrize(
    ("steps", "compute", "exchange", "expected"),
    [(10, 1.0, 4.0, 40), (10, 1.0, 1.0, 10), (10, 5.0, 1.0, 2), (3, 2.0, 3.0, 5), (10, 1.0, 0.0, 1), (1, 9.0, 1.0, 1)],
)
def test_auto_balances_compute_and_exchange(steps: int, compute: float, exchange: float, expected: int) -> None:
    assert Auto().after(steps, 2, told(compute, exchange)) == expected


@pytest.mark.parametrize(("latency", "per_step"), [(0.05, 0.001), (0.2, 0.0001), (1e-4, 0.01)])
def test_auto_ends_with_exchanges_at_most_as_long_as_compute(latency: float, per_step: float) -> None:
    interval = Auto(rounds=8, most_passes=math.inf)
    steps = interval.first()
    for rounds in range(1, 12):
        steps = interval.after(steps, rounds, told(steps * per_step, latency))
    assert latency <= 1.0001 * steps * per_step
    # the fewest of which that holds
    assert steps == 1 or latency > (steps - 1.001) * per_step


def test_auto_is_bounded_by_passes_and_grows_step_by_step() -> None:
    # 10 steps are a quarter of a pass, so 80 are two
    assert Auto(most_passes=2.0).after(10, 1, told(1.0, 7.9, 0.25)) == 79
    assert Auto(most_passes=1.0).after(10, 1, told(1.0, 7.9, 0.25)) == 40
    assert Auto(most_passes=1.0).after(1, 1, told(1.0, 50.0, 3.0)) == 1
    # one measurement of few steps is not trusted with a factor of a million
    assert Auto(most_passes=math.inf).after(1, 1, told(1e-9, 1e-3)) == 8


def test_auto_keeps_its_choice_and_changes_nothing_unheard() -> None:
    assert Auto(rounds=5).after(7, 5, told(1.0, 3.0)) == 21
    assert Auto(rounds=5).after(7, 6, told(1.0, 3.0)) == 7
    assert Auto().after(7, 2, Measured(passes=0.1)) == 7
    assert Auto(start=3).first() == 3


def test_seconds_are_told_from_the_second_work_on() -> None:
    assert seconds(10.0, 12.5, 9.0) == {"compute_seconds": 2.5, "exchange_seconds": 1.0, "told": 1.0}
    nothing = {"compute_seconds": 0.0, "exchange_seconds": 0.0, "told": 0.0}
    assert seconds(10.0, 12.5, None) == nothing
    # the clock started anew
    assert seconds(10.0, 12.5, 5000.0) == nothing


def test_measured_adds_up_and_divides_by_what_was_told() -> None:
    measured = Measured()
    assert math.isnan(measured.ratio)
    total = {"compute_seconds": 6.0, "exchange_seconds": 2.0, "told": 2.0, "passes": 5.0, "weight": 20.0}
    measured = measured.heard(total).heard({**total, "compute_seconds": 2.0, "passes": 10.0})
    assert measured == Measured(8.0, 4.0, 4.0, 0.5)
    assert measured.ratio == 2.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(-1),
        lambda: Growing(0),
        lambda: Growing(5, 2.0, 4),
        lambda: Growing(1, 0.5),
        lambda: Auto(start=0),
        lambda: Auto(most_passes=0.0),
    ],
)
def test_what_cannot_be_is_refused(make) -> None:
    with pytest.raises(ValueError, match="steps|start|passes"):
        make()


@pytest.mark.parametrize("interval", [Fixed(2), Growing(), Auto()])
def test_every_interval_is_a_whole_number_of_steps(interval: Interval) -> None:
    steps = interval.first()
    for rounds in range(1, 20):
        steps = interval.after(steps, rounds, told(0.3, 0.7, 0.01 * steps))
        assert isinstance(steps, int)
        assert steps >= 1
