"""Features that rows touch, rows in terms of these alone, and the files that say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from hypothesis import given
from hypothesis import strategies as st
from oracles import random_rows

from sparkdml.data import routing
from sparkdml.data.block import SparseBlock
from sparkdml.data.ingest import _GatheredWide
from sparkdml.data.open_blocks import MissingBlocksError
from sparkdml.data.routing import NAME, localised, open_routed, routed_by, write_table
from sparkdml.data.rows import SparseRows
from sparkdml.data.store import open_described, write_described
from sparkdml.data.writer import PartitionWriter
from sparkdml.losses import Logistic, Softmax
from sparkdml.problem.gradient import loss_and_gradient

#: Numbers of features: words of a bitmap and their edges, more than a bitmap may have, more than int32 holds.
SIZES = (1, 63, 64, 65, 1000, 2**20 + 1, 2**31 - 1, 2**31 + 7, 2**40)


@st.composite
def parts_of_features(draw):
    features = draw(st.sampled_from(SIZES))
    near_the_end = st.integers(max(features - 70, 0), features - 1)
    numbers = st.one_of(st.integers(0, min(features - 1, 200)), near_the_end, st.integers(0, features - 1))
    kinds = [np.int64] if features > 2**31 else [np.int64, np.int32]
    parts = draw(st.lists(st.lists(numbers, max_size=40), min_size=1, max_size=5))
    return [np.array(part, draw(st.sampled_from(kinds))) for part in parts], features


def assert_ranks(parts: list[np.ndarray], features: int) -> None:
    columns, local = localised(parts, features)
    expected = np.unique(np.concatenate([part.astype(np.int64) for part in parts]))
    assert columns.dtype == np.int64
    np.testing.assert_array_equal(columns, expected)
    assert len(local) == len(parts)
    for found, part in zip(local, parts, strict=True):
        assert found.dtype == np.int32
        np.testing.assert_array_equal(expected[found], part)


@given(parts_of_features())
def test_ranks_are_those_among_the_distinct_numbers(case) -> None:
    assert_ranks(*case)


@given(parts_of_features())
def test_sorting_says_the_same_where_a_bitmap_would_do(case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "BITMAP_BYTES", -1)
        patch.setattr(routing, "_mark", None)  # the bitmap's first step
        assert_ranks(*case)


def test_every_number_of_a_whole_bitmap() -> None:
    assert_ranks([np.arange(4096, dtype=np.int32), np.arange(4096)[::-1]], 4096)


@pytest.mark.parametrize("features", [10, 2**40])
def test_nothing_at_all(features: int) -> None:
    for count in (0, 1, 3):
        columns, local = localised([np.zeros(0, np.int32)] * count, features)
        assert len(columns) == 0
        assert [len(part) for part in local] == [0] * count


# Blocks


def some_rows(n: int = 30, d: int = 12, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = random_rows(rng, n, d)
    X[rng.random(X.shape) < 0.7] = 0.0
    X[:, [0, 5, 11]] = 0.0  # never touched
    return X, rng.integers(0, 3, n).astype(float), rng.uniform(0.5, 2.0, n)


def assert_same_sums(blocks, routed, d: int) -> None:
    """Margins and gradients of the touched features, and of no others."""
    rng = np.random.default_rng(3)
    for loss in (Logistic(), Softmax(3)):
        coefficients, intercepts = rng.standard_normal((d, loss.outputs)), rng.standard_normal(loss.outputs)
        blocks_, routed_ = list(blocks), list(routed.blocks)
        whole = loss_and_gradient(loss, blocks_, coefficients, intercepts)
        part = loss_and_gradient(loss, routed_, coefficients[routed.columns], intercepts)
        assert part["loss"] == pytest.approx(whole["loss"], rel=1e-12)
        np.testing.assert_allclose(part["slope_sum"], whole["slope_sum"], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(part["gradient"], whole["gradient"][routed.columns], rtol=1e-12, atol=1e-12)
        untouched = np.setdiff1d(np.arange(d), routed.columns)
        assert not whole["gradient"][untouched].any()


@pytest.mark.parametrize("kind", ["sparse-float32", "sparse-float64"])
def test_margins_and_gradients_over_routed_blocks_are_those_over_stored_ones(tmp_path, kind: str) -> None:
    make = BLOCK_FORMATS[kind]
    X, y, weights = some_rows()
    y = np.minimum(y, 1.0)
    blocks = [make(X[a:b], y[a:b], weights[a:b]) for a, b in ((0, 11), (11, 12), (12, 30))]
    table = write_table(tmp_path / NAME, X.shape[1], blocks)
    routed = routed_by(table, blocks)
    np.testing.assert_array_equal(routed.columns, np.flatnonzero(X.any(axis=0)))
    assert all(block.features == len(routed.columns) for block in routed.blocks)
    assert_same_sums(blocks, routed, X.shape[1])
    # and what was left on disk says the same
    again = routed_by(open_described(tmp_path / NAME), blocks)
    assert_same_sums(blocks, again, X.shape[1])


def test_blocks_that_begin_in_the_middle_of_their_arrays(tmp_path) -> None:
    X, y, weights = some_rows()
    y = np.minimum(y, 1.0)
    block = BLOCK_FORMATS["sparse-float64"](X, y, weights)
    slices = [
        SparseBlock(y[a:b], weights[a:b], X.shape[1], block.indptr[a : b + 1], block.indices, block.values)
        for a, b in ((7, 20),)
    ]
    starts = slices[0].indptr
    plain = SparseBlock(
        y[7:20], weights[7:20], X.shape[1],
        starts - starts[0], block.indices[starts[0] : starts[-1]], block.values[starts[0] : starts[-1]],
    )  # fmt: skip
    routed = routed_by(write_table(tmp_path / NAME, X.shape[1], [plain]), [plain])
    assert_same_sums(slices, routed, X.shape[1])


@pytest.mark.parametrize("kinds", [["dense-float64"], ["dense-float32", "sparse-float64"]], ids=str)
def test_dense_blocks_touch_all(tmp_path, kinds: list[str]) -> None:
    X, y, weights = some_rows()
    y = np.minimum(y, 1.0)
    blocks = [BLOCK_FORMATS[kind](X, y, weights) for kind in kinds]
    routed = routed_by(write_table(tmp_path / NAME, X.shape[1], blocks), blocks)
    np.testing.assert_array_equal(routed.columns, np.arange(X.shape[1]))
    assert_same_sums(blocks, routed, X.shape[1])


def test_rows_without_any_value(tmp_path) -> None:
    X, y, weights = np.zeros((5, 7)), np.ones(5), np.ones(5)
    blocks = [BLOCK_FORMATS["sparse-float32"](X, y, weights)]
    routed = routed_by(write_table(tmp_path / NAME, 7, blocks), blocks)
    assert len(routed.columns) == 0
    assert_same_sums(blocks, routed, 7)


# Tables beside a partition's files


@pytest.fixture
def handle(tmp_path):
    """A partition of two sparse blocks of many features, as ingest leaves it."""
    X, y, _ = some_rows()
    with PartitionWriter("test", 0, [str(tmp_path)]) as writer:
        gathered = _GatheredWide(classes=True)
        for half in (slice(0, 15), slice(15, 30)):
            row, column = np.nonzero(X[half])
            ends = np.concatenate([[0], np.cumsum(np.count_nonzero(X[half], axis=1))]).astype(np.int64)
            far = 200_000 * column.astype(np.int32)
            rows = SparseRows(ends, far, X[half][row, column], 2_400_000, y[half], np.ones(15))
            writer.add(rows, gathered.add(rows))
            writer.flush()
        yield writer.finish(gathered.result(writer.blocks))
    routing._open.clear()


def table_of(handle) -> Path:
    return Path(handle.blocks[0].path).parent / NAME


def cut(path: Path) -> None:
    """Shorter, in another file: mapped ones must stay whole."""
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[: len(content) // 2])


HARMS: dict[str, Callable[[Path], None]] = {"missing": Path.unlink, "cut short": cut}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
@pytest.mark.parametrize("known", [False, True], ids=["new process", "same process"])
def test_a_table_that_is_gone_is_made_anew(handle, harm, known: bool) -> None:
    """Also where this process has it mapped: others read it from disk."""
    assert len(handle.blocks) == 2
    columns = np.array(open_routed(handle).columns)
    if not known:
        routing._open.clear()
    harm(table_of(handle))
    routed = open_routed(handle)
    np.testing.assert_array_equal(routed.columns, columns)
    np.testing.assert_array_equal(open_described(table_of(handle))["columns"], columns)
    np.testing.assert_array_equal(columns, 200_000 * np.array([1, 2, 3, 4, 6, 7, 8, 9, 10]))


def test_blocks_that_are_gone_are_told(handle) -> None:
    open_routed(handle)
    Path(handle.blocks[1].path).unlink()
    with pytest.raises(MissingBlocksError):
        open_routed(handle)


# Files that tell what is in them

ARRAYS = {
    "one": np.arange(7, dtype=np.int32),
    "matrix": np.linspace(0.0, 1.0, 12).reshape(4, 3),
    "none": np.zeros((0, 3)),
    "bytes": np.frombuffer(b"abc", np.uint8),
}


def test_described_files_return_what_was_written(tmp_path) -> None:
    write_described(tmp_path / "file", ARRAYS)
    found = open_described(tmp_path / "file")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]  # no draft stays


def test_a_described_file_may_hold_nothing(tmp_path) -> None:
    write_described(tmp_path / "file", {})
    assert open_described(tmp_path / "file") == {}
    write_described(tmp_path / "file", {"empty": np.zeros(0, np.int64)})
    assert open_described(tmp_path / "file")["empty"].shape == (0,)


def test_a_described_file_that_is_written_again_is_another_file(tmp_path) -> None:
    """Who has mapped the first keeps it as it was."""
    write_described(tmp_path / "file", {"a": np.arange(1000.0)})
    first = open_described(tmp_path / "file")["a"]
    write_described(tmp_path / "file", {"a": np.zeros(1000)})
    assert first[999] == 999.0
    assert not open_described(tmp_path / "file")["a"].any()


def test_a_described_file_cut_short_anywhere_counts_as_missing(tmp_path) -> None:
    path = tmp_path / "file"
    write_described(path, ARRAYS)
    content = path.read_bytes()
    short = tmp_path / "short"
    for length in {*range(0, len(content), 7), *range(20), *range(len(content) - 20, len(content))}:
        short.write_bytes(content[:length])
        with pytest.raises(FileNotFoundError):
            open_described(short)
        short.unlink()
    with pytest.raises(FileNotFoundError):
        open_described(tmp_path / "absent")


@given(st.binary(max_size=200))
def test_a_described_file_of_anything_else_counts_as_missing(tmp_path_factory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "anything"
    path.write_bytes(content)
    with pytest.raises(FileNotFoundError):
        open_described(path)
    path.unlink()
