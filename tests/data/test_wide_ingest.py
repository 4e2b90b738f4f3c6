"""Rows by pairs of columns, and rows of more features than anything in a task may be long."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from batches import matrix, vector_batch
from hypothesis import given
from hypothesis import strategies as st
from oracles import random_rows
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import types as T

from sparkdml.data import from_dataframe
from sparkdml.data.columns import Pairs
from sparkdml.data.handle import read_statistics
from sparkdml.data.ingest import ingest_partition
from sparkdml.data.reader import BadInputError, BatchReader, Columns
from sparkdml.data.rows import SparseRows
from sparkdml.placement.partitioned.steps import merged_moments

SIZE = 10
COLUMNS = Columns("my indices, my values", "my label", expected=SIZE, pairs=True, wide=True)
NAN = float("nan")


def pairs_batch(rows, labels=None, weights=None, element=None) -> pa.RecordBatch:
    """Rows ``(indices, values)`` as Spark hands them on: indices are cast to long."""
    fields = {
        "indices": pa.array([None if at is None else list(at) for at, _ in rows], pa.list_(pa.int64())),
        "values": pa.array([None if x is None else list(x) for _, x in rows], pa.list_(element or pa.float64())),
        "label": pa.array([0.0] * len(rows) if labels is None else labels, pa.float64()),
    }
    if weights is not None:
        fields["weight"] = pa.array(weights, pa.float64())
    return pa.RecordBatch.from_pydict(fields)


def read(batch: pa.RecordBatch, columns: Columns = COLUMNS) -> SparseRows:
    rows = BatchReader(columns, 0).read(batch)
    assert isinstance(rows, SparseRows)
    return rows


def plain(rows, size: int = SIZE) -> np.ndarray:
    """What pairs mean."""
    X = np.zeros((len(rows), size))
    for n, (indices, values) in enumerate(rows):
        np.add.at(X[n], np.asarray(indices, int), values)
    return X


# Pairs of columns

numbers = st.integers(-8, 8).map(float)
pairs_rows = st.lists(
    st.lists(st.tuples(st.integers(0, SIZE - 1), numbers), max_size=12).map(
        lambda row: ([j for j, _ in row], [x for _, x in row])
    ),
    min_size=1,
    max_size=8,
)


@given(pairs_rows)
def test_indices_in_any_order_and_with_repetitions_which_add_up(rows) -> None:
    found = read(pairs_batch(rows))
    np.testing.assert_array_equal(matrix(found), plain(rows))
    for start, end in zip(found.indptr, found.indptr[1:], strict=False):
        assert (np.diff(found.indices[start:end]) > 0).all()


def test_a_slice_of_a_batch_is_those_rows_and_no_others() -> None:
    rows = [([99], [NAN]), ([3, 1], [1.0, 2.0]), ([], []), ([1, 1], [0.5, 0.25]), ([-5], [1.0])]
    found = read(pairs_batch(rows, range(5)).slice(1, 3))
    np.testing.assert_array_equal(matrix(found), plain(rows[1:4]))
    np.testing.assert_array_equal(found.labels, [1.0, 2.0, 3.0])


def test_rows_of_weight_0_are_left_out() -> None:
    rows = [([3, 1], [1.0, 2.0]), ([0], [4.0]), ([1, 1], [0.5, 0.25])]
    found = read(pairs_batch(rows, [0, 1, 2], [2.0, 0.0, 1.0]), replace(COLUMNS, weight="my weight"))
    np.testing.assert_array_equal(matrix(found), plain([rows[0], rows[2]]))
    np.testing.assert_array_equal(found.weights, [2.0, 1.0])


@pytest.mark.parametrize(("size", "kind"), [(2**31, np.int32), (2**31 + 1, np.int64), (2**50, np.int64)])
def test_indices_are_as_wide_as_they_must(size: int, kind: type) -> None:
    found = read(pairs_batch([([size - 1, 0, size - 1], [1.0, 2.0, 3.0])]), replace(COLUMNS, expected=size))
    assert found.indices.dtype == kind
    assert found.indices.tolist() == [0, size - 1]
    assert found.values.tolist() == [2.0, 4.0]


def test_repetitions_of_floats_add_up_as_doubles() -> None:
    third = float(np.float32(1 / 3))
    found = read(pairs_batch([([4, 4, 4], [third] * 3)], element=pa.float32()))
    assert found.values.tolist() == [third + third + third]


def test_the_other_rows_of_a_batch_do_not_change_how_a_row_is_held() -> None:
    """Or else its digest would depend on how rows come together in batches."""
    tidy, untidy = ([1, 2], [0.5, 1.0]), ([5, 3], [1.0, 2.0])
    for element in (pa.float32(), pa.float64(), pa.int16()):
        rows = [tidy, untidy] if element != pa.int16() else [([1, 2], [1, 2]), ([5, 3], [1, 2])]
        alone = [read(pairs_batch([row], element=element)) for row in rows]
        together = read(pairs_batch(rows, element=element))
        assert {found.values.dtype for found in alone} == {together.values.dtype}


def refusal(rows, *more, columns: Columns = COLUMNS) -> str:
    """What is said of the second row, in the second batch."""
    reader = BatchReader(columns, 7)
    reader.read(pairs_batch([([0], [1.0])] * 3))
    with pytest.raises(BadInputError) as raised:
        reader.read(pairs_batch(rows, *more))
    message = str(raised.value)
    assert "column 'my indices, my values'" in message
    assert "row 4 of partition 7; " in message
    return message


GOOD = ([2, 1], [1.0, 2.0])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (([0, SIZE], [1.0, 2.0]), ["the index 10", "from 0 to 9; raise numFeatures if more are meant"]),
        (([3, -1], [1.0, 2.0]), ["the index -1", "from 0 to 9"]),
        (([3, 2**62], [1.0, 2.0]), [f"the index {2**62}"]),
        (([3, None], [1.0, 2.0]), ["null inside its indices", "fill or drop it"]),
        (([3, 4], [1.0, None]), ["null inside", "fill or drop it"]),
        ((None, [1.0]), ["null", "dropna"]),
        (([1], None), ["null", "dropna"]),
        (([1, 2], [1.0]), ["2 indices and 1 values", "give as many of each"]),
        (([], [1.0, 2.0]), ["0 indices and 2 values"]),
        (([1, 2], [1.0, NAN]), ["the value nan", "Imputer"]),
        (([1, 2], [float("-inf"), 1.0]), ["the value -inf"]),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_pair_is_said_with_column_value_and_remedy(row, words: list[str]) -> None:
    message = refusal([GOOD, row, GOOD])
    for word in words:
        assert word in message


def test_the_place_is_right_in_a_slice() -> None:
    reader = BatchReader(COLUMNS, 7)
    batch = pairs_batch([([77], [1.0]), GOOD, ([], []), ([1, 55], [1.0, 1.0])]).slice(1, 3)
    with pytest.raises(BadInputError, match="the index 55 in row 2 of partition 7"):
        reader.read(batch)


# Pairs of columns of a DataFrame


@pytest.mark.parametrize(("kind", "numbers"), [("int", "double"), ("bigint", "float"), ("smallint", "int")])
def test_columns_of_every_type(spark, kind: str, numbers: str) -> None:
    rows = [([4, 0, 4], [1.0, 2.0, 3.0], 1.0), ([], [], 0.0), ([9], [5.0], 1.0)]
    frame = spark.createDataFrame(rows, "i array<bigint>, v array<double>, label double")
    frame = frame.selectExpr(f"cast(i as array<{kind}>) i", f"cast(v as array<{numbers}>) v", "label")
    with from_dataframe(frame, Pairs("i", "v", SIZE)) as dataset:
        X = np.vstack([matrix(block) for blocks in dataset.open_here() for block in blocks])
        np.testing.assert_array_equal(X, plain([row[:2] for row in rows]))
        assert (dataset.features, dataset.rows) == (SIZE, 3)


@pytest.mark.parametrize(
    ("features", "error", "words"),
    [
        (Pairs("i", "v", 0), ValueError, "numFeatures=0 is not allowed"),
        (Pairs("v", "v", 5), TypeError, "column 'v' is array<double>; it must be an array of whole numbers"),
        (Pairs("label", "v", 5), TypeError, "column 'label' is double; it must be an array of whole numbers"),
        (Pairs("i", "label", 5), TypeError, "column 'label' is double; it must be an array of numbers"),
        (Pairs("i", "w", 5), ValueError, "features column 'w' is not there"),
    ],
    ids=str,
)
def test_columns_that_are_no_pairs_are_refused_before_any_job(spark, jobs_started, features, error, words) -> None:
    frame = spark.createDataFrame([([0], [1.0], 1.0)], "i array<int>, v array<double>, label double")
    with pytest.raises(error, match=words):
        from_dataframe(frame, features)
    assert jobs_started() == 0


@pytest.mark.parametrize("missing", ["indicesCol", "valuesCol", "numFeatures"])
def test_an_estimator_wants_all_three(spark, jobs_started, missing: str) -> None:
    from sparkdml.classification import LogisticRegression

    frame = spark.createDataFrame([([0], [1.0], 1.0)], "i array<int>, v array<double>, label double")
    given_ = {"indicesCol": "i", "valuesCol": "v", "numFeatures": 5}
    del given_[missing]
    with pytest.raises(ValueError, match=f"set without {missing}.*need all three"):
        LogisticRegression()._set(**given_).fit(frame)
    assert jobs_started() == 0


# Statistics of wide rows


def table(rows: int = 40, features: int = 9, seed: int = 5):
    """Feature 2 is never seen, 3 is 2.5 in every row, 4 is a constant that no float32 holds."""
    rng = np.random.default_rng(seed)
    X = random_rows(rng, rows, features)
    X[rng.random(X.shape) < 0.5] = 0.0
    X[:, 2], X[:, 3], X[:, 4] = 0.0, 2.5, 0.1
    X[7] = 0.0
    X[7, 3:5] = 2.5, 0.1
    return X, rng.integers(0, 3, rows).astype(float), rng.uniform(0.1, 3.0, rows)


@pytest.fixture
def ingested(tmp_path, monkeypatch):
    """``ingested(rows, labels, weights, ...)``: one partition's handle, from batches of ``batch`` rows each."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))

    def run(rows, labels, weights, batch: int = 7, size: int = SIZE, wide: bool = True, partition: int = 0):
        columns = Columns("i, v", "label", "weight", expected=size, pairs=True, wide=wide)
        batches = [
            pairs_batch(rows[a : a + batch], labels[a : a + batch], weights[a : a + batch])
            for a in range(0, len(rows), batch)
        ]
        name = f"{'wide' if wide else 'narrow'}{batch}"
        return ingest_partition(name, columns, partition, batches)

    return run


