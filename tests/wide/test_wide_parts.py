"""What happens within tasks of a transform, without Spark."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F
from wide_cases import BOUNDS, FEATURES, coefficients_of, matrix

from sparkdml.wide import records
from sparkdml.wide.answers import Logistic, Margin, first_largest, softmax
from sparkdml.wide.requests import answer, digest_of, split
from sparkdml.wide.routing import Finish, Score
from sparkdml.wide.rows import FeatureReader, SparseBatch, concatenate
from sparkdml.wide.scorer import Linear
from sparkdml.wide.shard import Shard, from_bytes, small_chunks, to_bytes

LIST = pa.list_(pa.float64())
VECTOR = pa.struct([("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())), ("values", LIST)])


def sparse(X: np.ndarray) -> SparseBatch:
    rows, columns = np.nonzero(X)
    ends = np.searchsorted(rows, np.arange(len(X) + 1))
    return SparseBatch(ends.astype(np.int64), columns.astype(np.int64), X[rows, columns])


def shard_of(coefficients: np.ndarray, low: int, high: int) -> Shard:
    indices = low + np.flatnonzero(coefficients[low:high].any(axis=1))
    return Shard(indices, coefficients[indices])


@pytest.mark.parametrize("columns", [1, 3, 8, 11])
def test_sums_of_shards_add_up_to_the_margins(columns) -> None:
    X, coefficients, scorer = matrix(), coefficients_of(columns), Linear(columns)
    sums, touched = np.zeros((len(X), columns)), []
    for number, payload in split(sparse(X), np.array(BOUNDS)):
        touched.append(number)
        shard = shard_of(coefficients, *BOUNDS[number : number + 2])
        reply = answer(bytearray(np.int64(5).tobytes() + payload), shard, scorer)
        digest, rows = np.frombuffer(reply, np.int64, 2)
        assert digest == 5
        found = np.frombuffer(reply, np.float64, rows * columns, 16).reshape(rows, columns)
        sums[np.frombuffer(reply, np.int32, rows, 16 + found.nbytes)] += found
    assert touched == [1, 2, 4, 5]  # 0 and 3 have no features
    np.testing.assert_allclose(scorer.margins(sums, np.ones(columns)), X @ coefficients + 1, rtol=1e-12)


def test_rows_without_features_ask_nobody() -> None:
    assert list(split(sparse(np.zeros((3, FEATURES))), np.array(BOUNDS))) == []


def test_digest_tells_the_order_of_rows() -> None:
    X = matrix()
    assert digest_of(sparse(X)) == digest_of(sparse(X.copy()))
    assert digest_of(sparse(X)) != digest_of(sparse(X[::-1]))


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 16), st.integers(1, 7))
def test_payloads_come_back_whole_however_they_are_cut(payloads, limit, rows) -> None:
    writer = records.Writer(np.arange(20), limit)
    for number, payload in enumerate(payloads):
        writer.add(number % 3, records.REQUEST, number, payload)
    batches = [batch.slice(at, rows) for batch in writer.flush() for at in range(0, batch.num_rows, rows)]
    found = list(records.read(batches))
    assert [bytes(record.payload) for record in found] == payloads
    assert [(r.shard, r.kind, r.batch) for r in found] == [(n % 3, records.REQUEST, n) for n in range(len(payloads))]
    assert all(len(piece) <= limit for batch in batches for piece in batch.column("payload").to_pylist())


def test_every_shard_has_a_partition_of_its_own(spark) -> None:
    counts = [1, 2, 7, 200]
    rows = [(key, shards) for shards in counts for key in records.place(shards).tolist()]
    keys = spark.createDataFrame(rows, "key int, shards int")
    placed = [row[0] for row in keys.select(F.pmod(F.hash("key"), "shards")).collect()]
    assert placed == [shard for shards in counts for shard in range(shards)]


def test_pieces_are_small_enough_for_what_spark_hands_over() -> None:
    assert records.piece_bytes(2000) * 2000 <= 2**27
    assert records.piece_bytes(0) == records.piece_bytes(10_000)
    assert records.piece_bytes(1) == 2**20


def test_shards_from_chunks_in_any_order_and_chunks_of_rows_in_any_order() -> None:
    indices, values = np.array([9, 2, 5, 7]), np.arange(8.0).reshape(4, 2)
    shard = Shard.of([(indices[2:], values[2:]), (indices[:2], values[:2])], 2)
    np.testing.assert_array_equal(shard.indices, [2, 5, 7, 9])
    np.testing.assert_array_equal(shard.take(np.array([0, 5, 9, 99])), [[0, 0], [4, 5], [0, 1], [0, 0]])
    with pytest.raises(ValueError, match="feature 9 has two rows"):
        Shard.of([(indices, values), (indices[:1], values[:1])], 2)
    parts = [from_bytes(to_bytes(*part), 2) for part in small_chunks((shard.indices, shard.values), 50)]
    assert [len(part[0]) for part in parts] == [2, 2]
    np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), shard.values)


def test_rows_that_changed_between_attempts_are_noticed() -> None:
    """As if a task had been repeated, and its rows had come in another order."""
    X, keys = matrix(), np.arange(len(BOUNDS) - 1)
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"c0": pa.array(range(len(X)))})
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    requests = [(n, np.int64(digest_of(sparse(X))).tobytes() + p) for n, p in split(sparse(X), np.array(BOUNDS))]

    def run(of: np.ndarray, asked: list) -> list:
        writer = records.Writer(keys, 100)
        header = np.array([digest_of(sparse(of)), len(requests), len(X)], np.int64)
        writer.add(0, records.ROWS, 7, header.tobytes() + sink.getvalue().to_pybytes())
        for shard, payload in asked:
            writer.add(shard, records.REQUEST, 7, payload)
        scored = list(Score(Linear(1), 1, keys, 100)(writer.flush()))
        return list(Finish(Linear(1), np.array([2.5]), Margin(), ["c0", "a0"])(scored))

    (answered,) = run(X, requests)
    assert answered.column("a0").to_pylist() == [2.5] * len(X)  # no coefficients: intercepts alone
    for of, asked in ((X[::-1], requests), (X, requests[1:])):
        with pytest.raises(RuntimeError, match="batch 7 of partition 0 had other rows"):
            run(of, asked)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1.0, 2.0], [1.0]], LIST), "'x' has 1 features where the model has 2 in row 1"),
        (pa.array([[1.0, 2.0], None], LIST), "'x' has null in row 1"),
        (pa.array([[1.0, 2.0], [1.0, None]], LIST), "'x' has null inside its numbers in row 1"),
        (pa.array([(0, 3, [0], [1.0])], VECTOR), "'x' has 3 features where the model has 2 in row 0"),
        (pa.array([(1, None, None, [1.0] * 5)], VECTOR), "'x' has 5 features where the model has 2 in row 0"),
        (pa.array([(0, 2, [2], [1.0])], VECTOR), "'x' has the index 2 in row 0.*from 0 to 1"),
    ],
)
def test_reader_refusals(column, message) -> None:
    with pytest.raises(ValueError, match=message):
        FeatureReader((0,), ("x",), 2).read(pa.record_batch({"x": column}))


@pytest.mark.parametrize(
    ("indices", "values", "message"),
    [
        ([[0], [-1]], [[1.0], [1.0]], "'i' has the index -1 in row 1"),
        ([[0, 1]], [[1.0]], "'i' and 'v' has 2 indices and 1 values in row 0"),
        ([[0], None], [[1.0], [1.0]], "'i' has null in row 1"),
        ([[0]], [[None]], "'v' has null inside its numbers in row 0"),
    ],
)
def test_reader_refusals_of_pairs(indices, values, message) -> None:
    batch = pa.record_batch({"i": pa.array(indices, pa.list_(pa.int64())), "v": pa.array(values, LIST)})
    with pytest.raises(ValueError, match=message):
        FeatureReader((0, 1), ("i", "v"), 2).read(batch)


def test_a_model_beyond_the_size_of_vectors_says_what_to_use() -> None:
    with pytest.raises(ValueError, match="columns of indices and values"):
        FeatureReader((0,), ("x",), 2**40).read(pa.record_batch({"x": pa.array([[1.0]], LIST)}))


def test_batches_one_after_another() -> None:
    X = matrix()
    for got, want in zip(concatenate([sparse(X[:5]), sparse(X[5:5]), sparse(X[5:])]), sparse(X), strict=True):
        np.testing.assert_array_equal(got, want)


def test_softmax_and_largest_at_the_edges() -> None:
    raw = np.array([[1000.0, 0.0], [math.inf, 3.0], [math.nan, 1.0], [-math.inf, 2.0]])
    np.testing.assert_array_equal(softmax(raw), [[1, 0], [1, 0], [math.nan, math.nan], [0, 1]])
    np.testing.assert_array_equal(first_largest(np.array([[math.nan, 5.0], [1.0, math.nan], [2.0, 2.0]])), [0, 0, 0])


def test_thresholds_at_the_edges() -> None:
    margins = np.array([[-800.0], [0.0], [800.0]])
    for raw in (True, False):
        assert Logistic(False, 0.0, raw=raw)(margins)[-1].tolist() == [raw, 1, 1]  # a probability of 0 is not above 0
        assert Logistic(False, 0.5, raw=raw)(margins)[-1].tolist() == [0, 0, 1]
        assert Logistic(False, 1.0, raw=raw)(margins)[-1].tolist() == [0, 0, 0]
    zeros = np.array([[0.0, 0.0, -math.inf], [0.0, 5.0, -math.inf]])
    assert Logistic(True, thresholds=(0.5, 0.5, 0.0))(zeros)[-1].tolist() == [0, 1]  # 0 / 0 is no reason
