"""Factorization machines in shards: the steps and scores of whole ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from sparkdml.classification import DistributedFMClassificationModel, FMClassificationModel, FMClassifier
from sparkdml.optim.hashed_random import hashed_gaussians
from sparkdml.regression import DistributedFMRegressionModel, FMRegressor
from sparkdml.wide.factorization_models import Pairwise


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 9))
    X[rng.random(X.shape) < 0.5] = 0.0
    X[:, 3] = 1.0  # constant, and still paired with others
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(80) > 0).astype(float)
    return X, y


@pytest.fixture(scope="module")
def frame(rows, make_frame):
    return make_frame(*rows, kind="sparse").cache()


@pytest.mark.parametrize("fit_linear", [True, False])
@pytest.mark.parametrize("cls", [FMClassifier, FMRegressor])
def test_shards_take_the_steps_of_whole_models(frame, cls, fit_linear) -> None:
    how = {"factorSize": 3, "maxIter": 6, "stepSize": 0.1, "regParam": 0.01, "seed": 5, "fitLinear": fit_linear}
    whole = cls(placement="broadcast", **how).fit(frame)
    shards = cls(placement="partitioned", **how).fit(frame)
    told = shards.toSpark()
    np.testing.assert_allclose(told.factors.toArray(), whole.factors.toArray(), atol=1e-10)
    np.testing.assert_allclose(told.linear.toArray(), whole.linear.toArray(), atol=1e-10)
    assert told.intercept == pytest.approx(whole.intercept, abs=1e-10)
    assert shards.report.stop.reason == whole.report.stop.reason
    ours = sorted(row[0] for row in shards.transform(frame).select("prediction").collect())
    theirs = sorted(row[0] for row in whole.transform(frame).select("prediction").collect())
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_saved_and_loaded(frame, tmp_path) -> None:
    model = FMClassifier(factorSize=2, maxIter=2, placement="partitioned").fit(frame)
    model.write().save(str(tmp_path / "machine"))
    loaded = DistributedFMClassificationModel.load(str(tmp_path / "machine"))
    assert (loaded.factorSize, loaded.numFeatures, loaded.numClasses) == (2, 9, 2)
    columns = ["rawPrediction", "probability", "prediction"]
    ours, theirs = (
        np.array(sorted([*row[0], *row[1], row[2]] for row in each.transform(frame).select(*columns).collect()))
        for each in (loaded, model.toSpark())
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-9)
    assert isinstance(model.toSpark(), FMClassificationModel.__mro__[2])


def test_millions_of_features(spark) -> None:
    data = [([5, 2_999_999], [1.0, 2.0], 1.0), ([5, 7], [1.0, 1.0], 0.0), ([8, 2_999_999], [1.0, -1.0], 0.0)] * 10
    frame = spark.createDataFrame(data, "indices array<long>, values array<double>, label double")
    estimator = FMRegressor(factorSize=2, maxIter=3, stepSize=0.05, placement="partitioned", seed=3)
    pairs = {"indicesCol": "indices", "valuesCol": "values", "numFeatures": 3_000_000}
    model = estimator._set(**pairs).fit(frame)
    assert isinstance(model, DistributedFMRegressionModel)
    assert model.numFeatures == 3_000_000
    assert sorted(i for indices, _ in model.coefficientsRDD.collect() for i in indices) == [5, 7, 8, 2_999_999]
    again = estimator.fit(frame.repartition(5))
    assert again.report.objective == pytest.approx(model.report.objective, rel=1e-12)
    assert model.transform(frame).count() == 30


def test_a_feature_that_is_there_twice_is_not_paired_with_itself() -> None:
    coefficients = np.random.default_rng(1).standard_normal((3, 4))
    scorer = Pairwise(3)
    twice = scorer.partial(np.array([0, 3]), np.array([0, 2, 0], np.int32), np.array([1.0, 2.0, 0.5]), coefficients)
    once = scorer.partial(np.array([0, 2]), np.array([0, 2], np.int32), np.array([1.5, 2.0]), coefficients)
    np.testing.assert_allclose(twice, once)


def test_margins_are_the_double_sum() -> None:
    rng = np.random.default_rng(2)
    X, C = sparse.random(6, 5, 0.6, "csr", random_state=3), rng.standard_normal((5, 4))
    dense = X.toarray()
    expected = 0.7 + dense @ C[:, 0]
    for i in range(5):
        for j in range(i + 1, 5):
            expected += dense[:, i] * dense[:, j] * (C[i, 1:] @ C[j, 1:])
    scorer = Pairwise(3)
    halves = [
        scorer.partial(part.indptr, part.indices, part.data, C[cut])
        for cut, part in ((slice(0, 2), X[:, :2].tocsr()), (slice(2, 5), X[:, 2:].tocsr()))
    ]
    np.testing.assert_allclose(scorer.margins(halves[0] + halves[1], np.array([0.7]))[:, 0], expected)


def test_draws_depend_on_seed_and_feature_alone() -> None:
    features = np.arange(20000, dtype=np.int64) + 2**40
    draws = hashed_gaussians(7, features, 4)
    np.testing.assert_array_equal(hashed_gaussians(7, features[::-1][:5].copy(), 4), draws[::-1][:5])
    assert abs(draws.mean()) < 0.02
    assert abs(draws.std() - 1.0) < 0.02
    assert abs(np.corrcoef(draws.T) - np.eye(4)).max() < 0.03
    assert (hashed_gaussians(8, features[:5], 4) != draws[:5]).all()
