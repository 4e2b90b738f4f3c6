"""What a fit would cost under each placement: orders of magnitude, and who is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdml.placement.cost import ARRAYS, DRIVER_SHARE, FETCH_BYTES, Work, memory_bytes, seconds

GIB = 2.0**30
#: 100,000 rows of 100 numbers, on a driver of 4 GiB in local mode.
SMALL = Work(100, 1, 1e7, 40_000_000, 4, 4, 4 * GIB, here=True)
#: Ten million rows of 40 of a billion features each, on 64 slots.
WIDE = Work(10**9, 1, 4e8, 3_200_000_000, 64, 64, 4 * GIB, here=False)

works = st.builds(
    Work,
    features=st.integers(1, 2**40),
    outputs=st.integers(1, 100),
    nonzeros=st.floats(0.0, 1e12),
    stored_bytes=st.integers(1, 10**13),
    partitions=st.integers(1, 10_000),
    slots=st.integers(1, 10_000),
    driver_bytes=st.floats(2.0**28, 2.0**40),
    here=st.booleans(),
)


def cheapest(work: Work) -> str:
    found = seconds(work)
    return min(found, key=lambda name: found[name])


def test_small_data_here_is_worked_on_by_the_driver() -> None:
    assert cheapest(SMALL) == "local"


def test_few_rows_are_fetched_wherever_they_are_and_many_are_not() -> None:
    few = replace(SMALL, here=False, nonzeros=1e5, stored_bytes=400_000)
    assert cheapest(few) == "local"
    assert "local" not in seconds(replace(few, stored_bytes=FETCH_BYTES + 1))


def test_many_rows_elsewhere_stay_there() -> None:
    assert cheapest(replace(SMALL, here=False, nonzeros=1e10, stored_bytes=4 * 10**10)) in ("broadcast", "allreduce")


def test_wide_sparse_rows_are_partitioned_because_the_driver_has_no_room() -> None:
    assert not WIDE.fits_driver
    assert cheapest(WIDE) == "partitioned"


def test_wide_sparse_rows_are_partitioned_also_where_the_driver_has_room_but_would_be_slow() -> None:
    roomy = replace(WIDE, driver_bytes=2.0**40)
    assert roomy.fits_driver
    assert set(seconds(roomy)) == {"broadcast", "allreduce", "partitioned"}
    assert cheapest(roomy) == "partitioned"


@given(works)
def test_a_model_that_does_not_fit_the_driver_is_only_offered_in_shards(work: Work) -> None:
    held = 8.0 * work.features * work.outputs * ARRAYS + 24.0 * work.features
    assert work.fits_driver == (held <= DRIVER_SHARE * work.driver_bytes)
    offered = set(seconds(work))
    if work.fits_driver:
        assert {"broadcast", "allreduce", "partitioned"} <= offered
        assert not work.here or "local" in offered
    else:
        assert offered == {"partitioned"}


@given(works)
def test_every_cost_is_a_positive_number_of_seconds(work: Work) -> None:
    assert all(0.0 < cost < float("inf") for cost in seconds(work).values())


@given(works, st.floats(1.0, 1e3))
def test_more_values_never_cost_less(work: Work, factor: float) -> None:
    before, after = seconds(work), seconds(replace(work, nonzeros=factor * work.nonzeros))
    assert before.keys() == after.keys()
    assert all(after[name] >= before[name] * (1 - 1e-12) for name in before)


@given(works, st.integers(2, 100))
def test_more_features_never_cost_less(work: Work, factor: int) -> None:
    before, after = seconds(work), seconds(replace(work, features=factor * work.features))
    assert after.keys() <= before.keys()
    assert all(after[name] >= before[name] * (1 - 1e-12) for name in after)


@given(works)
def test_slots_without_partitions_help_no_row(work: Work) -> None:
    """Workers are at most as many as partitions that have rows."""
    idle = replace(work, slots=work.partitions + work.slots)
    assert idle.workers == work.partitions
    assert idle.arithmetic <= work.arithmetic


@given(works)
def test_a_worker_touches_no_more_coefficients_than_there_are(work: Work) -> None:
    assert work.touched_bytes <= work.model_bytes
    assert work.touched_bytes <= 8.0 * work.outputs * work.nonzeros / work.workers + 1e-6


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("1g", 2**30),
        ("1G", 2**30),
        ("512m", 2**29),
        ("2048k", 2**21),
        ("3t", 3 * 2**40),
        ("1p", 2**50),
        ("10gb", 10 * 2**30),
        (" 2 g ", 2**31),
        ("1024", 2**30),  # MiB, as Spark reads spark.driver.memory
    ],
)
def test_memory_is_read_as_spark_reads_it(setting: str, expected: float) -> None:
    assert memory_bytes(setting) == expected


@pytest.mark.parametrize("setting", ["", "much", "1.5g", "-1g"])
def test_memory_that_cannot_be_read_is_taken_for_sparks_default(setting: str) -> None:
    assert memory_bytes(setting) == 2**30
