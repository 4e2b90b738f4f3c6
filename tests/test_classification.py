"""Degenerate inputs, refusals and life cycle of the classifiers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml import classification as stock
from pyspark.ml.feature import StringIndexer, VectorAssembler
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql.types import DoubleType, StructField, StructType

from sparkdml.classification import LogisticRegression
from sparkdml.data import from_dataframe

SCHEMA = StructType(
    [
        StructField("features", VectorUDT()),
        StructField("label", DoubleType()),
        StructField("weight", DoubleType()),
    ]
)


def frame_of(spark, rows, partitions=2):
    """Rows are (features, label) or (features, label, weight)."""
    full = [(Vectors.dense(r[0]), float(r[1]), float(r[2] if len(r) > 2 else 1.0)) for r in rows]
    return spark.createDataFrame(spark.sparkContext.parallelize(full, partitions), SCHEMA)


def some_rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    y = (X[:, 0] + rng.standard_normal(n) > 0).astype(float)
    return [(X[i].tolist(), y[i]) for i in range(n)]


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_with_intercept_predicts_it_for_certain(spark, tmp_path, label):
    frame = frame_of(spark, [([1.0, 2.0], label), ([2.0, 1.0], label), ([0.0, 1.0], label)])
    model = LogisticRegression().fit(frame)
    assert model.coefficients.toArray().tolist() == [0.0, 0.0]
    assert model.intercept == (math.inf if label else -math.inf)
    assert model.report.rounds == 0
    path = str(tmp_path / "model")
    model.write().save(path)
    for candidate in (model, stock.LogisticRegressionModel.load(path)):
        rows = candidate.transform(frame).collect()
        assert [r.prediction for r in rows] == [label] * 3
        assert all(r.probability[int(label)] == 1.0 for r in rows)


def test_one_class_without_intercept_trains_and_is_finite(spark):
    frame = frame_of(spark, [([1.0, 2.0], 1), ([2.0, 1.0], 1), ([0.5, 1.0], 1)])
    model = LogisticRegression(fitIntercept=False, regParam=0.1).fit(frame)
    assert np.isfinite(model.coefficients.toArray()).all()


def test_label_gaps_count_as_classes_without_rows(spark):
    frame = frame_of(spark, [([1.0, 0.0], 1), ([0.0, 1.0], 3), ([1.0, 1.0], 1), ([0.0, 0.0], 3)])
    model = LogisticRegression(regParam=0.1).fit(frame)
    expected = stock.LogisticRegression(regParam=0.1).fit(frame)
    assert model.numClasses == expected.numClasses == 4
    row = model.transform(frame).first()
    assert len(row.probability) == 4
    assert sum(row.probability) == pytest.approx(1.0)


def test_weight_two_is_the_row_twice_and_weight_zero_is_no_row(spark):
    rows = some_rows()
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 3, len(rows))
    weighted = frame_of(spark, [(*r, c) for r, c in zip(rows, counts, strict=True)])
    repeated = frame_of(spark, [r for r, c in zip(rows, counts, strict=True) for _ in range(c)])
    params = {"regParam": 0.05, "standardization": False, "tol": 1e-12}
    one = LogisticRegression(weightCol="weight", **params).fit(weighted)
    other = LogisticRegression(**params).fit(repeated)
    np.testing.assert_allclose(one.coefficients.toArray(), other.coefficients.toArray(), atol=1e-8)
    assert one.intercept == pytest.approx(other.intercept, abs=1e-8)


def test_a_zero_weight_row_may_hold_a_class_of_its_own(spark):
    rows = [(*r, 1.0) for r in some_rows()]
    model = LogisticRegression(weightCol="weight").fit(frame_of(spark, [*rows, ([0.0] * 3, 7, 0.0)]))
    assert model.numClasses == 2


@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_partitioning_does_not_change_the_model(spark, partitions):
    params = {"regParam": 0.01, "tol": 1e-10}
    rows = sorted(some_rows(), key=lambda row: row[1])
    reference = LogisticRegression(**params).fit(frame_of(spark, rows, 1))
    found = LogisticRegression(**params).fit(frame_of(spark, rows, partitions).coalesce(partitions))
    np.testing.assert_allclose(found.coefficients.toArray(), reference.coefficients.toArray(), atol=1e-7)


def test_two_fits_of_one_frame_are_bit_equal(spark):
    frame = frame_of(spark, some_rows())
    one, two = (LogisticRegression(regParam=0.01).fit(frame) for _ in range(2))
    assert one.coefficients == two.coefficients
    assert one.intercept == two.intercept


def test_union_limit_and_filter_upstream(spark):
    frame = frame_of(spark, some_rows(), 8)
    for shaped in (frame.union(frame), frame.limit(30), frame.where("label = 1 or weight > 0")):
        assert LogisticRegression(regParam=0.1).fit(shaped).report.stop.reason == "converged"


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"elasticNetParam": 1.5, "regParam": 0.1}, "elasticNetParam=1.5"),
        ({"solver": "magic"}, "solver='magic'"),
        ({"regParam": -1.0}, "regParam=-1.0"),
        ({"maxIter": -1}, "maxIter=-1"),
        ({"placement": "cloud"}, "placement='cloud'"),
        ({"family": "poisson"}, "family='poisson'"),
    ],
)
def test_parameters_that_cannot_be_honoured_are_refused_before_any_job(spark, params, text):
    frame = frame_of(spark, some_rows())
    spark.sparkContext.setJobGroup("refusal", "none may start")
    with pytest.raises(ValueError, match=text):
        LogisticRegression(**params).fit(frame)
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup("refusal")
    spark.sparkContext._jsc.clearJobGroup()


def test_binomial_family_refuses_a_third_class(spark):
    frame = frame_of(spark, [([1.0], 0), ([2.0], 1), ([3.0], 2)])
    with pytest.raises(ValueError, match="largest label is 2"):
        LogisticRegression(family="binomial").fit(frame)


def test_a_prepared_dataset_serves_many_fits(spark):
    frame = frame_of(spark, some_rows())
    direct = LogisticRegression(regParam=0.1).fit(frame)
    with from_dataframe(frame) as dataset:
        fitted = [LogisticRegression(regParam=r).fit(dataset) for r in (0.1, 0.2)]
    assert fitted[0].coefficients == direct.coefficients
    assert fitted[0].report.seconds["ingest"] == 0.0
    assert fitted[1].coefficients != direct.coefficients


def test_nothing_stays_cached_or_broadcast_after_a_fit(spark):
    frame = frame_of(spark, some_rows())
    before = spark.sparkContext._jsc.getPersistentRDDs().size()
    LogisticRegression().fit(frame)
    with pytest.raises(ValueError, match="allowed|refused|family"):
        LogisticRegression(family="nonsense").fit(frame)
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before


def test_wide_coefficients_travel_as_broadcasts(spark):
    """More coefficients than a task may carry: the closure stays small and the answer the same."""
    size = 20_000
    rng = np.random.default_rng(5)
    rows = [
        (Vectors.sparse(size, {int(j): 1.0 for j in rng.integers(0, size, 8)}), float(i % 2), 1.0) for i in range(80)
    ]
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), SCHEMA)
    params = {"regParam": 0.1, "tol": 1e-10}
    found = LogisticRegression(**params).fit(frame)
    expected = stock.LogisticRegression(**params).fit(frame)
    np.testing.assert_allclose(found.coefficients.toArray(), expected.coefficients.toArray(), atol=1e-5)


def test_estimator_in_a_pipeline_survives_saving(spark, tmp_path):
    frame = spark.createDataFrame(
        [(1.0, 2.0, "no"), (2.0, 0.5, "yes"), (0.3, 2.2, "no"), (3.0, 0.1, "yes")],
        "a double, b double, answer string",
    )
    pipeline = Pipeline(
        stages=[
            StringIndexer(inputCol="answer", outputCol="label"),
            VectorAssembler(inputCols=["a", "b"], outputCol="features"),
            LogisticRegression(regParam=0.1, maxIter=20),
        ]
    )
    pipeline.write().save(str(tmp_path / "pipeline"))
    loaded = Pipeline.load(str(tmp_path / "pipeline"))
    estimator = loaded.getStages()[-1]
    assert isinstance(estimator, LogisticRegression)
    assert estimator.getRegParam() == 0.1
    assert not estimator.isSet("tol")
    assert estimator.hasDefault("tol")
    model = loaded.fit(frame)
    model.write().save(str(tmp_path / "model"))
    again = PipelineModel.load(str(tmp_path / "model"))
    assert [r.prediction for r in again.transform(frame).collect()] == [
        r.prediction for r in model.transform(frame).collect()
    ]


def test_numpy_scalars_are_stored_as_plain_numbers(spark, tmp_path):
    estimator = LogisticRegression(maxIter=np.int64(5), regParam=np.float32(0.5))
    assert type(estimator.getMaxIter()) is int
    assert type(estimator.getRegParam()) is float
    estimator.write().save(str(tmp_path / "estimator"))
    assert LogisticRegression.load(str(tmp_path / "estimator")).getMaxIter() == 5


def test_every_public_name_of_pysparks_estimator_is_there():
    theirs = {name for name in dir(stock.LogisticRegression) if not name.startswith("_")}
    assert theirs <= set(dir(LogisticRegression))


def test_setters_chain_as_in_pyspark(spark):
    estimator = LogisticRegression().setMaxIter(7).setRegParam(0.1).setTol(1e-3).setWeightCol("weight")
    assert (estimator.getMaxIter(), estimator.getRegParam(), estimator.getTol()) == (7, 0.1, 1e-3)
    assert estimator.fit(frame_of(spark, some_rows())).report.rounds >= 1


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"aggregationDepth": 1}, "aggregationDepth=1"),
        ({"elasticNetParam": 2.0}, "elasticNetParam=2.0"),
        ({"maxBlockSizeInMB": -1.0}, "maxBlockSizeInMB=-1.0"),
        ({"thresholds": [0.2, 0.3, 0.5]}, "thresholds has 3 values"),
    ],
)
def test_values_that_would_break_the_model_later_are_refused_by_fit(spark, params, text):
    with pytest.raises(ValueError, match=text):
        LogisticRegression(**params).fit(frame_of(spark, some_rows()))


@pytest.mark.parametrize("params", [{"weightCol": "weight"}, {"labelCol": "weight"}, {"featuresCol": "label"}])
def test_a_dataset_of_other_columns_than_the_estimators_is_refused(spark, params):
    with from_dataframe(frame_of(spark, some_rows())) as dataset:
        with pytest.raises(ValueError, match=next(iter(params))):
            LogisticRegression(**params).fit(dataset)
        LogisticRegression(labelCol="label").fit(dataset)


def test_a_dataset_of_numbers_is_not_one_of_classes(spark):
    frame = frame_of(spark, some_rows())
    with from_dataframe(frame, classes=False) as dataset, pytest.raises(ValueError, match="classes=True"):
        LogisticRegression().fit(dataset)


def test_featurescols_none_is_the_default(spark):
    assert LogisticRegression(featuresCols=None, maxIter=2).fit(frame_of(spark, some_rows())).report.rounds > 0


def test_columns_whose_means_dwarf_their_deviations_still_train(spark):
    """Two time stamps in milliseconds, a second apart: their covariance drowns in rounding."""
    rng = np.random.default_rng(2)
    started = 1.7e12 + 1e6 * rng.standard_normal(200)
    rows = [([s, s + 1000 * rng.random(), 5.0], float(rng.random() < 0.5)) for s in started]
    model = LogisticRegression().fit(frame_of(spark, rows))
    assert np.isfinite(model.coefficients.toArray()).all()


def test_a_statistics_file_that_the_driver_cannot_read_is_read_by_the_workers(spark, monkeypatch):
    from sparkdml.data import dataset as module

    def unreadable(*_):
        raise PermissionError("another user's file")

    expected = LogisticRegression().fit(frame_of(spark, some_rows())).coefficients
    monkeypatch.setattr(module, "read_statistics", unreadable)
    assert LogisticRegression().fit(frame_of(spark, some_rows())).coefficients == expected


@pytest.mark.parametrize("intercept", [True, False])
def test_only_label_zero_still_gives_two_raw_predictions(spark, intercept):
    """A fold of cross-validation may hold one class; the evaluator refuses vectors of length 1."""
    from pyspark.ml.evaluation import BinaryClassificationEvaluator

    train = frame_of(spark, [([1.0, 2.0], 0), ([2.0, 1.0], 0), ([0.0, 1.0], 0)])
    model = LogisticRegression(fitIntercept=intercept, regParam=0.1).fit(train)
    scored = model.transform(frame_of(spark, [([1.0, 0.0], 0), ([0.0, 1.0], 1)]))
    row = scored.first()
    assert (model.numClasses, len(row.rawPrediction), len(row.probability)) == (2, 2, 2)
    assert np.isfinite(BinaryClassificationEvaluator().evaluate(scored))
