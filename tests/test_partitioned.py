"""Models whose coefficients are in shards: the fits of whole models, whatever rows, features and shards look like."""

from __future__ import annotations

import gc
import threading
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.linalg import DenseMatrix, Vectors, VectorUDT
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import types as T

from sparkdml.classification import (
    DistributedLogisticRegressionModel,
    LinearSVC,
    LogisticRegression,
)
from sparkdml.data import from_dataframe, sources
from sparkdml.placement.partitioned import rounds
from sparkdml.regression import LinearRegression

D = 8
#: What solvers of whole models are compared by, to the last digits.
EXACT = {"tol": 1e-10, "maxIter": 200}
STEPS = {"solver": "sgd", "miniBatchFraction": 1.0, "maxIter": 3, "tol": 0.0, "stepSize": 0.1}


def rows(classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """A feature never seen (2), one constant (3), one in every row (4); empty rows; a row that has all but one."""
    rng = np.random.default_rng(12)
    X = rng.standard_normal((60, D)) * np.array([1.0, 3.0, 1.0, 1.0, 0.5, 1.0, 10.0, 1.0])
    X[rng.random(X.shape) < 0.6] = 0.0
    X[:, 4] = rng.standard_normal(60) + 2.0
    X[5:8] = 0.0
    X[59] = rng.standard_normal(D)
    X[:, 2], X[:, 3] = 0.0, 1.5
    margins = X[:, :3] @ np.array([1.0, -0.5, 0.0]) + 0.1 * X[:, 6] + rng.standard_normal(60)
    if classes == 0:
        return X, 7.0 + 3.0 * margins
    return X, np.digitize(margins, np.linspace(-1.0, 1.0, classes + 1)[1:-1]).astype(float)


def learned(model) -> np.ndarray:
    """Intercepts, then coefficients."""
    if hasattr(model, "coefficientMatrix"):
        return np.concatenate([model.interceptVector.toArray(), model.coefficientMatrix.toArray().ravel()])
    return np.append(model.intercept, model.coefficients.toArray())


@contextmanager
def partitioned(estimator, data):
    """The model in shards, which are freed at the end of the block."""
    model = estimator.copy().setPlacement("partitioned").fit(data)
    try:
        yield model
    finally:
        model.coefficientsRDD.unpersist()


def whole(estimator, data):
    """``local`` takes the steps of ``broadcast`` (see test_cooperation.py), without a job a round."""
    return estimator.copy().setPlacement("local").fit(data)


def assert_same(estimator, data, whole_data=None, atol: float = 1e-6) -> None:
    expected = whole(estimator, data if whole_data is None else whole_data)
    with partitioned(estimator, data) as found:
        assert found.report.placement.startswith("partitioned: asked for")
        assert found.numFeatures == expected.numFeatures
        np.testing.assert_allclose(learned(found), learned(expected), rtol=0.0, atol=atol)
        assert found.report.objective == pytest.approx(expected.report.objective, rel=1e-6, abs=1e-9)


@pytest.fixture(scope="module")
def blocks(make_frame):
    """``blocks(classes, kind)``: the rows as a data set of two workers, made once."""
    with ExitStack() as stack:
        made = {}

        def prepared(classes: int = 2, kind: str = "mixed"):
            if (classes, kind) not in made:
                frame = make_frame(*rows(classes), kind=kind)
                made[classes, kind] = stack.enter_context(from_dataframe(frame, classes=classes > 0, wide=True))
            return made[classes, kind]

        yield prepared


@pytest.fixture(scope="module")
def frame(make_frame):
    made = make_frame(*rows(), kind="sparse").cache()
    made.count()
    yield made
    made.unpersist()


@pytest.fixture(autouse=True)
def nothing_is_left(request, spark):
    """No RDD outlives a test, nor any file but those of the module's own data sets."""
    before = spark.sparkContext._jsc.getPersistentRDDs().size()
    yield
    gc.collect()
    if not {"blocks", "frame"} & set(request.fixturenames):
        assert spark.sparkContext._jsc.getPersistentRDDs().size() <= before


RAW = {"standardization": False, "fitIntercept": False, **EXACT}
FITS = {
    "logistic": (2, LogisticRegression(regParam=0.2, **EXACT)),
    "logistic-l1": (2, LogisticRegression(regParam=0.1, elasticNetParam=0.7, **EXACT)),
    "logistic-raw": (2, LogisticRegression(regParam=0.5, **RAW)),
    "softmax": (3, LogisticRegression(regParam=0.2, **EXACT)),
    "softmax-l1": (3, LogisticRegression(regParam=0.1, elasticNetParam=0.5, **EXACT)),
    "softmax-free": (2, LogisticRegression(family="multinomial", **EXACT)),
    "squared": (0, LinearRegression(regParam=0.5, solver="l-bfgs", **EXACT)),
    "squared-l1": (0, LinearRegression(regParam=0.5, elasticNetParam=0.5, solver="l-bfgs", **EXACT)),
    "squared-raw": (0, LinearRegression(regParam=3.0, solver="l-bfgs", **RAW)),
    "huber": (0, LinearRegression(loss="huber", regParam=0.2, **EXACT)),
}


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


# Workers, shards and rows


@pytest.mark.parametrize(
    ("workers", "kind", "shards"), [(1, "sparse", 1), (2, "dense", 16), (7, "mixed", 16), (7, "sparse", 1)]
)
def test_the_number_of_workers_and_shards_does_not_matter(
    make_frame, monkeypatch, workers: int, kind: str, shards: int
) -> None:
    """16 are more shards than features."""
    monkeypatch.setattr(sources, "task_slots", lambda sc: workers)
    monkeypatch.setattr(rounds, "task_slots", lambda sc: shards)
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


def as_pairs(spark, X, y, features=None, repeat: bool = False):
    """Non-zero values in a falling order of features; with ``repeat`` in two halves each, which add up."""
    features = np.arange(X.shape[1]) if features is None else np.asarray(features)
    data = []
    for row, label in zip(X, y, strict=True):
        at = np.flatnonzero(row)[::-1]
        indices, values = features[at].tolist(), row[at].tolist()
        if repeat:
            indices, values = indices + indices, [0.25 * v for v in values] + [0.75 * v for v in values]
        data.append((indices, values, float(label)))
    return spark.createDataFrame(
        spark.sparkContext.parallelize(data, 2), "indices array<long>, values array<double>, label double"
    )


def by_pairs(size: int, **params):
    estimator = LogisticRegression(regParam=0.2, **params)
    return estimator._set(indicesCol="indices", valuesCol="values", numFeatures=size)


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


# How fits begin and end


def test_no_iterations_leave_the_start(blocks) -> None:
    assert_same(LogisticRegression(maxIter=0), blocks(2), atol=1e-12)
    assert_same(LinearRegression(maxIter=0, solver="l-bfgs"), blocks(0), atol=1e-12)


@pytest.mark.parametrize("name", ["logistic", "softmax", "squared", "huber", "svc"])
def test_an_initial_model_is_where_the_fit_starts(blocks, name: str) -> None:
    classes, estimator = FITS[name] if name in FITS else (2, LinearSVC(regParam=0.1, tol=1e-6))
    data = blocks(classes)
    start = whole(estimator.copy().setMaxIter(3).setTol(0.0), data)
    again = estimator.copy().setMaxIter(0).setInitialModel(start)
    assert_same(again, data, atol=1e-10)
    with partitioned(again, data) as found:
        np.testing.assert_allclose(learned(found), learned(start), rtol=0.0, atol=1e-10)


def test_an_initial_model_may_be_in_shards(blocks) -> None:
    estimator = LogisticRegression(regParam=0.05, solver="l-bfgs", maxIter=4, tol=0.0)
    with partitioned(estimator, blocks(2)) as start:
        again = estimator.copy().setMaxIter(0).setInitialModel(start)
        with partitioned(again, blocks(2)) as found:
            np.testing.assert_allclose(learned(found), learned(start), rtol=0.0, atol=1e-12)


def test_an_initial_model_of_one_class_does_no_harm(blocks, make_frame) -> None:
    X, _ = rows()
    start = LogisticRegression().fit(make_frame(X, np.ones(60)))
    assert start.intercept == np.inf
    assert_same(LogisticRegression(regParam=0.2, **EXACT).setInitialModel(start), blocks(2))


def test_an_initial_model_of_other_features_is_refused(blocks, make_frame) -> None:
    X, y = rows()
    start = LogisticRegression(maxIter=1).fit(make_frame(X[:, :3], y))
    with pytest.raises(ValueError, match=r"initial model has coefficients of shape \(3, 1\), but the data need"):
        LogisticRegression(placement="partitioned").setInitialModel(start).fit(blocks(2))


def test_a_callback_ends_the_fit_with_the_best_point(blocks) -> None:
    estimator = LogisticRegression(regParam=0.05, standardization=False, tol=0.0, solver="l-bfgs")
    estimator.setOnRound(lambda history: len(history.rounds) == 4)
    with partitioned(estimator, blocks(2)) as model:
        assert (model.report.stop.reason, model.report.rounds) == ("callback", 4)
        X, y = rows()
        coefficients = model.coefficients.toArray()
        margins = X @ coefficients + model.intercept
        objective = np.mean(np.logaddexp(0.0, margins) - y * margins) + 0.025 * coefficients @ coefficients
        assert model.report.objective == pytest.approx(objective, rel=1e-12)
        assert objective < model.report.history[0].objective


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class(make_frame, label: float) -> None:
    X, _ = rows()
    data = make_frame(X, np.full(60, label), kind="sparse")
    model = LogisticRegression(placement="partitioned").fit(data)
    assert model.intercept == (np.inf if label else -np.inf)
    assert model.numFeatures == D
    assert model.sparsity == 1.0
    assert model.transform(data).where(f"prediction = {label}").count() == 60


def test_a_constant_label(make_frame) -> None:
    X, _ = rows()
    data = make_frame(X, np.full(60, 3.0), kind="sparse")
    model = LinearRegression(placement="partitioned").fit(data)
    assert (model.intercept, model.numFeatures, model.sparsity) == (3.0, D, 1.0)
    assert model.transform(data).where("prediction = 3.0").count() == 60
    free = LinearRegression(placement="partitioned", fitIntercept=False, **EXACT)
    with partitioned(free, data) as model:
        # a constant feature's coefficient is 0, as in Spark
        assert model.coefficients[3] == 0.0
        X[:, 3] = 0.0
        best = np.linalg.lstsq(X, np.full(60, 3.0), rcond=None)[0]
        np.testing.assert_allclose(model.coefficients.toArray(), best, atol=1e-6)


def test_a_constant_label_without_intercept_takes_no_penalty_here_either(make_frame) -> None:
    X, _ = rows()
    data = make_frame(X, np.full(60, 3.0), kind="sparse")
    estimator = LinearRegression(fitIntercept=False, regParam=0.1)
    with (
        pytest.raises(ValueError, match="every label is 3.*regParam=0.1.*fitIntercept"),
        partitioned(estimator, data),
    ):
        pass


def test_steps_that_diverge_say_what_to_change_and_leave_nothing(spark, make_frame, datasets_on_disk) -> None:
    before = spark.sparkContext._jsc.getPersistentRDDs().size()
    estimator = LogisticRegression(placement="partitioned", **{**STEPS, "optimizer": "sgd", "stepSize": 1e9})
    with pytest.raises(ValueError, match="use a smaller stepSize"):
        estimator.copy().setMaxIter(50).fit(make_frame(*rows()))
    assert datasets_on_disk() == []
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before


def test_values_whose_squares_overflow_are_refused(make_frame, datasets_on_disk) -> None:
    X, y = rows()
    X[17, 5] = 1e200
    estimator = LogisticRegression(placement="partitioned")
    with pytest.raises(ValueError, match="column 'features': feature 5 has values near"):
        estimator.fit(make_frame(X, y, kind="sparse"))
    assert datasets_on_disk() == []


# What surrounds a fit


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
    from pathlib import Path

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
