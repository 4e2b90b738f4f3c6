"""Random rows, cut into any batches, come out of their blocks as they went in."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from batches import COLUMNS, WEIGHTED, Vector, sparse_vector, stacked, vector_batch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import weighted_std

from sparkdml.data import writer as module
from sparkdml.data.handle import Handle, read_statistics
from sparkdml.data.ingest import Refusal, decode, encode, ingest_partition
from sparkdml.data.open_blocks import open_handle

# enough exponents for float32 to lose some, few enough for sums of squares to stay finite
numbers = st.one_of(st.just(0.0), st.integers(-5, 5).map(float), st.floats(-1e30, 1e30))
matrices = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=numbers)


@st.composite
def partitions(draw: st.DrawFn):
    """X, y, weights, each row dense or sparse, and the places at which batches are cut."""
    X = draw(matrices)
    count = len(X)
    y = np.array(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)), float)
    weight = st.sampled_from([0.0, 0.1, 1.0, 2.5])
    weights = np.array(draw(st.lists(weight, min_size=count, max_size=count)))
    is_sparse = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    cuts = sorted(draw(st.sets(st.integers(0, count))))
    rows: list[Vector] = [
        sparse_vector(row) if sparse else row.tolist() for row, sparse in zip(X, is_sparse, strict=True)
    ]
    return X, y, weights, rows, [0, *cuts, count]


@given(partition=partitions(), cap=st.sampled_from([1, 200, 2**20]))
def test_rows_come_back_whatever_their_form_and_the_cut_of_batches(
    tmp_path_factory: pytest.TempPathFactory, partition, cap: int
) -> None:
    X, y, weights, rows, cuts = partition
    whole = vector_batch(rows, y.tolist(), weights.tolist())
    batches = [whole.slice(a, b - a) for a, b in zip(cuts, cuts[1:], strict=False)]
    root = tmp_path_factory.mktemp("blocks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_DIRS", str(root))
        patch.setattr(module, "MAX_BLOCK_BYTES", cap)
        outcome = ingest_partition("law", WEIGHTED, 0, batches)
    there = weights > 0
    if not there.any():
        assert outcome is None
        assert not list(root.iterdir())
        return
    assert isinstance(outcome, Handle)
    X, y, weights = X[there], y[there], weights[there]
    for found, expected in zip(stacked(open_handle(outcome)), (X, y, weights), strict=True):
        np.testing.assert_array_equal(found, expected)
    statistics = read_statistics(outcome)
    assert statistics.rows == len(X)
    assert statistics.weight_sum == pytest.approx(weights.sum())
    np.testing.assert_array_equal(statistics.nonzeros, np.count_nonzero(X, axis=0))
    np.testing.assert_allclose(statistics.histogram, np.bincount(y.astype(int), weights))
    scale = np.abs(X).max(axis=0)
    mean = np.average(X, axis=0, weights=weights)
    assert (np.abs(statistics.mean - mean) <= 1e-12 * scale).all()
    if len(X) > 1:
        assert (np.abs(statistics.std - weighted_std(X, weights)) <= 1e-6 * scale).all()


@given(partition=partitions())
def test_the_digest_does_not_depend_on_the_cut_of_batches(tmp_path_factory: pytest.TempPathFactory, partition) -> None:
    _, y, weights, rows, cuts = partition
    whole = vector_batch(rows, y.tolist(), weights.tolist())
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_DIRS", str(tmp_path_factory.mktemp("blocks")))
        for at in (cuts, [0, len(rows)]):
            batches = [whole.slice(a, b - a) for a, b in zip(at, at[1:], strict=False)]
            outcome = ingest_partition("law", WEIGHTED, 0, batches)
            found.append(outcome.digest if isinstance(outcome, Handle) else None)
    assert found[0] == found[1]


def test_a_refused_partition_is_told_as_a_value_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(module, "MAX_BLOCK_BYTES", 64)
    good = vector_batch([[1.0, 2.0]] * 50)
    bad = vector_batch([[1.0, float("nan")]])
    outcome = ingest_partition("law", COLUMNS, 5, [good, bad])
    assert isinstance(outcome, Refusal)
    assert (outcome.kind, outcome.partition) == ("input", 5)
    assert "nan" in outcome.message
    assert decode(encode(outcome)) == outcome
    assert not list(tmp_path.iterdir())


def test_a_disk_without_room_is_told_as_a_value_that_becomes_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'one'},{tmp_path / 'two'}")
    monkeypatch.setattr(module, "write_file", no_room)
    outcome = ingest_partition("law", COLUMNS, 5, [vector_batch([[1.0, 2.0]])])
    assert isinstance(outcome, Refusal)
    error = decode(encode(outcome)).to_error()
    assert isinstance(error, module.StoreFullError)
    assert str(tmp_path / "one") in str(error)
    assert str(tmp_path / "two") in str(error)
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith("sparkdml-")]