def as_rows(X: np.ndarray):
    return [(np.flatnonzero(row), row[np.flatnonzero(row)]) for row in X]


def test_wide_statistics_are_the_narrow_ones(ingested) -> None:
    X, y, weights = table()
    wide, narrow = (
        read_statistics(ingested(as_rows(X), y, weights, size=9, wide=wide)).dense() for wide in (True, False)
    )
    for name in ("mean", "m2"):
        np.testing.assert_allclose(getattr(wide, name), getattr(narrow, name), rtol=1e-12, atol=1e-12)
    for name in ("nonzeros", "histogram"):
        np.testing.assert_array_equal(getattr(wide, name), getattr(narrow, name))
    for name in ("rows", "weight_sum", "weight_square_sum", "label_mean", "label_m2", "label_min", "label_max"):
        assert getattr(wide, name) == getattr(narrow, name)
    assert wide.m2[2:5].tolist() == [0.0, 0.0, 0.0]
    assert wide.mean[2:5].tolist() == [0.0, 2.5, 0.1]
    np.testing.assert_allclose(wide.mean, np.average(X, axis=0, weights=weights), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(wide.m2, weights @ (X - wide.mean) ** 2, rtol=1e-10, atol=1e-14)


def test_wide_statistics_are_of_the_features_that_occur(ingested) -> None:
    X, y, weights = table()
    found = read_statistics(ingested(as_rows(X), y, weights, size=1000))
    np.testing.assert_array_equal(found.columns, [0, 1, 3, 4, 5, 6, 7, 8])
    assert len(found.mean) == len(found.m2) == len(found.nonzeros) == 8


def moments(part: np.ndarray, weights: np.ndarray):
    """Places, mean and m2 of the columns that occur, as a worker tells them."""
    at = np.flatnonzero(part.any(axis=0))
    mean = np.average(part[:, at], axis=0, weights=weights)
    constant = (part[:, at] == part[0, at]).all(axis=0)
    mean[constant] = part[0, at][constant]
    return at, (mean, np.where(constant, 0.0, weights @ (part[:, at] - mean) ** 2))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_moments_of_several_workers_together_are_those_of_all_rows(sizes: list[int], seed: int) -> None:
    X, _, weights = table(sum(sizes), seed=seed) if sum(sizes) > 7 else (None, None, None)
    if X is None:
        return
    cuts = np.cumsum(sizes)[:-1]
    X[: sizes[0], 5] = 0.0  # absent from the first worker's rows
    parts, shares = np.split(X, cuts), np.split(weights, cuts)
    told = [moments(part, share) for part, share in zip(parts, shares, strict=True)]
    totals = [float(share.sum()) for share in shares]
    mean, m2 = merged_moments([t[1] for t in told], [t[0] for t in told], totals, X.shape[1])
    expected = np.average(X, axis=0, weights=weights)
    np.testing.assert_allclose(mean, expected, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(m2, weights @ (X - expected) ** 2, rtol=1e-10, atol=1e-12)
    assert m2[2:5].tolist() == [0.0, 0.0, 0.0]
    assert mean[2:5].tolist() == [0.0, 2.5, 0.1]


def test_a_column_of_zeros_that_some_workers_store_and_others_do_not_is_constant() -> None:
    told = [(np.zeros(2), np.zeros(2)), (np.array([3.0]), np.array([0.0]))]
    mean, m2 = merged_moments(told, [np.array([0, 1]), np.array([2])], [0.3, 0.7], 4)
    np.testing.assert_allclose(mean, [0.0, 0.0, 2.1, 0.0], rtol=1e-15)
    assert m2[[0, 1, 3]].tolist() == [0.0, 0.0, 0.0]
    assert m2[2] == pytest.approx(0.3 * 0.7 * 9.0)


def test_a_constant_far_from_0_over_many_workers_of_odd_weights_varies_by_exactly_nothing() -> None:
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.1, 5.0, 17).tolist()
    told = [(np.array([1e9 + 0.1]), np.zeros(1))] * 17
    mean, m2 = merged_moments(told, [np.array([1])] * 17, weights, 2)
    assert (mean[1], m2[1]) == (1e9 + 0.1, 0.0)


def test_moments_of_ingested_partitions_together_are_those_of_all_rows(ingested) -> None:
    X, y, weights = table()
    X[:20, 6] = 0.0
    halves = [slice(0, 20), slice(20, 40)]
    found = [read_statistics(ingested(as_rows(X[h]), y[h], weights[h], partition=n)) for n, h in enumerate(halves)]
    mean, m2 = merged_moments(
        [(f.mean, f.m2) for f in found], [f.columns for f in found], [f.weight_sum for f in found], SIZE
    )
    expected = np.append(np.average(X, axis=0, weights=weights), 0.0)
    np.testing.assert_allclose(mean, expected, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(m2[:9], weights @ (X - expected[:9]) ** 2, rtol=1e-10, atol=1e-12)
    assert m2[[2, 3, 4, 9]].tolist() == [0.0] * 4


# Digests


@pytest.mark.parametrize("wide", [True, False], ids=["wide", "narrow"])
def test_the_digest_does_not_depend_on_the_order_of_rows_and_their_batches(ingested, wide: bool) -> None:
    X, y, weights = table()
    rows = [(at[::-1], values[::-1]) if n % 3 else (at, values) for n, (at, values) in enumerate(as_rows(X))]
    digests = set()
    for seed, batch in ((0, 7), (1, 3), (2, 40), (3, 1)):
        order = list(range(40))
        random.Random(seed).shuffle(order)
        handle = ingested([rows[n] for n in order], y[order], weights[order], batch, wide=wide)
        digests.add(handle.digest)
    assert len(digests) == 1
    changed = [(at, values + (n == 11)) for n, (at, values) in enumerate(rows)]
    assert ingested(changed, y, weights, 5, wide=wide).digest not in digests


def test_the_digest_does_not_depend_on_batches_of_floats(tmp_path, monkeypatch) -> None:
    """A batch whose rows are in order is read otherwise than one in which a row is not."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    rows = [([1, 2], [0.5, 1.0]), ([5, 3], [1.0, 2.0]), ([0], [3.0])]
    columns = Columns("i, v", "label", expected=SIZE, pairs=True, wide=True)
    digests = {
        ingest_partition(f"cut{cut}", columns, 0, [
            pairs_batch(part, element=pa.float32()) for part in (rows[:cut], rows[cut:]) if part
        ]).digest
        for cut in range(4)
    }  # fmt: skip
    assert len(digests) == 1


# Millions of features


def test_nothing_is_as_long_as_there_are_millions_of_features(spark, datasets_on_disk) -> None:
    size = 3_000_000
    rows = [(Vectors.sparse(size, [n, 10 * n + 100, size - 1], [1.0, n + 1.0, 2.5]), float(n % 2)) for n in range(20)]
    rows[3] = (Vectors.sparse(size, [], []), 1.0)
    schema = T.StructType([T.StructField("features", VectorUDT()), T.StructField("label", T.DoubleType())])
    with from_dataframe(spark.createDataFrame(rows, schema)) as dataset:
        assert (dataset.features, dataset.rows) == (size, 20)
        files = [path for home in datasets_on_disk() for path in home.rglob("*") if path.is_file()]
        assert {path.name.split("-")[0] for path in files} == {"block", "statistics", "routing"}
        assert sum(path.stat().st_size for path in files) < 20_000
        for handle in dataset.handles:
            assert len(handle.to_bytes()) < 5_000
            assert read_statistics(handle).columns is not None
        assert dataset.stored_bytes < 5_000
        totals = dataset.totals
        assert (totals.rows, totals.weight_sum, totals.label_mean) == (20, 20.0, 0.5)
        assert totals.histogram.tolist() == [10.0, 10.0]
        assert len(totals.mean) == 0
        # and asked for, the statistics of every feature are there
        assert dataset.statistics.nonzeros[size - 1] == 19
        assert dataset.statistics.mean[size - 1] == pytest.approx(2.5 * 19 / 20)


def test_a_dense_row_among_millions_of_features_is_stored_by_what_it_has(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    size = 2**20 + 1
    dense = np.zeros(size)
    dense[[5, size - 1]] = 1.0, 2.0
    digests = set()
    for name, first in (("dense", dense), ("sparse", (size, [5, size - 1], [1.0, 2.0]))):
        batch = vector_batch([first, (size, [5], [1.0])], [1.0, 0.0])
        handle = ingest_partition(name, Columns("features", "label"), 0, [batch])
        digests.add(handle.digest)
        files = [path for path in (tmp_path / f"sparkdml-{name}").rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) < 10_000
        found = read_statistics(handle)
        assert (found.features, found.columns.tolist()) == (size, [5, size - 1])
        assert found.mean.tolist() == [1.0, 1.0]
        assert found.m2.tolist() == [0.0, 2.0]
    assert len(digests) == 1
