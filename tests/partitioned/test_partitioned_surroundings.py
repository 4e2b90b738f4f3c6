"""What surrounds a fit of a model in shards: refusals, other fits, the driver, and what is left."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.linalg import DenseMatrix
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from sharded_family import D, as_pairs, by_pairs, learned, partitioned, rows

from sparkdml.classification import DistributedLogisticRegressionModel, LinearSVC, LogisticRegression
from sparkdml.regression import LinearRegression


def jobs(spark) -> int:
    return spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()


BOUND = DenseMatrix(1, D, [0.0] * D)


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (LogisticRegression(lowerBoundsOnCoefficients=BOUND), "bounds are set; unset them"),
        (LogisticRegression(solver="newton"), "solver='newton' must see all coefficients; use one of auto, l-bfgs"),
        (LogisticRegression(solver="admm", regParam=0.1), "solver='admm' must see all coefficients"),
        (LogisticRegression(solver="sgd", codec="int8"), "codec='int8' is for whole models"),
        (LogisticRegression(validationIndicatorCol="held"), "validationIndicatorCol is set"),
        (LinearRegression(solver="normal"), "solver='normal' must see all coefficients"),
        (LinearSVC(solver="cocoa", regParam=0.1), "solver='cocoa' must see all coefficients"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_what_cannot_be_partitioned_is_refused_before_any_job(spark, frame, estimator, words: str) -> None:
    before = jobs(spark)
    with pytest.raises(ValueError, match=f"placement='partitioned' is not possible: .*{words}"):
        estimator.copy().setPlacement("partitioned").fit(frame)
    assert jobs(spark) == before


def test_what_the_driver_is_told_does_not_grow_with_features(spark) -> None:
    told = {}
    for size in (50, 5000):
        rng = np.random.default_rng(1)
        X = rng.standard_normal((60, 50))
        features = rng.permutation(size)[:50] if size > 50 else None
        if features is not None:
            X = np.hstack([X, rng.standard_normal((60, size - 50)) * (rng.random((60, size - 50)) < 0.5)])
        y = (X[:, 0] > 0).astype(float)
        with partitioned(by_pairs(size, maxIter=4, tol=0.0), as_pairs(spark, X, y)) as model:
            told[size] = [entry.bytes_driver for entry in model.report.history]
            pulled = model.report.bytes["down"] / model.report.rounds
            assert pulled > 8 * 0.9 * size  # what workers looked at does grow
    assert max(told[5000]) <= max(told[50])
    assert 0 < max(told[50]) < 20_000


def test_a_fit_leaves_nothing_but_the_models_shards(spark, make_frame, datasets_on_disk, local_dir) -> None:
    persisted = spark.sparkContext._jsc.getPersistentRDDs
    before = persisted().size()
    with partitioned(LogisticRegression(maxIter=2), make_frame(*rows(), kind="sparse")) as model:
        assert datasets_on_disk() == []
        assert persisted().size() == before + 1
        assert model.sparsity < 1.0
    assert persisted().size() == before


def test_a_data_set_that_is_kept_is_as_it_was(blocks, datasets_on_disk) -> None:
    data = blocks(2, "sparse")
    homes = {home for handle in data.handles for _, home in handle.homes}
    found = []
    for _ in range(2):
        with partitioned(LogisticRegression(regParam=0.1, maxIter=3, tol=0.0), data) as model:
            found.append(learned(model))
    assert not [path for home in homes for path in _files(home) if "parcel" in path.name]
    np.testing.assert_array_equal(*found)


def _files(home: str):
    return [path for path in Path(home).rglob("*") if path.is_file()]


def test_two_fits_at_once(blocks) -> None:
    strengths = [0.05, 0.5]
    estimators = [LogisticRegression(regParam=r, maxIter=4, tol=0.0, solver="l-bfgs") for r in strengths]
    data = blocks(2)
    alone = []
    for estimator in estimators:
        with partitioned(estimator, data) as model:
            alone.append(learned(model))
    together: dict[int, np.ndarray] = {}

    def fit(number: int) -> None:
        with partitioned(estimators[number], data) as model:
            together[number] = learned(model)

    threads = [threading.Thread(target=fit, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    np.testing.assert_array_equal([together[0], together[1]], alone)


def test_cross_validation(spark, frame) -> None:
    estimator = LogisticRegression(placement="partitioned", maxIter=3, tol=0.0, solver="l-bfgs")
    grid = ParamGridBuilder().addGrid(estimator.regParam, [0.01, 100.0]).build()
    search = CrossValidator(
        estimator=estimator,
        estimatorParamMaps=grid,
        evaluator=BinaryClassificationEvaluator(),
        numFolds=2,
        seed=5,
    )
    found = search.fit(frame)
    assert isinstance(found.bestModel, DistributedLogisticRegressionModel)
    assert found.bestModel.getRegParam() == 0.01
    assert all(0.5 < metric <= 1.0 for metric in found.avgMetrics)
    scored = found.transform(frame).where("prediction = label").count()
    assert scored > 40
    found.bestModel.coefficientsRDD.unpersist()
