"""Every stored format multiplies as the matrix that it stands for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from oracles import random_rows
from scipy import sparse

from sparkdml.data.block import Block, SparseBlock

every_format = pytest.mark.parametrize("build", BLOCK_FORMATS.values(), ids=BLOCK_FORMATS.keys())
SHAPES = [(1, 1), (1, 6), (7, 1), (7, 5), (3, 40), (50, 17), (64, 8)]
OUTPUTS = [1, 2, 5, 8, 10]


def stored(build, X: np.ndarray) -> Block:
    return build(X, np.zeros(len(X)), np.ones(len(X)))


def padded(block: Block, matrix: np.ndarray) -> np.ndarray:
    """``matrix`` (features, K) with the zero columns that a block asks for."""
    result = np.zeros((block.features, block.lanes(matrix.shape[1])))
    result[:, : matrix.shape[1]] = matrix
    return result


def margins(block: Block, start: int, stop: int, coefficients: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
    out = np.full((stop - start, coefficients.shape[1]), np.nan)
    block.margins(start, stop, padded(block, coefficients), intercepts, out)
    return out


@every_format
@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_margins_are_the_matrix_product(build, shape: tuple[int, int], outputs: int) -> None:
    rng = np.random.default_rng(outputs)
    X = random_rows(rng, *shape)
    coefficients, intercepts = rng.standard_normal((shape[1], outputs)), rng.standard_normal(outputs)
    found = margins(stored(build, X), 0, shape[0], coefficients, intercepts)
    np.testing.assert_allclose(found, X @ coefficients + intercepts, rtol=1e-12, atol=1e-13)


@every_format
@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_accumulate_adds_the_transposed_product(build, shape: tuple[int, int], outputs: int) -> None:
    rng = np.random.default_rng(outputs)
    X = random_rows(rng, *shape)
    slopes = rng.standard_normal((shape[0], outputs))
    earlier = rng.standard_normal((shape[1], outputs))
    block = stored(build, X)
    gradient = padded(block, earlier)
    block.accumulate(0, shape[0], slopes, gradient)
    np.testing.assert_allclose(gradient[:, :outputs], earlier + X.T @ slopes, rtol=1e-12, atol=1e-13)
    assert not gradient[:, outputs:].any()


@every_format
@pytest.mark.parametrize("outputs", [1, 3])
def test_any_slice_of_rows_is_that_slice_of_the_matrix(build, outputs: int) -> None:
    rng = np.random.default_rng(5)
    X = random_rows(rng, 11, 6)
    coefficients, intercepts = rng.standard_normal((6, outputs)), rng.standard_normal(outputs)
    block = stored(build, X)
    for start in range(11):
        for stop in range(start, 12):
            out = margins(block, start, stop, coefficients, intercepts)
            np.testing.assert_allclose(out, X[start:stop] @ coefficients + intercepts, atol=1e-13)
            gradient = padded(block, np.zeros((6, outputs)))
            block.accumulate(start, stop, out, gradient)
            expected = X[start:stop].T @ out
            np.testing.assert_allclose(gradient[:, :outputs], expected, atol=1e-12)


@every_format
@pytest.mark.parametrize("outputs", [1, 5])
def test_rows_without_values_have_the_intercept_as_margin(build, outputs: int) -> None:
    block = stored(build, np.zeros((9, 4)))
    intercepts = np.arange(1.0, outputs + 1)
    found = margins(block, 0, 9, np.ones((4, outputs)), intercepts)
    np.testing.assert_array_equal(found, np.tile(intercepts, (9, 1)))
    gradient = padded(block, np.zeros((4, outputs)))
    block.accumulate(0, 9, np.ones((9, outputs)), gradient)
    assert not gradient.any()


@every_format
def test_products_are_float64_whatever_is_stored(build) -> None:
    """A sum in float32 would lose these ones beside 2^25."""
    X = np.full((4, 65), 1.0)
    X[:, 0] = 2.0**25
    found = margins(stored(build, X), 0, 4, np.ones((65, 1)), np.zeros(1))
    np.testing.assert_array_equal(found, 2.0**25 + 64)


@every_format
def test_nbytes_counts_what_is_stored(build) -> None:
    X = random_rows(np.random.default_rng(0), 20, 10)
    block = stored(build, X)
    itemsize = block.values.itemsize
    if isinstance(block, SparseBlock):
        assert block.nbytes == np.count_nonzero(X) * (itemsize + 4) + 8 * 21
    else:
        assert block.nbytes == X.size * itemsize


def as_matrix(block: Block) -> np.ndarray:
    """Its features, by products with the unit vectors."""
    return margins(block, 0, block.rows, np.eye(block.features), np.zeros(block.features))


def labelled(build, X: np.ndarray) -> Block:
    """With rows that can be told apart by labels, weights and offsets."""
    numbers = np.arange(len(X), dtype=np.float64)
    return replace(build(X, numbers, numbers + 0.5), offsets=-numbers)


def assert_rows(block: Block, X: np.ndarray, rows: np.ndarray) -> None:
    """``block`` has these rows of the matrix whose rows :func:`labelled` numbers."""
    np.testing.assert_array_equal(as_matrix(block), X[rows])
    np.testing.assert_array_equal(block.labels, rows)
    np.testing.assert_array_equal(block.weights, rows + 0.5)
    np.testing.assert_array_equal(block.offsets, -rows)


@every_format
@pytest.mark.parametrize("picked", [[3], [5, 0, 5, 10], [], list(range(11))], ids=str)
def test_take_gathers_rows_as_numpy_does(build, picked: list[int]) -> None:
    X = random_rows(np.random.default_rng(1), 11, 6)
    numbers = np.array(picked, np.int64)
    assert_rows(labelled(build, X).take(numbers), X, numbers)
    part = labelled(build, X).between(2, 9)
    inside = numbers[numbers < 7]
    assert_rows(part.take(inside), X, inside + 2)


@every_format
@pytest.mark.parametrize("span", [(0, 11), (4, 8), (5, 6), (3, 3)], ids=str)
def test_compact_rows_are_the_rows_over_the_features_that_occur(build, span: tuple[int, int]) -> None:
    X = random_rows(np.random.default_rng(2), 11, 40, density=0.1)
    block = labelled(build, X).between(*span)
    columns, compact = block.compact()
    inside = X[slice(*span)]
    sparse = isinstance(block, SparseBlock)
    np.testing.assert_array_equal(columns, np.flatnonzero(inside.any(axis=0)) if sparse else np.arange(40))
    assert compact.features == len(columns)
    assert_rows(compact, X[:, columns], np.arange(*span))
    if not sparse:
        assert compact.values is block.values


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_joined_blocks_follow_one_another(layout: str) -> None:
    X = random_rows(np.random.default_rng(3), 17, 6)
    halves = [labelled(BLOCK_FORMATS[f"{layout}-float{bits}"], X) for bits in (32, 64)]
    joined = halves[0].between(2, 5).joined([halves[1].between(5, 5), halves[1].between(8, 17)])
    assert_rows(joined, X, np.array([2, 3, 4, *range(8, 17)]))
    assert joined.values.dtype == np.float64


@pytest.mark.parametrize("density", [0.02, 0.6])
@every_format
def test_rows_as_float32_are_the_rows(build, density) -> None:
    X = random_rows(np.random.default_rng(3), 90, 40, density)
    block = stored(build, X)
    for start, stop in ((0, 90), (7, 31), (5, 5)):
        found = block.float32(start, stop)
        assert found.dtype == np.float32
        dense = found.toarray() if sparse.issparse(found) else found
        assert np.array_equal(dense, X[start:stop])
    assert sparse.issparse(block.float32(0, 90)) == (isinstance(block, SparseBlock) and density < 0.1)
