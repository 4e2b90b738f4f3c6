"""Estimators and models on disk: round trips, formats, and loading elsewhere."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from linear_family import ESTIMATORS, numbers, rows, stock
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import StandardScaler, VectorAssembler
from pyspark.ml.linalg import DenseMatrix, DenseVector, Matrices, SparseMatrix, SparseVector, Vectors

from sparkdml.classification import LinearSVC, LogisticRegression
from sparkdml.saving import FORMAT

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = Path(__file__).parent / "golden" / "estimator_v1"
every_estimator = pytest.mark.parametrize("cls", ESTIMATORS.values(), ids=ESTIMATORS.keys())

#: What is kept in GOLDEN. It was written by ``save`` of the version that began format 1 and is never written again:
#: an estimator of every class with these parameters set.
GOLDEN_PARAMS = {
    "LogisticRegression": {
        "maxIter": 7,
        "regParam": 0.25,
        "thresholds": [0.25, 0.75],
        "classWeight": {"0.0": 1.0, "1.0": 2.5},
        "lowerBoundsOnCoefficients": DenseMatrix(1, 3, [-1.0, -math.inf, 0.1]),
        "upperBoundsOnCoefficients": SparseMatrix(1, 3, [0, 1, 1, 2], [0, 0], [2.0, 0.5]),
        "lowerBoundsOnIntercepts": DenseVector([-0.1]),
        "upperBoundsOnIntercepts": SparseVector(1, [0], [3.0]),
        "checkpointDir": "/somewhere/else",
    },
    "LinearSVC": {"tol": 1e-4, "fitIntercept": False, "classWeight": "balanced", "weightCol": "weight"},
    "LinearRegression": {"solver": "l-bfgs", "elasticNetParam": 0.1, "featuresCols": ["a", "b"], "patience": 3},
    "GeneralizedLinearRegression": {"family": "tweedie", "variancePower": 1.5, "linkPower": 0.0, "offsetCol": "o"},
}


def same_params(one, other) -> None:
    """The same class, uid, values, and the same of them set or default."""
    assert type(one) is type(other)
    assert one.uid == other.uid
    assert [p.name for p in one.params] == [p.name for p in other.params]
    for mine, theirs in zip(one.params, other.params, strict=True):
        assert theirs.parent == other.uid
        state = [(e.isSet(p), e.hasDefault(p), e.isDefined(p)) for e, p in ((one, mine), (other, theirs))]
        assert state[0] == state[1], mine.name
        if one.isDefined(mine):
            same_value(one.getOrDefault(mine), other.getOrDefault(theirs))


def same_value(one, other) -> None:
    assert type(one) is type(other)
    if isinstance(one, SparseMatrix):
        assert (one.numRows, one.numCols, one.isTransposed) == (other.numRows, other.numCols, other.isTransposed)
        for name in ("colPtrs", "rowIndices", "values"):
            assert getattr(one, name).tolist() == getattr(other, name).tolist()
        return
    if isinstance(one, DenseMatrix):
        assert one.isTransposed == other.isTransposed
    assert one == other


def reloaded(estimator, path: Path):
    estimator.write().overwrite().save(str(path))
    return type(estimator).load(str(path))


def edit(path: Path, change) -> None:
    """Change the metadata of something saved, as another version would have written it."""
    (part,) = (path / "metadata").glob("part-*")
    metadata = json.loads(part.read_text())
    change(metadata)
    part.write_text(json.dumps(metadata))
    (path / "metadata" / f".{part.name}.crc").unlink(missing_ok=True)


@every_estimator
def test_an_estimator_as_built_has_nothing_set_after_loading(spark, tmp_path, cls) -> None:
    estimator = cls()
    loaded = reloaded(estimator, tmp_path / "estimator")
    same_params(estimator, loaded)
    assert not any(loaded.isSet(param) for param in loaded.params)
    assert loaded.hasDefault("maxIter")


@every_estimator
def test_values_that_were_set_stay_set_also_where_they_equal_the_default(spark, tmp_path, cls) -> None:
    default = cls().getMaxIter()
    estimator = cls(maxIter=default, regParam=0.1 + 0.2, featuresCols=["a", "b c"], predictionCol="")
    loaded = reloaded(estimator, tmp_path / "estimator")
    same_params(estimator, loaded)
    assert loaded.isSet("maxIter")
    assert not loaded.isSet("tol")
    assert loaded.getRegParam() == 0.1 + 0.2
    again = reloaded(loaded.copy({loaded.tol: 1e-3}), tmp_path / "again")
    assert again.isSet("tol")
    assert again.getTol() == 1e-3


@every_estimator
def test_numpy_scalars_are_saved_as_the_numbers_they_are(spark, tmp_path, cls) -> None:
    estimator = cls(maxIter=np.int64(5), regParam=np.float32(0.5), fitIntercept=np.bool_(False))
    estimator.setTol(np.float64(1e-3)).setPlacement(np.str_("local"))
    estimator = estimator.copy({estimator.checkpointInterval: np.int32(3), estimator.regParam: np.float16(0.25)})
    loaded = reloaded(estimator, tmp_path / "estimator")
    same_params(estimator, loaded)
    found = [
        loaded.getMaxIter(),
        loaded.getRegParam(),
        loaded.getFitIntercept(),
        loaded.getTol(),
        loaded.getCheckpointInterval(),
    ]
    assert found == [5, 0.25, False, 1e-3, 3]
    assert [type(value) for value in found] == [int, float, bool, float, int]


BOUNDS = {
    "dense": (DenseMatrix(2, 3, [-1.0, 0.0, 0.1, -math.inf, 1e-300, math.inf]), DenseVector([-math.inf, 0.3])),
    "transposed": (DenseMatrix(2, 3, range(6), isTransposed=True), DenseVector([-0.0, 2.0])),
    "sparse": (SparseMatrix(2, 3, [0, 1, 1, 2], [1, 0], [2.0, -0.5]), SparseVector(2, [1], [5.5])),
    "sparse-transposed": (
        SparseMatrix(2, 3, [0, 1, 2], [1, 0], [2.0, -0.5], isTransposed=True),
        SparseVector(2, [], []),
    ),
}


@pytest.mark.parametrize(("matrix", "vector"), BOUNDS.values(), ids=BOUNDS.keys())
def test_bounds_come_back_as_they_were(spark, tmp_path, matrix, vector) -> None:
    estimator = LogisticRegression(
        lowerBoundsOnCoefficients=matrix,
        upperBoundsOnCoefficients=matrix,
        lowerBoundsOnIntercepts=vector,
        upperBoundsOnIntercepts=vector,
    )
    same_params(estimator, reloaded(estimator, tmp_path / "estimator"))


def test_a_loaded_estimator_fits_the_same_model(spark, make_frame, tmp_path) -> None:
    frame = make_frame(*rows(2, features=3))
    estimator = LogisticRegression(
        regParam=0.01,
        classWeight={0: 1, np.float64(1.0): 2},
        lowerBoundsOnCoefficients=Matrices.dense(1, 3, [-1.0, 0.0, -math.inf]),
        upperBoundsOnIntercepts=Vectors.dense(0.5),
    )
    loaded = reloaded(estimator, tmp_path / "estimator")
    assert loaded.getClassWeight() == {"0.0": 1.0, "1.0": 2.0}
    assert numbers(loaded.fit(frame)) == numbers(estimator.fit(frame))


@pytest.mark.parametrize("value", ["balanced", {0: 1, 1: 3.5}, {0: 0, 2: 1e-3}, None], ids=str)
def test_class_weights_come_back_as_they_were(spark, tmp_path, value) -> None:
    estimator = LinearSVC(classWeight=value)
    loaded = reloaded(estimator, tmp_path / "estimator")
    same_params(estimator, loaded)
    expected = {float(k): float(v) for k, v in value.items()} if isinstance(value, dict) else value
    found = loaded._value("classWeight")
    assert ({float(k): v for k, v in found.items()} if isinstance(found, dict) else found) == expected


@every_estimator
def test_a_newer_format_is_refused_and_both_formats_are_named(spark, tmp_path, cls) -> None:
    path = tmp_path / "estimator"
    cls().save(str(path))
    edit(path, lambda metadata: metadata["sparkdml"].update(format=FORMAT + 1))
    with pytest.raises(ValueError, match=rf"format {FORMAT + 1}.*up to {FORMAT}.*newer"):
        cls.load(str(path))


@pytest.mark.parametrize("where", ["paramMap", "defaultParamMap"])
def test_an_unknown_parameter_is_refused_by_name(spark, tmp_path, where) -> None:
    path = tmp_path / "estimator"
    LogisticRegression(maxIter=3).save(str(path))
    edit(path, lambda metadata: metadata[where].update(momentum=0.9))
    with pytest.raises(ValueError, match=r"momentum.*LogisticRegression.*install the version"):
        LogisticRegression.load(str(path))


def test_an_older_format_with_fewer_parameters_loads(spark, tmp_path) -> None:
    path = tmp_path / "estimator"
    estimator = LogisticRegression(maxIter=3)
    estimator.save(str(path))

    def age(metadata) -> None:
        del metadata["sparkdml"]
        del metadata["defaultParamMap"]["patience"]

    edit(path, age)
    same_params(estimator, LogisticRegression.load(str(path)))


def test_another_class_is_refused(spark, tmp_path) -> None:
    LogisticRegression().save(str(tmp_path / "estimator"))
    with pytest.raises(ValueError, match=r"holds a .*LogisticRegression, not a LinearSVC"):
        LinearSVC.load(str(tmp_path / "estimator"))


def test_saving_over_something_needs_overwrite(spark, tmp_path) -> None:
    path = str(tmp_path / "estimator")
    LogisticRegression(maxIter=3).save(path)
    with pytest.raises(Exception, match="(?i)exist"):
        LogisticRegression(maxIter=4).save(path)
    LogisticRegression(maxIter=5).write().overwrite().save(path)
    assert LogisticRegression.load(path).getMaxIter() == 5


@pytest.mark.parametrize("name", GOLDEN_PARAMS)
def test_format_1_stays_readable(spark, name) -> None:
    loaded = ESTIMATORS[name].load(str(GOLDEN / name))
    expected = GOLDEN_PARAMS[name]
    assert {param.name for param in loaded.params if loaded.isSet(param)} == set(expected)
    for param, value in expected.items():
        same_value(loaded.getOrDefault(param), value)
    assert loaded.uid == f"{name}_golden"


@every_estimator
def test_a_loaded_model_is_sparks_own_without_summary_and_evaluates_alike(spark, make_frame, tmp_path, cls) -> None:
    frame = make_frame(*rows(2, 60))
    model = cls(regParam=0.1).fit(frame)
    model.save(str(tmp_path / "model"))
    for loader in (type(model), getattr(sys.modules[stock(cls.__name__).__module__], f"{cls.__name__}Model")):
        loaded = loader.load(str(tmp_path / "model"))
        assert loaded.uid == model.uid
        assert numbers(loaded) == numbers(model)
        assert not loaded.hasSummary
        assert loaded.isSet("regParam")
        assert not loaded.isSet("tol")
    assert model.hasSummary
    told, again = model.evaluate(frame), loaded.evaluate(frame)
    measure = {
        "LogisticRegression": lambda s: (s.accuracy, s.areaUnderROC),
        "LinearSVC": lambda s: (s.accuracy, s.areaUnderROC),
        "LinearRegression": lambda s: (s.rootMeanSquaredError, s.r2),
        "GeneralizedLinearRegression": lambda s: (s.deviance, s.nullDeviance),
    }[cls.__name__]
    summary = model.summary() if cls is LinearSVC else model.summary
    assert measure(told) == measure(again) == measure(summary)


def mixed_pipeline(assembled: str = "vector") -> Pipeline:
    return Pipeline(
        stages=[
            VectorAssembler(inputCols=["x0", "x1", "x2"], outputCol=assembled),
            StandardScaler(inputCol=assembled, outputCol="scaled", withMean=True),
            LogisticRegression(featuresCol="scaled", regParam=0.01, maxIter=50, classWeight="balanced"),
        ]
    )


def test_a_pipeline_of_javas_stages_and_ours_saves_and_loads(spark, make_frame, tmp_path) -> None:
    frame = make_frame(*rows(2, 60, 3), kind="scalars")
    pipeline = mixed_pipeline()
    pipeline.save(str(tmp_path / "pipeline"))
    loaded = Pipeline.load(str(tmp_path / "pipeline"))
    assert loaded.uid == pipeline.uid
    assert [stage.uid for stage in loaded.getStages()] == [stage.uid for stage in pipeline.getStages()]
    same_params(pipeline.getStages()[2], loaded.getStages()[2])
    model = loaded.fit(frame)
    assert numbers(model.stages[2]) == numbers(pipeline.fit(frame).stages[2])
    model.save(str(tmp_path / "model"))
    again = PipelineModel.load(str(tmp_path / "model"))
    assert [type(stage).__module__.split(".")[0] for stage in again.stages] == ["pyspark"] * 3
    assert (
        again.transform(frame).select("probability").collect() == model.transform(frame).select("probability").collect()
    )
