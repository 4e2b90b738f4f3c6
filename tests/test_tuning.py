"""pyspark's tuning and reductions over our estimators, and what several fits of one DataFrame share."""

from __future__ import annotations

import gc
import threading
from multiprocessing.pool import ThreadPool

import numpy as np
import pytest
from linear_family import ESTIMATORS, numbers, rows, stock
from pyspark.ml import Pipeline
from pyspark.ml.classification import OneVsRest, OneVsRestModel
from pyspark.ml.evaluation import (
    BinaryClassificationEvaluator,
    MulticlassClassificationEvaluator,
    RegressionEvaluator,
)
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.tuning import (
    CrossValidator,
    CrossValidatorModel,
    ParamGridBuilder,
    TrainValidationSplit,
    TrainValidationSplitModel,
)
from pyspark.sql import functions as F

import sparkdml.estimator
from sparkdml.classification import LinearSVC, LogisticRegression

#: Of fits that are compared with pyspark's.
EXACT = {
    "LogisticRegression": {"tol": 1e-11},
    "LinearSVC": {"tol": 1e-4, "maxIter": 40},
    "LinearRegression": {"tol": 1e-12, "solver": "l-bfgs"},
    "GeneralizedLinearRegression": {"tol": 1e-10},
}
#: The relative difference of metrics. The hinge loss has corners: pyspark's fits stop short of the optimum by 1e-4.
CLOSE = {name: 2e-2 if name == "LinearSVC" else 1e-6 for name in EXACT}
#: How models of each estimator are judged, and what is searched for besides regParam.
SEARCHES = {
    "LogisticRegression": (
        MulticlassClassificationEvaluator,
        {"metricName": "logLoss"},
        {"elasticNetParam": [0.0, 0.5]},
    ),
    "LinearSVC": (BinaryClassificationEvaluator, {}, {}),
    "LinearRegression": (RegressionEvaluator, {}, {"elasticNetParam": [0.0, 0.5]}),
    "GeneralizedLinearRegression": (RegressionEvaluator, {"metricName": "mae"}, {}),
}


@pytest.fixture(scope="module")
def frames(spark, make_frame):
    """Frames of 0 (numbers), 2 and 3 classes, cached so that folds are the same whoever asks."""
    made = {kind: make_frame(*rows(kind, 90, 3)).coalesce(1).cache() for kind in (0, 2, 3)}
    for frame in made.values():
        frame.count()
    yield made
    for frame in made.values():
        frame.unpersist()


def frame_for(frames, name):
    return frames[2 if name in ("LogisticRegression", "LinearSVC") else 0]


@pytest.fixture
def ingests(monkeypatch):
    """The data sets that estimators prepare, in order."""
    made = []
    original = sparkdml.estimator.from_dataframe
    lock = threading.Lock()

    def counted(*args, **kwargs):
        dataset = original(*args, **kwargs)
        with lock:
            made.append(dataset)
        return dataset

    monkeypatch.setattr(sparkdml.estimator, "from_dataframe", counted)
    return made


@pytest.fixture(autouse=True)
def nothing_is_left(spark, datasets_on_disk):
    """No block file and nothing cached outlives a test."""
    before = spark.sparkContext._jsc.getPersistentRDDs().size()
    yield
    gc.collect()
    assert datasets_on_disk() == []
    assert spark.sparkContext._jsc.getPersistentRDDs().size() <= before


def search(tuner, cls, name, **more):
    """A search over ``cls``, which is ours or pyspark's."""
    evaluator, measure, grid = SEARCHES[name]
    estimator = cls(**EXACT[name])
    builder = ParamGridBuilder().addGrid(estimator.regParam, [0.05, 0.5])
    for param, values in grid.items():
        builder = builder.addGrid(estimator.getParam(param), values)
    return tuner(
        estimator=estimator, estimatorParamMaps=builder.build(), evaluator=evaluator(**measure), seed=3, **more
    )


