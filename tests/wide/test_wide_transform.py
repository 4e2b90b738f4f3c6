"""Transform of models in shards gives what Spark's own models give, whichever way rows and coefficients meet."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import functions as F
from wide_cases import (
    BOUNDS,
    FEATURES,
    MODELS,
    chunks_of,
    coefficients_of,
    frame,
    in_order,
    logistic,
    matrix,
    multinomial,
    pairs,
    regression,
    svc,
    vectors,
)

from sparkdml.wide import DistributedLinearRegressionModel, DistributedLogisticRegressionModel
from sparkdml.wide import records as wide_records

ADDED = ("rawPrediction", "probability", "prediction")


def assert_same(model, df) -> None:
    got = model.transform(df)
    want = model.toSpark().transform(df)
    assert [(f.name, f.dataType, f.metadata) for f in got.schema] == [
        (f.name, f.dataType, f.metadata) for f in want.schema
    ]
    rows, expected = in_order(got.collect()), in_order(want.collect())
    assert len(rows) == len(expected)
    for row, other in zip(rows, expected, strict=True):
        assert row[: len(df.columns)] == other[: len(df.columns)]
        for name in set(ADDED) & set(got.columns):
            np.testing.assert_allclose(
                *[np.array(r[name].toArray() if name != "prediction" else r[name]) for r in (row, other)],
                rtol=1e-12,
                atol=1e-14,
            )


@pytest.mark.parametrize("name", MODELS)
def test_every_model_answers_as_spark_does(spark, path, name) -> None:
    assert_same(MODELS[name](spark), frame(spark, matrix()))


@pytest.mark.parametrize(("kind", "partitions"), [("dense", 7), ("sparse", 1)])
def test_kinds_of_vectors_and_numbers_of_partitions(spark, path, kind, partitions) -> None:
    assert_same(logistic(spark), frame(spark, matrix(), kind, partitions))


@pytest.mark.parametrize("kind", ["doubles", "floats"])
def test_arrays_are_features_too(spark, path, kind) -> None:
    X = matrix().astype(np.float32).astype(np.float64)
    df, model = frame(spark, X, kind), regression(spark)
    rows = model.transform(df).select("id", "features", "prediction").collect()
    want = X @ coefficients_of()[:, 0] + 1.5
    assert {(r.id, tuple(r.features)): pytest.approx(r.prediction) for r in rows} == {
        (i % (len(X) - 1), tuple(x)): pytest.approx(m, rel=1e-12) for i, (x, m) in enumerate(zip(X, want, strict=True))
    }


def test_more_shards_than_rows_and_more_partitions_than_either(spark, path) -> None:
    model = DistributedLinearRegressionModel(chunks_of(spark, coefficients_of(), range(41)), range(41), [0.0])
    X = matrix(3)
    rows = model.transform(frame(spark, X, partitions=5)).collect()
    assert sorted(r.prediction for r in rows) == pytest.approx(sorted(X @ coefficients_of()[:, 0]))


@pytest.mark.parametrize("partitions", [0, 3])
def test_no_rows_give_no_rows_with_all_columns(spark, path, partitions) -> None:
    df = frame(spark, matrix()).where("id < 0")
    if partitions == 0:
        df = spark.createDataFrame(spark.sparkContext.emptyRDD(), df.schema)
    got = multinomial(spark).transform(df)
    assert got.collect() == []
    assert got.columns == [*df.columns, *ADDED]


def test_nothing_runs_before_rows_are_asked_for(spark, path, jobs_run) -> None:
    rows = frame(spark, matrix())
    # sorts, shuffles and joins start jobs where frames become RDDs
    df = rows.join(F.broadcast(rows.select("id").distinct()), "id").orderBy("note").repartition(3)
    model, before = logistic(spark), jobs_run()
    got = model.transform(df)
    assert jobs_run() == before
    assert got.count() == df.count()
    assert jobs_run() > before


def test_columns_left_out_and_all_left_out(spark, path) -> None:
    df = frame(spark, matrix())
    for left_out in ({"rawPredictionCol"}, {"probabilityCol", "predictionCol"}):
        assert_same(logistic(spark).copy()._set(**dict.fromkeys(left_out, "")), df)
    none = dict.fromkeys(("rawPredictionCol", "probabilityCol", "predictionCol"), "")
    assert logistic(spark)._set(**none).transform(df).columns == df.columns


def test_threshold(spark, routed) -> None:
    df = frame(spark, matrix())
    assert_same(logistic(spark).setThreshold(0.2), df)
    assert_same(logistic(spark).setThreshold(0.2).setRawPredictionCol(""), df)


def test_thresholds(spark, routed) -> None:
    df = frame(spark, matrix())
    assert_same(logistic(spark).setThresholds([0.2, 0.7]), df)
    assert_same(multinomial(spark).setThresholds([0.5, 0.1, 0.0]), df)
    assert_same(svc(spark).setThreshold(0.7), df)
    with pytest.raises(ValueError, match="2 numbers for 3 classes"):
        multinomial(spark).setThresholds([0.5, 0.5]).transform(df)


def test_nan_stays_nan(spark, path) -> None:
    X = matrix()
    X[3, 20], X[4, np.flatnonzero(coefficients_of()[:, 0] == 0)[0]], X[5, 2] = np.nan, np.nan, np.inf
    df = frame(spark, X, "dense").select("id", "note", "features")
    rows = {r.id: r for r in multinomial(spark).transform(df).collect()}
    want = {r.id: r for r in multinomial(spark).toSpark().transform(df).collect()}
    for number in rows:
        np.testing.assert_allclose(rows[number].rawPrediction.toArray(), want[number].rawPrediction.toArray())
        assert rows[number].prediction == want[number].prediction
    assert np.isnan(rows[3].rawPrediction.toArray()).all()
    assert np.isnan(rows[4].rawPrediction.toArray()).all()


def test_pairs_of_columns_in_any_order_and_with_repeats(spark, path) -> None:
    X = matrix()
    rng = np.random.default_rng(0)
    given = []
    for row in X:
        at = rng.permutation(np.flatnonzero(row))
        given.append((np.append(at, at), np.append(row[at] * 0.25, row[at] * 0.75)))
    model = logistic(spark).setIndicesCol("indices").setValuesCol("values")
    df = pairs(spark, given)
    for frame_ in (df, df.withColumn("indices", F.col("indices").cast("array<int>"))):
        got = {r.id: r.rawPrediction[1] for r in model.transform(frame_).collect()}
        assert got == {i: pytest.approx(m) for i, m in enumerate(X @ coefficients_of()[:, 0] + 0.3)}


def test_feature_numbers_beyond_two_to_the_31(spark) -> None:
    features = 2**33 + 5
    bounds = [0, 10, 2**31 - 2, 2**32, 2**33, features]
    at = np.array([3, 2**31 - 3, 2**31 + 7, 2**32, features - 1])
    coefficients = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    shards = [[(at[k : k + 1], coefficients[k : k + 1, None])] for k in (0, 1, 2, 3, 4)]
    chunks = spark.sparkContext.parallelize(shards, 5).flatMap(list)
    model = DistributedLogisticRegressionModel(chunks, bounds, [0.5]).setIndicesCol("indices").setValuesCol("values")
    df = pairs(spark, [(at, np.ones(5)), ([features - 1, 11], [1.0, 5.0]), ([], [])])
    got = {r.id: r.rawPrediction[1] for r in model.transform(df).collect()}
    assert got == {0: 31.5, 1: 16.5, 2: 0.5}
    assert model.numFeatures == features
    assert model.predict(([2**32], [-1.0])) == 0.0
    with pytest.raises(ValueError, match=f"{features} features x 1 = {features} numbers.*16777216.*topFeatures"):
        _ = model.coefficients
    with pytest.raises(ValueError, match="toSpark would bring"):
        model.toSpark()
    assert model.topFeatures(2) == [(features - 1, 16.0), (2**32, 8.0)]


def test_bad_rows_end_the_job_with_the_column_and_the_sizes(spark, path) -> None:
    model = regression(spark).setIndicesCol("indices").setValuesCol("values")
    with pytest.raises(Exception, match=f"column 'indices' has the index {FEATURES} in row 0.*{FEATURES} features"):
        model.transform(pairs(spark, [([1, FEATURES], [1.0, 1.0])], 1)).collect()


def test_wrong_columns_are_refused_at_once(spark) -> None:
    df = frame(spark, matrix())
    with pytest.raises(TypeError, match="'note' is string; features must be a vector"):
        regression(spark).setFeaturesCol("note").transform(df)
    with pytest.raises(ValueError, match="'nowhere' is not there; the columns are id, note"):
        regression(spark).setFeaturesCol("nowhere").transform(df)
    with pytest.raises(ValueError, match="'note' is there already"):
        regression(spark).setPredictionCol("note").transform(df)
    with pytest.raises(ValueError, match="indicesCol is set without the other"):
        regression(spark).setIndicesCol("note").transform(df)
    with pytest.raises(TypeError, match="'values' is array<double>; it must be array<bigint>"):
        regression(spark).setIndicesCol("values").setValuesCol("values").transform(pairs(spark, [([], [])]))


def test_names_may_repeat_and_hold_dots(spark) -> None:
    df = frame(spark, matrix()).select("id", F.col("features").alias("a.b"), F.lit(1).alias("x"), F.lit(2).alias("x"))
    got = regression(spark).setFeaturesCol("a.b").transform(df)
    assert got.columns == ["id", "a.b", "x", "x", "prediction"]
    assert {(row[2], row[3]) for row in got.collect()} == {(1, 2)}


def test_payloads_in_many_pieces_and_batches_of_few_rows(spark, path, monkeypatch) -> None:
    monkeypatch.setattr(wide_records, "piece_bytes", lambda rows: 64)
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "3")
    try:
        assert_same(multinomial(spark), frame(spark, matrix(60)))
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)


def test_persisted_shards_stay_where_they_are(spark, routed) -> None:
    df, model = frame(spark, matrix()), logistic(spark)
    assert_same(model.persist(), df)
    plan = model.copy().transform(df)._jdf.queryExecution().executedPlan().toString()
    planned = plan.split("InMemoryTableScan")[0]
    assert "Union" in planned
    assert planned.count("Exchange") == 1  # of sums; that of requests comes after the shards in the plan
    model.close()
    assert "InMemoryTableScan" not in model.transform(df)._jdf.queryExecution().executedPlan().toString()
    assert model.transform(df).count() == df.count()


def test_two_runs_are_equal_to_the_last_bit(spark, routed) -> None:
    df, model = frame(spark, matrix(), partitions=5), regression(spark)
    first, second = (in_order(model.transform(df).collect()) for _ in range(2))
    assert first == second


def test_predict_one_row(spark) -> None:
    X = matrix(6)
    for name, make in MODELS.items():
        model, stock = make(spark), make(spark).toSpark()
        for vector in vectors(X, "mixed")[:3]:
            assert model.predict(vector) == pytest.approx(stock.predict(vector), rel=1e-12)
            if name != "regression":
                np.testing.assert_allclose(model.predictRaw(vector), stock.predictRaw(vector), rtol=1e-12)
            if name in ("logistic", "multinomial"):
                probability = model.predictProbability(vector)
                np.testing.assert_allclose(probability, stock.predictProbability(vector), rtol=1e-12)
    with pytest.raises(ValueError, match="3 features where the model has 40"):
        regression(spark).predict([1.0, 2.0, 3.0])


def test_params_and_copies(spark, path) -> None:
    df, model = frame(spark, matrix()), logistic(spark)
    other = model.copy({model.predictionCol: "p", model.threshold: 0.9})
    assert other.coefficientsRDD is model.coefficientsRDD
    assert other.transform(df).columns[-1] == "p"
    assert model.transform(df, {model.predictionCol: "q"}).columns[-1] == "q"
    assert model.getPredictionCol() == "prediction"
    stock = other.toSpark()
    assert (stock.uid, stock.getPredictionCol(), stock.getThreshold()) == (model.uid, "p", 0.9)


def test_built_without_chunks_everything_says_so(spark) -> None:
    model = DistributedLogisticRegressionModel()
    for use in (
        lambda: model.numFeatures,
        lambda: model.transform(frame(spark, matrix())),
        lambda: model.topFeatures(1),
    ):
        with pytest.raises(ValueError, match="no coefficients"):
            use()
    with pytest.raises(ValueError, match="one number more than the 6 partitions"):
        DistributedLinearRegressionModel(chunks_of(spark, coefficients_of()), BOUNDS[:-1])
    with pytest.raises(ValueError, match="binomial model of 3 classes"):
        logistic(spark, classes=3)
