"""Tables: pushes are steps of the rules, lazily or not; rows are found again; functions are numpy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdml.optim.steps import STEPS, Proximal
from sparkdml.server import functions
from sparkdml.server.keys import KeyCache, Keys, KnownDigests
from sparkdml.server.places import Places
from sparkdml.server.rules import rule
from sparkdml.server.specs import Budget, Range, TableSpec
from sparkdml.server.tables import Table, table
from sparkdml.server.wire.errors import RefusedCallError

RNG = np.random.default_rng(7)


def made(
    kind: str = "dense", dtype: str = "<f8", columns: int = 0, rows: int = 12, start: int = 0, **how: object
) -> Table:
    spec = TableSpec("t", kind, dtype, columns, start, start + rows, {"name": "add", **how})
    return table(spec, Budget(2**20))


@given(st.lists(st.lists(st.integers(0, 2**62 - 1) | st.integers(0, 40), unique=True, max_size=30), max_size=8))
def test_places_are_those_of_a_dict(batches: list[list[int]]) -> None:
    places, oracle = Places(), {}
    for batch in batches:
        keys = np.array(sorted(batch), np.int64)
        np.testing.assert_array_equal(places.find(keys), [oracle.get(key, -1) for key in keys.tolist()])
        for key in keys.tolist():
            oracle.setdefault(key, len(oracle))
        np.testing.assert_array_equal(places.add(keys), [oracle[key] for key in keys.tolist()])
    np.testing.assert_array_equal(places.keys(), list(oracle))


@pytest.mark.parametrize("kind", ["dense", "rows"])
@pytest.mark.parametrize("columns", [0, 3])
@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_added_updates_are_sums(kind: str, columns: int, dtype: str) -> None:
    one = made(kind, dtype, columns, rows=20, start=100)
    oracle = np.zeros((20, columns) if columns else 20, dtype)
    for size in (1, 5, 20, 0):
        keys = np.sort(RNG.choice(20, size, replace=False))
        update = RNG.normal(size=(size, *oracle.shape[1:])).astype(dtype)
        one.check(keys + 100, update)
        one.push(keys + 100, update)
        oracle[keys] += update
    everything = np.arange(100, 120)
    np.testing.assert_array_equal(one.pull(everything), oracle)
    assert one.pull(everything).dtype == np.dtype(dtype)
    if kind == "dense":
        one.push(Range(105, 110), oracle[5:10])
        np.testing.assert_array_equal(
            one.pull(Range(104, 111)), np.concatenate([oracle[4:5], 2 * oracle[5:10], oracle[10:11]])
        )


@pytest.mark.parametrize("columns", [0, 2])
@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_push_of_all_rows_is_a_step(name: str, columns: int) -> None:
    one = made(columns=columns, name=name, step_size=0.1, l1=0.01, l2=0.02)
    step, size = STEPS[name](), 12 * max(columns, 1)
    prox = Proximal(np.full(size, 0.02), np.full(size, 0.01), 0.0, np.zeros(1), 0)
    point, slots = np.zeros(size), step.slots(size)
    for count in range(1, 6):
        gradient = RNG.normal(size=(12, columns) if columns else 12)
        rate = 0.1 if count < 4 else 0.05
        one.push(Range(0, 12), gradient, None if count < 4 else 0.05)
        point, slots = step.update(point, gradient.reshape(-1), slots, rate, count, prox)
        np.testing.assert_allclose(one.pull(Range(0, 12)).reshape(-1), point, rtol=1e-12)


@pytest.mark.parametrize("kind", ["dense", "rows"])
@pytest.mark.parametrize("name", ["sgd", "adagrad", "ftrl"])
def test_rows_that_were_not_named_catch_up_exactly(name: str, kind: str) -> None:
    """As if every push had been of all rows, with gradient 0 where it was not: these rules have no moving averages."""
    lazy = made(kind, rows=12, columns=2, name=name, step_size=0.2, l1=0.03, l2=0.1)
    eager = made(rows=12, columns=2, name=name, step_size=0.2, l1=0.03, l2=0.1)
    first = RNG.normal(size=(12, 2))
    for one in (lazy, eager):
        one.push(np.arange(12), first)
    for number in range(15):
        keys = np.sort(RNG.choice(12, 3, replace=False))
        update = RNG.normal(size=(3, 2))
        whole = np.zeros((12, 2))
        whole[keys] = update
        lazy.push(keys, update)
        eager.push(Range(0, 12), whole)
        if number % 5 == 0:
            some = np.sort(RNG.choice(12, 4, replace=False))
            np.testing.assert_allclose(lazy.pull(some), eager.pull(some), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(lazy.pull(np.arange(12)), eager.pull(np.arange(12)), rtol=1e-9, atol=1e-12)


def test_rows_that_were_never_pushed_to_are_zeros_and_take_no_memory() -> None:
    one = made("rows", columns=4, rows=2**40)
    assert not one.pull(np.array([3, 2**39])).any()
    assert (one.rows, one.budget.used) == (0, 0)
    one.push(np.array([5, 2**39]), np.ones((2, 4)))
    assert (one.rows, one.budget.used) == (2, 64)
    np.testing.assert_array_equal(one.named(Range(0, 2**40)), [5, 2**39])


@pytest.mark.parametrize("kind", ["dense", "rows"])
def test_what_does_not_fit_is_refused_and_changes_nothing(kind: str) -> None:
    one = made(kind, rows=10, start=10, columns=2)
    for selection, update, kind_of in (
        (np.array([9, 12]), np.ones((2, 2)), "outside"),
        (np.array([12, 20]), np.ones((2, 2)), "outside"),
        (np.array([12]), np.ones((2, 2)), "shape"),
        (np.array([12]), np.ones(2), "shape"),
        (np.array([12]), np.ones((1, 2), np.int64), "shape"),
    ):
        with pytest.raises(RefusedCallError) as refused:
            one.check(selection, update)
        assert refused.value.kind == kind_of
    for rows in (Range(9, 11), Range(19, 21), Range(15, 12)):
        with pytest.raises(RefusedCallError):
            one.check(rows)
    assert not one.pull(np.arange(10, 20)).any()


def test_memory_has_a_bound() -> None:
    with pytest.raises(RefusedCallError, match="more shards"):
        made(rows=2**17 + 1)
    one = made("rows", rows=2**40, columns=2**10, name="adam")  # 24 kB a row
    one.check(np.arange(42), np.ones((42, 2**10)))
    with pytest.raises(RefusedCallError, match="more shards"):
        one.check(np.arange(43), np.ones((43, 2**10)))


@pytest.mark.parametrize("kind", ["dense", "rows"])
def test_a_table_comes_back_from_its_arrays(kind: str) -> None:
    how = {"name": "adam", "step_size": 0.1, "l2": 0.1}
    one, other = made(kind, rows=30, columns=2, **how), made(kind, rows=30, columns=2, **how)
    for _ in range(4):
        one.push(np.sort(RNG.choice(30, 7, replace=False)), RNG.normal(size=(7, 2)))
    other.load(one.arrays())
    keys, update = np.array([0, 3, 29]), RNG.normal(size=(3, 2))
    for each in (one, other):
        each.push(keys, update)
    np.testing.assert_array_equal(one.pull(np.arange(30)), other.pull(np.arange(30)))


def test_rules_name_what_is_wrong() -> None:
    for wrong, told in (
        ({"name": "sdg"}, "take one of add, sgd"),
        ({"name": "adam", "beta3": 1.0}, "beta3"),
        ({"name": "sgd", "step_size": 0.0}, "step_size=0.0"),
        ({"name": "add", "l1": 1.0}, "no options"),
    ):
        with pytest.raises(ValueError, match=told):
            rule(**wrong)  # type: ignore[arg-type]


# functions


def pair(columns: int, dtype: str) -> tuple[Table, Table, np.ndarray, np.ndarray]:
    x, y = (
        made(dtype=dtype, columns=columns, rows=50_000 if not columns else 40),
        made(dtype=dtype, columns=columns, rows=50_000 if not columns else 40),
    )
    values = []
    for one in (x, y):
        one.assign(Range(0, one.rows), RNG.normal(size=(one.rows, columns) if columns else one.rows))
        values.append(one.pull(Range(0, one.rows)).astype(np.float64))
    return x, y, values[0], values[1]


@pytest.mark.parametrize(("columns", "dtype"), [(0, "<f8"), (0, "<f4"), (3, "<f8")])
def test_functions_are_those_of_numpy(columns: int, dtype: str) -> None:
    x, y, a, b = pair(columns, dtype)
    close = 1e-12 if dtype == "<f8" else 1e-6
    assert functions.dot(x, y)[0]["value"] == pytest.approx(float((a * b).sum()), rel=1e-9)
    assert functions.norm(x, 1.0)[0]["value"] == pytest.approx(float(np.abs(a).sum()), rel=1e-12)
    assert functions.norm(x, 2.0)[0]["value"] == pytest.approx(float((a * a).sum()), rel=1e-12)
    assert functions.norm(x, math.inf)[0]["value"] == np.abs(a).max()
    everything = Range(0, x.rows)
    functions.axpy(y, x, -0.5)
    np.testing.assert_allclose(y.pull(everything), b - 0.5 * a, rtol=close, atol=close)
    functions.scale(x, 3.0)
    np.testing.assert_allclose(x.pull(everything), 3.0 * a, rtol=close)
    functions.proximal(x, 0.5, 1.0, 2.0)
    np.testing.assert_allclose(
        x.pull(everything), np.sign(a) * np.maximum(np.abs(3 * a) - 0.5, 0.0) / 2.0, rtol=1e-5, atol=close
    )


def test_a_step_takes_the_summed_gradient_and_leaves_zeros() -> None:
    x, other, gradient = made(name="adagrad", step_size=0.1), made(name="adagrad", step_size=0.1), made()
    slope = RNG.normal(size=12)
    for part in (slope - 1.0, np.ones(12)):
        gradient.push(Range(0, 12), part)
    functions.step(x, gradient, 0.0)
    other.push(Range(0, 12), slope)
    np.testing.assert_allclose(x.pull(Range(0, 12)), other.pull(Range(0, 12)), rtol=1e-9)
    assert not gradient.pull(Range(0, 12)).any()


@pytest.mark.parametrize("kind", ["dense", "rows"])
@pytest.mark.parametrize("k", [0, 1, 5, 1000])
def test_top_k_is_the_head_of_a_sort(kind: str, k: int) -> None:
    one = made(kind, rows=100, columns=2)
    values = RNG.integers(-3, 4, size=(60, 2)).astype(float)  # with ties
    keys = np.sort(RNG.choice(100, 60, replace=False))
    one.push(keys, values)
    order = sorted(zip(-(values**2).sum(axis=1), keys, strict=True))
    _, (found, rows) = functions.top_k(one, k)
    named = [key for size, key in order if kind == "rows" or size < 0.0]
    expected = named + sorted(set(range(100)) - set(named)) if kind == "dense" else named
    np.testing.assert_array_equal(found, expected[:k])
    np.testing.assert_array_equal(rows, one.pull(np.sort(found))[np.argsort(np.argsort(found))])


def test_functions_of_two_tables_want_them_alike() -> None:
    for other in (made(rows=11), made(columns=1), made(start=1), made("rows")):
        with pytest.raises(RefusedCallError):
            functions.dot(made(), other)
    one = made()
    with pytest.raises(RefusedCallError, match="its own gradient"):
        functions.step(one, one, 0.0)


# keys


def test_keys_are_checked_and_cut_by_bounds() -> None:
    keys = Keys(np.array([0, 3, 7, 9]))
    bounds = np.array([0, 3, 3, 8, 20])
    assert [(n, at, part.array.tolist()) for n, at, part in keys.split(bounds)] == [
        (0, slice(0, 1), [0]),
        (2, slice(1, 3), [3, 7]),
        (3, slice(3, 4), [9]),
    ]
    assert keys.split(bounds)[0][2] is keys.split(bounds)[0][2]  # digests are computed once
    for wrong in ([3, 3], [4, 2], [-1], [[1]], [1.5]):
        with pytest.raises(ValueError, match="keys"):
            Keys(np.array(wrong))


def test_remembered_keys_take_bounded_memory() -> None:
    cache = KeyCache(most_bytes=3 * 80)
    kept = [Keys(np.arange(10) + 10 * number) for number in range(5)]
    for one in kept[:3]:
        cache.add(one.array)
    assert cache.find(kept[0].digest) is not None  # now the one used last
    cache.add(kept[3].array)
    assert [cache.find(one.digest) is not None for one in kept] == [True, False, True, True, False]
    assert cache.bytes == 240
    cache.add(np.arange(1000))  # too large to be remembered
    assert cache.bytes == 240
    known = KnownDigests(2)
    for digest in "abc":
        known.add(digest)
    assert ["a" in known, "b" in known, "c" in known] == [False, True, True]


@pytest.mark.parametrize("lazy", [False, True])
def test_pulled_values_stay_as_they_are_whatever_happens_to_the_table(lazy: bool) -> None:
    one, everything = made(name="sgd", l2=0.1) if lazy else made(), Range(0, 12)
    one.push(everything, np.ones(12))
    changes = [
        lambda: one.push(everything, np.ones(12)),
        lambda: one.push(np.array([3]), np.ones(1)),
        lambda: one.pull(everything),  # brings rows up to date
        lambda: one.assign(Range(2, 4), np.ones(2)),
        lambda: functions.scale(one, 2.0),
        lambda: functions.axpy(one, one, 2.0),
        lambda: functions.proximal(one, 1.0, 1.0, 0.0),
    ]
    for change in changes:
        found, part = one.pull(everything), one.pull(Range(2, 5))
        before = found.copy()
        change()
        np.testing.assert_array_equal(found, before)
        np.testing.assert_array_equal(part, before[2:5])
        assert not found.flags.writeable


def test_values_that_nobody_has_are_changed_in_place() -> None:
    one, everything = made(), Range(0, 12)
    place = one.values.__array_interface__["data"]
    one.pull(everything)
    one.push(everything, np.ones(12))
    assert one.values.__array_interface__["data"] == place