def chosen(model):
    params = model.bestModel.extractParamMap()
    return {param.name: value for param, value in params.items() if param.name in ("regParam", "elasticNetParam")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LogisticRegression", "LinearRegression"])
def test_cross_validation_gives_what_it_gives_over_pysparks(frames, name, ingests) -> None:
    frame = frame_for(frames, name)
    found = search(CrossValidator, ESTIMATORS[name], name, numFolds=2).fit(frame)
    assert len(ingests) == 2 + 1  # once a fold, whatever the grid's size, and for the best parameters
    expected = search(CrossValidator, stock(name), name, numFolds=2).fit(frame)
    np.testing.assert_allclose(found.avgMetrics, expected.avgMetrics, rtol=CLOSE[name])
    assert chosen(found) == chosen(expected)
    np.testing.assert_allclose(numbers(found.bestModel), numbers(expected.bestModel), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_a_train_validation_split_gives_what_it_gives_over_pysparks(frames, name, ingests) -> None:
    frame = frame_for(frames, name)
    found = search(TrainValidationSplit, ESTIMATORS[name], name, trainRatio=0.7).fit(frame)
    assert len(ingests) == 1 + 1
    expected = search(TrainValidationSplit, stock(name), name, trainRatio=0.7).fit(frame)
    np.testing.assert_allclose(found.validationMetrics, expected.validationMetrics, rtol=CLOSE[name])
    assert chosen(found) == chosen(expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LogisticRegression", "LinearSVC"])
def test_one_vs_rest_gives_what_it_gives_over_pysparks(frames, name, tmp_path) -> None:
    reductions = [OneVsRest(classifier=cls(regParam=0.1, **EXACT[name])) for cls in (ESTIMATORS[name], stock(name))]
    found, expected = (each.fit(frames[3]) for each in reductions)
    assert len(found.models) == 3
    for mine, theirs in zip(found.models, expected.models, strict=True):
        np.testing.assert_allclose(numbers(mine), numbers(theirs), rtol=10 * CLOSE[name], atol=10 * CLOSE[name])
    predictions = [[r.prediction for r in model.transform(frames[3]).collect()] for model in (found, expected)]
    different = np.count_nonzero(np.array(predictions[0]) != np.array(predictions[1]))
    assert different <= (2 if name == "LinearSVC" else 0)

    found.save(str(tmp_path / "model"))
    loaded = OneVsRestModel.load(str(tmp_path / "model"))
    assert [numbers(each) for each in loaded.models] == [numbers(each) for each in found.models]
    assert [r.prediction for r in loaded.transform(frames[3]).collect()] == predictions[0]
    reductions[0].save(str(tmp_path / "reduction"))
    classifier = OneVsRest.load(str(tmp_path / "reduction")).getClassifier()
    assert type(classifier) is ESTIMATORS[name]
    assert classifier.uid == reductions[0].getClassifier().uid
    assert {p.name for p in classifier.params if classifier.isSet(p)} == {"regParam", *EXACT[name]}


def test_one_vs_rest_with_weights_and_several_threads(frames) -> None:
    weighted = frames[3].withColumn("w", F.when(F.col("label") == 1, 2.0).otherwise(1.0))
    models = [
        OneVsRest(classifier=cls(regParam=0.1, tol=1e-11), weightCol="w", parallelism=threads).fit(weighted)
        for cls, threads in ((LogisticRegression, 1), (LogisticRegression, 3), (stock("LogisticRegression"), 1))
    ]
    learned = [[numbers(each) for each in model.models] for model in models]
    assert learned[0] == learned[1]
    np.testing.assert_allclose(learned[0], learned[2], atol=1e-6)


@pytest.mark.slow
def test_a_search_saves_and_loads(frames, tmp_path) -> None:
    validator = search(CrossValidator, LogisticRegression, "LogisticRegression", numFolds=2, collectSubModels=True)
    validator.save(str(tmp_path / "search"))
    loaded = CrossValidator.load(str(tmp_path / "search"))
    estimator = validator.getEstimator()
    assert type(loaded.getEstimator()) is LogisticRegression
    assert loaded.getEstimator().uid == estimator.uid
    assert loaded.getEstimatorParamMaps() == validator.getEstimatorParamMaps()
    model = loaded.fit(frames[2])
    model.save(str(tmp_path / "model"))
    again = CrossValidatorModel.load(str(tmp_path / "model"))
    assert again.avgMetrics == model.avgMetrics
    assert numbers(again.bestModel) == numbers(model.bestModel)
    # pyspark's reader gives every fold the models of the last one
    assert [numbers(each) for each in again.subModels[-1]] == [numbers(each) for each in model.subModels[-1]]
    assert again.getEstimatorParamMaps() == model.getEstimatorParamMaps()


def test_a_split_over_a_pipeline_saves_and_loads(spark, make_frame, tmp_path) -> None:
    frame = make_frame(*rows(2, 60, 3), kind="scalars")
    ours = LinearSVC(maxIter=20)
    pipeline = Pipeline(stages=[VectorAssembler(inputCols=["x0", "x1", "x2"], outputCol="features"), ours])
    grid = ParamGridBuilder().addGrid(ours.regParam, [0.01, np.float64(0.1)]).build()
    split = TrainValidationSplit(
        estimator=pipeline, estimatorParamMaps=grid, evaluator=BinaryClassificationEvaluator(), seed=3
    )
    model = split.fit(frame)
    model.save(str(tmp_path / "model"))
    again = TrainValidationSplitModel.load(str(tmp_path / "model"))
    assert again.validationMetrics == model.validationMetrics
    assert again.getEstimatorParamMaps() == grid
    assert numbers(again.bestModel.stages[1]) == numbers(model.bestModel.stages[1])
    split.save(str(tmp_path / "split"))
    stages = TrainValidationSplit.load(str(tmp_path / "split")).getEstimator().getStages()
    assert [stage.uid for stage in stages] == [stage.uid for stage in pipeline.getStages()]


@pytest.mark.parametrize("cls", ESTIMATORS.values(), ids=ESTIMATORS.keys())
def test_a_copy_keeps_what_is_set_and_what_is_default(spark, cls) -> None:
    estimator = cls(maxIter=7, featuresCol="x")
    copied = estimator.copy({estimator.regParam: 0.5, estimator.maxIter: 8})
    assert copied.uid == estimator.uid
    assert {p.name for p in copied.params if copied.isSet(p)} == {"maxIter", "featuresCol", "regParam"}
    assert (copied.getMaxIter(), copied.getRegParam(), copied.getFeaturesCol()) == (8, 0.5, "x")
    assert {p.name for p in estimator.params if estimator.isSet(p)} == {"maxIter", "featuresCol"}
    assert estimator.getMaxIter() == 7
    defaults = [{p.name: value for p, value in each._defaultParamMap.items()} for each in (estimator, copied, cls())]
    assert defaults[0] == defaults[1] == defaults[2]
    copied.setMaxIter(9)
    assert estimator.getMaxIter() == 7


def test_a_copy_keeps_callback_and_initial_model(frames) -> None:
    seen = []
    first = LogisticRegression(regParam=0.1).fit(frames[2])
    estimator = LogisticRegression(regParam=0.1).setInitialModel(first).setOnRound(lambda h: seen.append(len(h.rounds)))
    model = estimator.copy({estimator.maxIter: 50}).fit(frames[2])
    assert seen == list(range(1, model.report.rounds + 1))
    assert model.report.rounds <= 2 < first.report.rounds


def test_a_fit_with_a_map_is_that_of_a_copy_with_it(frames, ingests) -> None:
    estimator = LogisticRegression(regParam=0.1)
    model = estimator.fit(frames[2], {estimator.regParam: 0.5, estimator.maxIter: 5})
    assert numbers(model) == numbers(LogisticRegression(regParam=0.5, maxIter=5).fit(frames[2]))
    assert model.getRegParam() == 0.5
    assert estimator.getRegParam() == 0.1
    assert len(ingests) == 2


def maps_of(estimator, values=(0.01, 0.1, 0.5)):
    return [{estimator.regParam: value} for value in values]


@pytest.mark.parametrize("cls", ESTIMATORS.values(), ids=ESTIMATORS.keys())
def test_fits_with_several_maps_prepare_blocks_once(frames, ingests, cls) -> None:
    frame = frame_for(frames, cls.__name__)
    estimator = cls()
    models = estimator.fit(frame, maps_of(estimator))
    assert len(ingests) == 1
    assert [model.getRegParam() for model in models] == [0.01, 0.1, 0.5]
    for model in models:
        assert numbers(model) == numbers(cls(regParam=model.getRegParam()).fit(frame))
    assert [model.report.seconds["ingest"] > 0 for model in models] == [True, False, False]
    assert models[2].summary is not None if cls is not LinearSVC else models[2].summary() is not None


def test_maps_that_read_other_columns_have_blocks_of_their_own(frames, ingests) -> None:
    frame = frames[2].withColumn("other", 1 - F.col("label")).withColumn("w", F.rand(1))
    estimator = LogisticRegression(regParam=0.1)
    label, weight = estimator.labelCol, estimator.weightCol
    maps = [{label: "label"}, {label: "other"}, {label: "label", weight: "w"}, {label: "other"}, {}]
    models = estimator.fit(frame, maps)
    assert len(ingests) == 3
    for model, each in zip(models, maps, strict=True):
        assert numbers(model) == numbers(estimator.copy(each).fit(frame))
    assert numbers(models[0]) == numbers(models[4])
    np.testing.assert_allclose(numbers(models[0]), -np.array(numbers(models[1])), atol=1e-5)


def test_class_weights_and_validation_rows_are_part_of_what_is_shared(frames, ingests) -> None:
    frame = frames[2].withColumn("held", F.rand(2) < 0.3).cache()
    estimator = LogisticRegression(solver="l-bfgs", validationIndicatorCol="held")
    maps = [{**each, estimator.classWeight: "balanced"} for each in maps_of(estimator)] + maps_of(estimator)
    models = estimator.fit(frame, maps)
    assert len(ingests) == 2 * 2  # rows to train on and rows held back, with and without class weights
    for model, each in zip(models, maps, strict=True):
        assert numbers(model) == numbers(estimator.copy(each).fit(frame))
    frame.unpersist()


def test_fit_multiple_from_several_threads(frames, ingests) -> None:
    values = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0]
    estimator = LogisticRegression()
    fits = estimator.fitMultiple(frames[2], maps_of(estimator, values))
    with ThreadPool(4) as pool:
        found = dict(pool.map(lambda _: next(fits), range(len(values))))
    with pytest.raises(StopIteration):
        next(fits)
    assert len(ingests) == 1
    assert sorted(found) == list(range(len(values)))
    for index, value in enumerate(values):
        assert numbers(found[index]) == numbers(LogisticRegression(regParam=value).fit(frames[2]))


def test_a_parallel_search_finds_the_same(frames, ingests) -> None:
    one, four = (
        search(CrossValidator, LogisticRegression, "LogisticRegression", numFolds=2, parallelism=threads).fit(frames[2])
        for threads in (1, 4)
    )
    assert one.avgMetrics == four.avgMetrics
    assert numbers(one.bestModel) == numbers(four.bestModel)
    assert len(ingests) == 2 * 3


def test_an_iterator_that_is_abandoned_frees_its_blocks(frames, ingests, datasets_on_disk) -> None:
    estimator = LogisticRegression()
    fits = estimator.fitMultiple(frames[2], maps_of(estimator))
    assert ingests == []
    next(fits)
    assert len(datasets_on_disk()) == 1
    del fits
    gc.collect()
    assert datasets_on_disk() == []
    estimator.fitMultiple(frames[2], maps_of(estimator))
    assert len(ingests) == 1


@pytest.mark.parametrize("bad", [0, 1, 2], ids=["first", "middle", "last"])
def test_a_map_that_fails_says_so_and_frees_the_blocks(frames, ingests, datasets_on_disk, bad) -> None:
    estimator = LogisticRegression()
    maps = maps_of(estimator)
    maps[bad] = {estimator.thresholds: [0.2, 0.3, 0.5]}  # only the rows tell that there are two classes
    with pytest.raises(ValueError, match="thresholds has 3 values"):
        estimator.fit(frames[2], maps)
    gc.collect()
    assert len(ingests) == 1
    assert datasets_on_disk() == []


def test_the_other_maps_go_on_after_one_that_fails(frames, ingests) -> None:
    estimator = LogisticRegression()
    maps = maps_of(estimator)
    maps[1] = {estimator.thresholds: [0.2, 0.3, 0.5]}
    fits = estimator.fitMultiple(frames[2], maps)
    assert next(fits)[0] == 0
    with pytest.raises(ValueError, match="thresholds has 3 values"):
        next(fits)
    index, model = next(fits)
    assert (index, model.getRegParam()) == (2, 0.5)
    assert len(ingests) == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_that_cannot_be_read_fail_every_map_and_leave_nothing(frames, threads) -> None:
    broken = frames[2].withColumn("label", F.lit(0.5))
    estimator = LogisticRegression()
    fits = estimator.fitMultiple(broken, maps_of(estimator))

    def attempt(_) -> str:
        try:
            next(fits)
        except ValueError as error:
            return str(error)
        return "no error"

    with ThreadPool(threads) as pool:
        told = pool.map(attempt, range(3))
    assert all("0.5" in message and "label" in message for message in told), told


def test_a_bad_map_is_refused_before_any_job(spark, frames, ingests) -> None:
    estimator = LogisticRegression()
    maps = [*maps_of(estimator), {estimator.regParam: -1.0}]
    spark.sparkContext.setJobGroup("bad map", "none may start")
    try:
        for attempt in (estimator.fit, estimator.fitMultiple):
            with pytest.raises(ValueError, match="regParam=-1.0"):
                attempt(frames[2], maps)
        with pytest.raises(ValueError, match="regParam=-1.0"):
            estimator.fit(frames[2], maps[-1])
        assert not spark.sparkContext.statusTracker().getJobIdsForGroup("bad map")
    finally:
        spark.sparkContext._jsc.clearJobGroup()
    assert ingests == []


def test_early_stopping_works_inside_cross_validation(frames) -> None:
    frame = frames[2].withColumn("held", F.rand(2) < 0.3).cache()
    estimator = LogisticRegression(solver="l-bfgs", tol=0.0, validationIndicatorCol="held", patience=1)
    grid = ParamGridBuilder().addGrid(estimator.regParam, [0.0, 0.1]).build()
    model = CrossValidator(
        estimator=estimator, estimatorParamMaps=grid, evaluator=BinaryClassificationEvaluator(), numFolds=2, seed=1
    ).fit(frame)
    history = model.bestModel.report.history
    assert all(np.isfinite([entry.validation, entry.objective]).all() for entry in history)
    direct = estimator.copy({estimator.regParam: model.bestModel.getRegParam()}).fit(frame)
    assert numbers(model.bestModel) == numbers(direct)
    frame.unpersist()
