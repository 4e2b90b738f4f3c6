"""Block files: bounded in bytes, as narrow as loses nothing, dense or sparse by all of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from batches import dense_rows, matrix, sparse_rows, stacked
from hypothesis import given
from hypothesis import strategies as st
from oracles import random_rows

from sparkdml.data import writer as module
from sparkdml.data.block import Block, DenseBlock, SparseBlock
from sparkdml.data.open_blocks import open_handle
from sparkdml.data.rows import Rows
from sparkdml.data.statistics import Statistics
from sparkdml.data.writer import PartitionWriter

CAP = 8192


@pytest.fixture
def small_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BLOCK_BYTES", CAP)


def write(root: Path, batches: Sequence[Rows]) -> list[Block]:
    """The blocks of a partition of these batches, mapped from their files."""
    with PartitionWriter("law", 0, [str(root)]) as writer:
        for rows in batches:
            writer.add(rows, float(np.count_nonzero(rows.values)))
        handle = writer.finish(Statistics(batches[0].features))
    return list(open_handle(handle))


def assert_capped(blocks: Sequence[Block]) -> None:
    for block in blocks:
        assert block.nbytes <= CAP or block.rows == 1, f"{block.rows} rows, {block.nbytes} bytes"


def assert_holds(blocks: Sequence[Block], *matrices: np.ndarray) -> None:
    X, y, weights = stacked(blocks)
    np.testing.assert_array_equal(X, np.vstack(matrices))
    np.testing.assert_array_equal(y, np.concatenate([np.arange(len(m)) for m in matrices]))
    np.testing.assert_array_equal(weights, 1.0)


@pytest.mark.usefixtures("small_cap")
@pytest.mark.parametrize("features", [1, 50, 700, 5000])
def test_wide_dense_rows_stay_below_the_cap(tmp_path: Path, features: int) -> None:
    X = np.random.default_rng(0).standard_normal((3 * CAP // features + 5, features))
    blocks = write(tmp_path, [dense_rows(X), dense_rows(X[:3])])
    assert len(blocks) > 1
    assert_capped(blocks)
    assert_holds(blocks, X, X[:3])
    # and small ones are not cut into crumbs
    assert len(blocks) <= 2 + 4 * (X.nbytes + 3 * 8 * features) / CAP or 8 * features > CAP // 4


@pytest.mark.usefixtures("small_cap")
def test_wide_sparse_rows_stay_below_the_cap(tmp_path: Path) -> None:
    X = random_rows(np.random.default_rng(1), 300, 2000, density=0.01)
    blocks = write(tmp_path, [sparse_rows(X), sparse_rows(X[:7])])
    assert len(blocks) > 1
    assert all(isinstance(block, SparseBlock) for block in blocks)
    assert_capped(blocks)
    assert_holds(blocks, X, X[:7])


@pytest.mark.usefixtures("small_cap")
@pytest.mark.parametrize("order", [1, -1], ids=["full-first", "full-last"])
def test_skewed_sparse_rows_stay_below_the_cap(tmp_path: Path, order: int) -> None:
    """A third of the rows full, the others empty: the average describes no part of them."""
    X = np.zeros((900, 40))
    X[:320] = np.random.default_rng(2).standard_normal((320, 40))
    X = X[::order]
    blocks = write(tmp_path, [sparse_rows(X)])
    assert_capped(blocks)
    assert_holds(blocks, X)


@given(
    full=st.lists(st.tuples(st.booleans(), st.integers(1, 300)), min_size=1, max_size=6),
    features=st.sampled_from([1, 8, 100, 600]),
    sparse=st.booleans(),
    narrow=st.booleans(),
)
def test_any_skew_stays_below_the_cap(
    tmp_path_factory: pytest.TempPathFactory,
    full: list[tuple[bool, int]],
    features: int,
    sparse: bool,
    narrow: bool,
) -> None:
    X = np.vstack([np.full((count, features), float(is_full)) for is_full, count in full])
    rows = (sparse_rows if sparse else dense_rows)(X, np.float32 if narrow else np.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_BLOCK_BYTES", CAP)
        blocks = write(tmp_path_factory.mktemp("skew"), [rows])
    assert_capped(blocks)
    assert_holds(blocks, X)


@pytest.mark.usefixtures("small_cap")
def test_a_single_row_above_the_cap_is_a_block_of_its_own(tmp_path: Path) -> None:
    X = np.random.default_rng(3).standard_normal((4, CAP))
    blocks = write(tmp_path, [dense_rows(X)])
    assert [block.rows for block in blocks] == [1, 1, 1, 1]
    assert_holds(blocks, X)


LOSSLESS = [0.0, -0.0, 1.5, 2.0**24, 2.0**-149, float(np.float32(0.1)), -3.4028234663852886e38]
LOSSY = [0.1, 2.0**24 + 1, 2.0**-150, 1e39, 1.0 + 2.0**-30]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_values_that_float32_holds_are_stored_so(tmp_path: Path, sparse: bool) -> None:
    X = np.zeros((2, 30 if sparse else 7))
    X[0, :7] = LOSSLESS
    (block,) = write(tmp_path, [(sparse_rows if sparse else dense_rows)(X)])
    assert isinstance(block, SparseBlock) == sparse
    assert block.values.dtype == np.float32
    np.testing.assert_array_equal(matrix(block), X)


@pytest.mark.parametrize("value", LOSSY)
@pytest.mark.parametrize("at", [0, 1500, 2999])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_one_value_that_float32_would_change_keeps_float64(tmp_path: Path, value: float, at: int, sparse: bool) -> None:
    X = np.zeros((3000, 8))
    X[:, 1] = 1.0
    X[at, 1] = value
    (block,) = write(tmp_path, [(sparse_rows if sparse else dense_rows)(X)])
    assert block.values.dtype == np.float64
    np.testing.assert_array_equal(matrix(block), X)


def test_float32_rows_beside_float64_rows_lose_nothing(tmp_path: Path) -> None:
    narrow, wide = np.full((3, 2), 0.5), np.full((2, 2), 0.1)
    blocks = write(tmp_path, [dense_rows(narrow, np.float32), dense_rows(wide)])
    assert_holds(blocks, narrow, wide)


@pytest.mark.parametrize("order", [1, -1], ids=["dense-first", "dense-last"])
def test_one_dense_row_among_sparse_ones_leaves_the_block_sparse(tmp_path: Path, order: int) -> None:
    many = np.zeros((2000, 5000))
    many[:, 7] = 2.0
    one = np.ones((1, 5000))
    batches = [dense_rows(one), sparse_rows(many)][::order]
    (block,) = write(tmp_path, batches)
    assert isinstance(block, SparseBlock)
    assert block.nbytes < 100_000
    assert_holds([block], *[one, many][::order])


@pytest.mark.parametrize("order", [1, -1], ids=["sparse-first", "sparse-last"])
def test_one_sparse_row_among_dense_ones_leaves_the_block_dense(tmp_path: Path, order: int) -> None:
    one = np.zeros((1, 30))
    one[0, 3] = 1.0
    many = np.random.default_rng(4).standard_normal((500, 30))
    (block,) = write(tmp_path, [sparse_rows(one), dense_rows(many)][::order])
    assert isinstance(block, DenseBlock)
    assert_holds([block], *[one, many][::order])


def test_rows_of_zeros_only_are_stored(tmp_path: Path) -> None:
    for rows in (dense_rows(np.zeros((5, 9))), sparse_rows(np.zeros((5, 9)))):
        assert_holds(write(tmp_path, [rows]), np.zeros((5, 9)))


def test_offsets_are_64_bits_wide_on_disk_and_beyond_2_to_the_31(tmp_path: Path) -> None:
    (block,) = write(tmp_path, [sparse_rows(np.eye(50))])
    assert block.indptr.dtype == np.int64
    joined = module._join_indptr([np.array([0, 2**31 - 1]), np.array([0, 1, 2**31])])
    assert joined.tolist() == [0, 2**31 - 1, 2**31, 2**32 - 1]
    assert joined.dtype == np.int64
