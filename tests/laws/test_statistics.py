"""Statistics of parts, merged in any order, are numpy's of the whole."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
from oracles import random_rows, weighted_std
from scipy import sparse

from sparkdml.data.moments import SparseMoments, dense_statistics
from sparkdml.data.statistics import Statistics

Measure = Callable[[np.ndarray, np.ndarray, np.ndarray], Statistics]


def dense(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Statistics:
    return dense_statistics(np.ascontiguousarray(X), y, weights)


def stored_sparse(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Statistics:
    """Non-zeros only, added in two batches."""
    moments = SparseMoments(X.shape[1])
    for part in (slice(0, len(y) // 3), slice(len(y) // 3, None)):
        csr = sparse.csr_array(X[part])
        indptr, indices = csr.indptr.astype(np.int64), csr.indices.astype(np.int32)
        moments.add(indptr, indices, csr.data, y[part], weights[part])
    return moments.result()


def mixed(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Statistics:
    half = len(y) // 2
    ahead, behind = slice(0, half), slice(half, None)
    return dense(X[ahead], y[ahead], weights[ahead]).merge(stored_sparse(X[behind], y[behind], weights[behind]))


every_form = pytest.mark.parametrize("measure", [dense, stored_sparse, mixed])


def rows(count: int = 200):
    rng = np.random.default_rng(29)
    X = random_rows(rng, count, 7) * [1.0, 1e-3, 1e4, 1.0, 1.0, 1.0, 1.0]
    X[:, 3] = 0.0
    X[:, 4] = 3.7
    return X, rng.integers(0, 4, count).astype(float), rng.uniform(0.1, 3.0, count)


def merged(parts: list[Statistics]) -> Statistics:
    total = Statistics(parts[0].features)
    for part in parts:
        total = total.merge(copy.deepcopy(part))
    return total


def assert_describes(found: Statistics, X: np.ndarray, weights: np.ndarray) -> None:
    assert found.rows == len(X)
    assert found.weight_sum == pytest.approx(weights.sum(), rel=1e-13)
    assert found.weight_square_sum == pytest.approx(weights @ weights, rel=1e-13)
    mean = np.average(X, axis=0, weights=weights)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(found.std, weighted_std(X, weights), rtol=1e-10)
    np.testing.assert_array_equal(found.nonzeros, np.count_nonzero(X, axis=0))


@every_form
def test_one_pass_is_numpys_two_passes(measure: Measure) -> None:
    X, y, weights = rows()
    assert_describes(measure(X, y, weights), X, weights)


@every_form
def test_float32_values_are_summed_in_float64(measure: Measure) -> None:
    X, y, weights = rows()
    X = X.astype(np.float32)
    assert_describes(measure(X, y, weights), X.astype(np.float64), weights)


@every_form
@pytest.mark.parametrize("size", [1, 2, 7, 199])
def test_parts_of_any_size_merge_to_the_whole(measure: Measure, size: int) -> None:
    X, y, weights = rows()
    parts = [measure(X[at : at + size], y[at : at + size], weights[at : at + size]) for at in range(0, len(X), size)]
    assert_describes(merged(parts), X, weights)


def test_the_order_of_merging_does_not_matter() -> None:
    X, y, weights = rows()
    parts = [(dense, stored_sparse)[i % 2](X[i::9], y[i::9], weights[i::9]) for i in range(9)]
    rng = np.random.default_rng(0)
    for _ in range(5):
        total = merged([parts[i] for i in rng.permutation(9)])
        assert_describes(total, X, weights)
    as_tree = merged(parts[:4]).merge(merged(parts[4:]))
    assert_describes(as_tree, X, weights)


def test_empty_parts_change_nothing() -> None:
    X, y, weights = rows()
    whole = dense(X, y, weights)
    around = Statistics(7).merge(copy.deepcopy(whole)).merge(Statistics(7))
    assert_describes(around, X, weights)
    assert around.digest == whole.digest
    assert Statistics(0).merge(copy.deepcopy(whole)).features == 7


def test_histograms_of_unequal_length_add_up() -> None:
    X, y, weights = rows(6)
    a, b = dense(X[:3], y[:3], weights[:3]), dense(X[3:], y[3:], weights[3:])
    a.histogram, b.histogram = np.array([1.0, 2.0]), np.array([0.5, 0.0, 4.0])
    assert copy.deepcopy(a).merge(copy.deepcopy(b)).histogram.tolist() == [1.5, 2.0, 4.0]
    assert copy.deepcopy(b).merge(copy.deepcopy(a)).histogram.tolist() == [1.5, 2.0, 4.0]


@every_form
@pytest.mark.parametrize("value", [0.0, 0.1, -3.3, 1e9 + 0.1, 1e-30])
@pytest.mark.parametrize("weight", [0.1, 1.0, "mixed"])
def test_constant_columns_have_a_variance_of_exactly_0(measure: Measure, value: float, weight: float | str) -> None:
    count = 97
    X = np.full((count, 2), value)
    X[:, 1] = np.arange(count)
    y = np.zeros(count)
    weights = np.full(count, weight) if weight != "mixed" else np.linspace(0.1, 1.7, count)
    whole = measure(X, y, weights)
    sizes = [1, 1, 13, 40, 42]
    at = np.cumsum([0, *sizes])
    parts = [measure(X[a:b], y[a:b], weights[a:b]) for a, b in zip(at, at[1:], strict=False)]
    for found in (whole, merged(parts), merged(parts[::-1])):
        assert found.std[0] == 0.0
        assert found.mean[0] == value
        assert found.std[1] > 0.0


@every_form
def test_unit_variance_survives_an_offset_of_1e9(measure: Measure) -> None:
    rng = np.random.default_rng(31)
    X = 1e9 + rng.standard_normal((3000, 2))
    y, weights = np.zeros(3000), rng.uniform(0.5, 1.5, 3000)
    parts = [measure(X[i::5], y[i::5], weights[i::5]) for i in range(5)]
    expected = weighted_std(X, weights)
    np.testing.assert_allclose(measure(X, y, weights).std, expected, rtol=1e-6)
    np.testing.assert_allclose(merged(parts).std, expected, rtol=1e-6)


@every_form
def test_weight_2_counts_a_row_twice_in_mean_and_spread(measure: Measure) -> None:
    X, y, _ = rows(50)
    twice = measure(np.vstack([X, X[:20]]), np.append(y, y[:20]), np.ones(70))
    weights = np.repeat([2.0, 1.0], [20, 30])
    once = measure(X, y, weights)
    np.testing.assert_allclose(once.mean, twice.mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(once.m2, twice.m2, rtol=1e-12, atol=1e-14)


@every_form
def test_a_single_row_has_no_spread(measure: Measure) -> None:
    if measure is mixed:
        measure = dense
    found = measure(np.array([[3.0, 0.0]]), np.zeros(1), np.array([0.1]))
    assert found.std.tolist() == [0.0, 0.0]
    assert found.mean.tolist() == [3.0, 0.0]
