"""All rows on every worker, some of their columns on each."""

from __future__ import annotations

import numpy as np
import pytest

from sparkdml.data import from_dataframe
from sparkdml.data.by_features import FeatureDataset, column_bounds


def dense(block) -> np.ndarray:
    found = np.zeros((block.rows, block.features))
    for row in range(block.rows):
        entries = slice(block.indptr[row], block.indptr[row + 1])
        found[row, block.indices[entries]] = block.values[entries]
    return found


@pytest.mark.parametrize("kind", ["dense", "sparse", "mixed"])
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_columns_of_all_workers_are_the_rows(make_frame, datasets_on_disk, kind: str, parts: int) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 9))
    X[rng.random(X.shape) < 0.5] = 0.0
    y, weights = rng.integers(0, 2, 60).astype(float), rng.integers(1, 4, 60).astype(float)
    with from_dataframe(make_frame(X, y, weights, kind), weight="weight") as rows:
        order = np.concatenate([block.labels for blocks in rows.open_here() for block in blocks])
        with FeatureDataset(rows, parts) as columns:
            assert columns.partitions == parts
            assert columns.rows == rows.rows
            assert columns.statistics is rows.statistics
            total, owners = np.zeros(X.shape), np.zeros(9)
            for blocks in columns.open_here():
                mine = np.concatenate([dense(block) for block in blocks])
                np.testing.assert_array_equal(np.concatenate([block.labels for block in blocks]), order)
                total += mine
                owners += mine.any(axis=0)
            assert owners.max() == 1
            np.testing.assert_array_equal(np.sort(total, axis=0), np.sort(X, axis=0))
            np.testing.assert_array_equal(total, X)  # partitions keep their order
        assert len(datasets_on_disk()) == 1
    assert not datasets_on_disk()


def test_lost_columns_are_cut_again(make_frame, local_dir) -> None:
    X = np.arange(40.0).reshape(10, 4) + 1.0
    with from_dataframe(make_frame(X, np.arange(10) % 2.0)) as rows, FeatureDataset(rows, 2) as columns:
        before = [dense(block) for blocks in columns.open_here() for block in blocks]
        for path in local_dir.rglob(f"*{columns.id}/**/block-*"):
            path.unlink()
        after = [dense(block) for blocks in columns.open_here() for block in blocks]
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other)


def test_ranges_have_about_the_same_number_of_non_zeros_and_none_is_empty() -> None:
    np.testing.assert_array_equal(column_bounds(np.ones(10), 2), [0, 5, 10])
    np.testing.assert_array_equal(column_bounds(np.array([100.0, 1, 1, 1]), 3), [0, 1, 2, 4])
    np.testing.assert_array_equal(column_bounds(np.array([1.0, 1, 1, 100]), 3), [0, 2, 3, 4])
    np.testing.assert_array_equal(column_bounds(np.zeros(3), 5), [0, 1, 2, 3])
    rng = np.random.default_rng(0)
    for _ in range(200):
        counts = rng.integers(0, 5, rng.integers(1, 12)).astype(float) ** 3
        bounds = column_bounds(counts, int(rng.integers(1, 8)))
        assert (np.diff(bounds) > 0).all()
        assert (bounds[0], bounds[-1]) == (0, len(counts))
