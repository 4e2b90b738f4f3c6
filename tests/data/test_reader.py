"""What the reader makes of good batches."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from batches import COLUMNS, WEIGHTED, list_batch, matrix, sparse_vector, vector_batch
from oracles import random_rows

from sparkdml.data.reader import BatchReader, Columns
from sparkdml.data.rows import DenseRows, SparseRows

NAN = float("nan")


def read(batch: pa.RecordBatch, columns: Columns = COLUMNS):
    return BatchReader(columns, 0).read(batch)


def some_matrix(rows: int = 9, features: int = 5) -> np.ndarray:
    return random_rows(np.random.default_rng(rows), rows, features)


def test_lists_are_dense_rows() -> None:
    X = some_matrix()
    rows = read(list_batch(X.tolist(), range(9)))
    assert isinstance(rows, DenseRows)
    np.testing.assert_array_equal(matrix(rows), X)
    np.testing.assert_array_equal(rows.labels, np.arange(9.0))
    np.testing.assert_array_equal(rows.weights, np.ones(9))


def test_vectors_of_one_form_keep_it() -> None:
    X = some_matrix()
    dense = read(vector_batch(X.tolist()))
    sparse = read(vector_batch([sparse_vector(row) for row in X]))
    assert isinstance(dense, DenseRows)
    assert isinstance(sparse, SparseRows)
    np.testing.assert_array_equal(matrix(dense), X)
    np.testing.assert_array_equal(matrix(sparse), X)
    assert len(sparse.values) == np.count_nonzero(X)


@pytest.mark.parametrize("first_dense", [0, 1, 8])
def test_dense_rows_among_sparse_ones_become_sparse_without_zeros(first_dense: int) -> None:
    X = some_matrix()
    vectors = [sparse_vector(row) for row in X]
    vectors[first_dense] = X[first_dense].tolist()
    rows = read(vector_batch(vectors))
    assert isinstance(rows, SparseRows)
    np.testing.assert_array_equal(matrix(rows), X)
    assert len(rows.values) == np.count_nonzero(X)


def test_one_dense_row_does_not_spread_the_others_out() -> None:
    width, count = 20_000, 500
    vectors = [(width, [i], [1.0]) for i in range(count)]
    rows = read(vector_batch([[0.0] * width, *vectors]))
    assert isinstance(rows, SparseRows)
    assert rows.nbytes < 100 * count


def test_explicit_zeros_of_sparse_rows_are_zeros() -> None:
    rows = read(vector_batch([(4, [0, 2], [0.0, 3.0]), (4, [1], [0.0]), (4, [], [])]))
    np.testing.assert_array_equal(matrix(rows), [[0, 0, 3, 0], [0, 0, 0, 0], [0, 0, 0, 0]])


@pytest.mark.parametrize("form", ["lists", "dense", "sparse", "mixed"])
def test_a_slice_of_a_batch_is_those_rows_and_no_others(form: str) -> None:
    """What lies outside the slice is not even looked at: it would be refused."""
    X = some_matrix()
    garbage = [[NAN] * 7, [NAN]]
    vectors = [
        sparse_vector(row) if form == "sparse" or (form == "mixed" and i % 2) else row.tolist()
        for i, row in enumerate(X)
    ]
    all_rows = [*garbage, *vectors, *garbage]
    labels = [-1.0, 0.5, *range(9), NAN, -7.0]
    weights = [-1.0, NAN, *[2.0] * 9, -1.0, -1.0]
    make = list_batch if form == "lists" else vector_batch
    rows = read(make(all_rows, labels, weights).slice(2, 9), WEIGHTED)
    np.testing.assert_array_equal(matrix(rows), X)
    np.testing.assert_array_equal(rows.labels, np.arange(9.0))
    np.testing.assert_array_equal(rows.weights, np.full(9, 2.0))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_rows_of_weight_0_are_left_out(sparse: bool) -> None:
    X = some_matrix()
    vectors = [sparse_vector(row) if sparse else row.tolist() for row in X]
    weights = np.array([0, 1, 0, 2, 0.5, 0, 0, 3, 0.0])
    rows = read(vector_batch(vectors, range(9), weights.tolist()), WEIGHTED)
    np.testing.assert_array_equal(matrix(rows), X[weights > 0])
    np.testing.assert_array_equal(rows.labels, np.flatnonzero(weights))
    np.testing.assert_array_equal(rows.weights, weights[weights > 0])


def test_batches_without_rows_or_weight_give_nothing() -> None:
    assert read(list_batch([], [])) is None
    assert read(list_batch([[1.0]], [0], [0.0]), WEIGHTED) is None


def test_any_finite_label_is_allowed_where_labels_are_not_classes() -> None:
    labels = [-2.5, 0.0, 1e300]
    rows = read(list_batch([[1.0]] * 3, labels), Columns("x", "y", classes=False))
    assert rows.labels.tolist() == labels


@pytest.mark.parametrize(
    ("element", "stored"),
    [
        (pa.int8(), np.float32),
        (pa.uint8(), np.float32),
        (pa.int16(), np.float32),
        (pa.uint16(), np.float32),
        (pa.int32(), np.float64),
        (pa.int64(), np.float64),
        (pa.float32(), np.float32),
        (pa.float64(), np.float64),
    ],
    ids=str,
)
def test_numbers_of_every_type_keep_their_value(element: pa.DataType, stored: type) -> None:
    values = [[0, 1], [127, 3]]
    if pa.types.is_integer(element):
        values[1][0] = min(2 ** (element.bit_width - 1) - 1, 2**53)
    rows = read(list_batch(values, [0, 1], element=element))
    assert rows.values.dtype == stored
    np.testing.assert_array_equal(rows.values, np.array(values, np.float64))


def test_decimals_are_read_as_numbers() -> None:
    decimal = pa.decimal128(10, 2)
    batch = pa.RecordBatch.from_pydict(
        {
            "values": pa.array([[Decimal("1.25"), Decimal("-3.50")]], pa.list_(decimal)),
            "label": pa.array([Decimal("2.00")], decimal),
            "weight": pa.array([Decimal("0.50")], decimal),
        }
    )
    rows = read(batch, WEIGHTED)
    np.testing.assert_array_equal(matrix(rows), [[1.25, -3.5]])
    assert (rows.labels[0], rows.weights[0]) == (2.0, 0.5)


def test_huge_finite_values_whose_sum_overflows_are_no_error() -> None:
    rows = read(list_batch([[1e308, 1e308], [1e308, -1e308]], [0, 1]))
    assert matrix(rows).max() == 1e308
