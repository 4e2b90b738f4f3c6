"""The digest of rows tells other rows, and only other rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import random_rows
from test_statistics import Measure, dense, mixed, stored_sparse

every_form = pytest.mark.parametrize("measure", [dense, stored_sparse, mixed])
ROWS, FEATURES = 12, 5
row = st.integers(0, ROWS - 1)
feature = st.integers(0, FEATURES - 1)
number = st.floats(-1e100, 1e100)
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def some_rows(dtype: type = np.float64):
    rng = np.random.default_rng(37)
    X = random_rows(rng, ROWS, FEATURES, density=0.7).astype(dtype)
    return X, rng.integers(0, 2, ROWS).astype(float), rng.uniform(0.5, 2.0, ROWS)


def digest(measure: Measure, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> int:
    return measure(X, y, weights).digest


@every_form
@dtypes
def test_order_of_rows_and_cut_of_batches_do_not_matter(measure: Measure, dtype: type) -> None:
    X, y, weights = some_rows(dtype)
    expected = digest(measure, X, y, weights)
    assert 0 <= expected < 2**64
    order = np.random.default_rng(1).permutation(ROWS)
    if measure is not mixed:
        assert digest(measure, X[order], y[order], weights[order]) == expected
    parts = [measure(X[i::3], y[i::3], weights[i::3]) for i in range(3)]
    assert parts[2].merge(parts[0]).merge(parts[1]).digest == expected


@every_form
@given(i=row, j=feature, value=number)
def test_any_other_value_changes_it(measure: Measure, i: int, j: int, value: float) -> None:
    X, y, weights = some_rows()
    before = digest(measure, X, y, weights)
    # minus zero equals zero, and sparse rows store neither
    assume(value != X[i, j])
    X[i, j] = value
    assert digest(measure, X, y, weights) != before


@every_form
@given(i=row, value=number)
def test_any_other_label_or_weight_changes_it(measure: Measure, i: int, value: float) -> None:
    X, y, weights = some_rows()
    before = digest(measure, X, y, weights)
    for changed in (y, weights):
        kept = changed[i]
        assume(value != kept)
        changed[i] = value
        assert digest(measure, X, y, weights) != before
        changed[i] = kept


@every_form
@given(i=row, j=feature, k=feature)
def test_two_values_of_a_row_that_change_places_change_it(measure: Measure, i: int, j: int, k: int) -> None:
    X, y, weights = some_rows()
    assume(X[i, j] != X[i, k])
    before = digest(measure, X, y, weights)
    X[i, [j, k]] = X[i, [k, j]]
    assert digest(measure, X, y, weights) != before


@every_form
@given(i=row, k=row, j=feature)
def test_two_values_of_a_column_that_change_places_change_it(measure: Measure, i: int, k: int, j: int) -> None:
    X, y, weights = some_rows()
    assume(X[i, j] != X[k, j])
    before = digest(measure, X, y, weights)
    X[[i, k], j] = X[[k, i], j]
    assert digest(measure, X, y, weights) != before


@every_form
@given(i=row)
def test_a_row_more_or_less_changes_it(measure: Measure, i: int) -> None:
    X, y, weights = some_rows()
    before = digest(measure, X, y, weights)
    without = [np.delete(a, i, axis=0) for a in (X, y, weights)]
    again = [np.concatenate([a, a[i : i + 1]]) for a in (X, y, weights)]
    assert digest(measure, *without) != before
    assert digest(measure, *again) != before


@every_form
def test_label_and_weight_are_told_apart(measure: Measure) -> None:
    X, y, weights = some_rows()
    assert digest(measure, X, y + 1.0, weights) != digest(measure, X, weights, y + 1.0)
