"""Models whose coefficients are in shards are those of whole coefficients, however rows and shards are cut."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import types as T
from sharded_family import EXACT, FITS, STEPS, D, as_pairs, assert_same, by_pairs, learned, partitioned, rows, whole

from sparkdml.classification import DistributedLogisticRegressionModel, LinearSVC, LogisticRegression
from sparkdml.data import from_dataframe, sources
from sparkdml.placement.partitioned import founding
from sparkdml.regression import LinearRegression


@pytest.mark.parametrize("name", FITS)
def test_the_model_is_that_of_whole_coefficients(blocks, name: str) -> None:
    classes, estimator = FITS[name]
    assert_same(estimator, blocks(classes))


@pytest.mark.parametrize(("optimizer", "kind"), [("ftrl", "sparse"), ("adagrad", "dense"), ("adam", "sparse")])
def test_steps_are_those_of_whole_coefficients(blocks, optimizer: str, kind: str) -> None:
    estimator = LogisticRegression(regParam=0.02, elasticNetParam=0.5, optimizer=optimizer, **STEPS)
    assert_same(estimator, blocks(2, kind), atol=1e-9)


def test_steps_for_numbers_are_in_the_labels_unit(blocks) -> None:
    assert_same(LinearRegression(regParam=0.1, optimizer="adam", **STEPS), blocks(0), atol=1e-9)


def test_support_vectors(blocks) -> None:
    """The hinge loss has corners: subgradient methods agree in what is minimised, and in steps taken from one start."""
    data = blocks(2)
    assert_same(LinearSVC(regParam=0.1, maxIter=6, tol=0.0), data)
    assert_same(LinearSVC(regParam=0.1, optimizer="adagrad", **STEPS), data, atol=1e-9)


@pytest.mark.parametrize(
    ("workers", "kind", "shards"), [(1, "sparse", 1), (2, "dense", 16), (7, "mixed", 16), (7, "sparse", 1)]
)
def test_the_number_of_workers_and_shards_does_not_matter(
    make_frame, monkeypatch, workers: int, kind: str, shards: int
) -> None:
    """16 are more shards than features."""
    monkeypatch.setattr(sources, "task_slots", lambda sc: workers)
    monkeypatch.setattr(founding, "task_slots", lambda sc: shards)
    with from_dataframe(make_frame(*rows(), kind=kind, partitions=workers), wide=True) as data:
        assert data.partitions == workers
        steps = LogisticRegression(regParam=0.05, elasticNetParam=0.3, optimizer="ftrl", **STEPS)
        expected = learned(whole(steps, data))
        with partitioned(steps, data) as found:
            assert found.coefficientsRDD.getNumPartitions() == min(shards, D)
            np.testing.assert_allclose(learned(found), expected, rtol=0.0, atol=1e-9)
        if (workers, shards) == (7, 16):
            assert_same(LogisticRegression(regParam=0.2, **EXACT), data)


def test_partitions_without_rows(make_frame, frame) -> None:
    """Ten rows in eight partitions, and none in two of them more."""
    X, y = rows()
    few = make_frame(X[:10], y[:10], kind="sparse", partitions=8)
    none = few.where("label < 0")
    assert_same(LogisticRegression(regParam=0.5, **EXACT), none.union(few).union(none))


def test_rows_prepared_for_whole_models_will_do(make_frame) -> None:
    with from_dataframe(make_frame(*rows(), kind="sparse")) as narrow:
        assert_same(LogisticRegression(regParam=0.2, **EXACT), narrow)


def test_rows_of_nothing_but_zeros(make_frame) -> None:
    """All that can be learned is the intercept."""
    _, y = rows()
    data = make_frame(np.zeros((60, D)), y, kind="sparse")
    with partitioned(LogisticRegression(), data) as model:
        share = y.mean()
        assert model.intercept == pytest.approx(np.log(share / (1 - share)), abs=1e-9)
        assert model.sparsity == 1.0
        assert model.topFeatures(3) == []


def test_weight_2_is_the_row_twice_and_weight_0_is_absent(make_frame) -> None:
    X, y = rows()
    weights = np.arange(60) % 3.0
    twice = np.repeat(np.arange(60), weights.astype(int))
    estimator = LogisticRegression(regParam=0.5, standardization=False, **EXACT)
    expected = whole(estimator, make_frame(X[twice], y[twice], kind="sparse"))
    weighted = estimator.copy().setWeightCol("weight")
    with partitioned(weighted, make_frame(X, y, weights, kind="sparse")) as found:
        np.testing.assert_allclose(learned(found), learned(expected), rtol=0.0, atol=1e-6)


# Features by pairs of columns


def test_indices_that_are_there_twice_add_up(spark, blocks) -> None:
    X, y = rows()
    with partitioned(by_pairs(D, **EXACT), as_pairs(spark, X, y, repeat=True)) as found:
        expected = whole(LogisticRegression(regParam=0.2, **EXACT), blocks(2))
        np.testing.assert_allclose(learned(found), learned(expected), rtol=0.0, atol=1e-6)


def test_feature_numbers_beyond_2_to_the_31(spark, blocks, tmp_path) -> None:
    X, y = rows()
    size = 2**40
    features = np.array([0, 7, 2**31 - 1, 2**31, 2**32 + 1, 2**35, 2**39 + 5, size - 1])
    data = as_pairs(spark, X, y, features)
    expected = whole(LogisticRegression(regParam=0.2, **EXACT), blocks(2))
    with partitioned(by_pairs(size, **EXACT), data) as found:
        assert isinstance(found, DistributedLogisticRegressionModel)
        assert found.numFeatures == size
        wanted = dict(zip(features.tolist(), expected.coefficients.toArray(), strict=True))
        wanted = {feature: value for feature, value in wanted.items() if value != 0.0}
        top = found.topFeatures(20)
        assert dict(top) == pytest.approx(wanted, abs=1e-6)
        assert [abs(value) for _, value in top] == sorted((abs(value) for _, value in top), reverse=True)
        assert found.intercept == pytest.approx(expected.intercept, abs=1e-6)
        assert found.sparsity == pytest.approx(1.0 - len(wanted) / size)
        with pytest.raises(ValueError, match=f"{size} features x 1.*more than {2**24}; use coefficientsRDD, topFeat"):
            _ = found.coefficients
        margins = X @ expected.coefficients.toArray() + expected.intercept
        scored = found.transform(data).select("indices", "label", "prediction", "probability").collect()
        told = {tuple(row.indices): row.probability[1] for row in scored}
        for row, margin in zip(X, margins, strict=True):
            mates = [m for other, m in zip(X, margins, strict=True) if ((other != 0) == (row != 0)).all()]
            key = tuple(features[np.flatnonzero(row)[::-1]].tolist())
            assert min(abs(told[key] - 1 / (1 + np.exp(-m))) for m in mates) < 1e-6
            if len(mates) == 1:
                assert told[key] == pytest.approx(1 / (1 + np.exp(-margin)), abs=1e-6)
        found.save(str(tmp_path / "model"))
        before = sorted(top)
    loaded = DistributedLogisticRegressionModel.load(str(tmp_path / "model"))
    assert loaded.numFeatures == size
    assert sorted(loaded.topFeatures(20)) == before


def test_three_million_features_by_vectors(spark) -> None:
    size = 3_000_000
    vectors = [Vectors.sparse(size, [i, 1_000_000 + i, size - 1], [1.0, -1.0, i % 5]) for i in range(40)]
    schema = T.StructType([T.StructField("features", VectorUDT()), T.StructField("label", T.DoubleType())])
    data = spark.createDataFrame([(v, float(i % 2)) for i, v in enumerate(vectors)], schema)
    with partitioned(LogisticRegression(regParam=0.1, maxIter=3), data) as model:
        assert model.numFeatures == size
        assert model.sparsity == pytest.approx(1.0 - 81 / size, rel=1e-12)
        coefficients = model.coefficients  # within the limit of 2**24
        assert coefficients.size == size
        assert set(coefficients.indices.tolist()) == {
            *range(40), *range(1_000_000, 1_000_040), size - 1
        }  # fmt: skip
        scored = model.transform(data).where("prediction = label").count()
        assert scored == 40  # each row has features of its own
