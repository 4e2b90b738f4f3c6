"""What is saved here is of use in a fresh interpreter: models without sparkdml, what holds our estimators with it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interpreters import environment
from linear_family import ESTIMATORS, rows
from pyspark.ml.classification import OneVsRest, OneVsRestModel
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import DataFrame
from test_saving import mixed_pipeline

from sparkdml.classification import FMClassifier, LinearSVC, LogisticRegression
from sparkdml.regression import FMRegressor

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
MACHINES = {"FMClassifier": FMClassifier, "FMRegressor": FMRegressor}


@dataclass(frozen=True)
class Saved:
    """What was saved, the rows beside it, and what the other interpreter says of it."""

    frame: DataFrame
    parts: dict[str, Any]
    without: dict[str, Any]
    later: dict[str, Any]

    def predictions(self, name: str) -> list[float]:
        return [row.prediction for row in self.parts[name].transform(self.frame).select("prediction").collect()]


@pytest.fixture(scope="module")
def saved(spark, make_frame, tmp_path_factory) -> Saved:
    """One interpreter loads all of it: a session takes longer to start than the rest."""
    folder = tmp_path_factory.mktemp("saved")
    X, y = rows(2, 60, 3)
    scalars = make_frame(X, y, kind="scalars", partitions=1)
    with_vector = VectorAssembler(inputCols=["x0", "x1", "x2"], outputCol="features").transform(scalars)
    frame = with_vector.select("features", "label", "x0", "x1", "x2").coalesce(1)
    frame.write.parquet(str(folder / "rows"))
    parts = {name: cls(regParam=0.1).fit(frame) for name, cls in ESTIMATORS.items()}
    parts |= {name: cls(maxIter=3, factorSize=2, seed=6).fit(frame) for name, cls in MACHINES.items()}
    parts["pipeline"] = mixed_pipeline("vector")
    parts["pipeline-model"] = parts["pipeline"].fit(frame)
    parts["one-vs-rest-model"] = OneVsRest(classifier=LinearSVC(regParam=0.1)).fit(frame)
    estimator = LogisticRegression()
    grid = ParamGridBuilder().addGrid(estimator.regParam, [np.float64(0.01), 0.5]).build()
    parts["search"] = CrossValidator(
        estimator=estimator, estimatorParamMaps=grid, evaluator=BinaryClassificationEvaluator(), numFolds=2, seed=1
    )
    parts["search-model"] = parts["search"].fit(frame)
    parts["shards"] = LogisticRegression(family="multinomial", placement="partitioned", maxIter=3).fit(frame)
    for name, part in parts.items():
        part.save(str(folder / name))

    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("saved_elsewhere.py")), str(folder)],
        capture_output=True, text=True, timeout=240, env=environment(), cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            found.update(json.loads(line))
    yield Saved(frame, parts, found["without"], found["with"])
    parts["shards"].coefficientsRDD.unpersist()


@pytest.mark.parametrize("name", [*ESTIMATORS, *MACHINES])
def test_models_load_where_sparkdml_is_not_installed(saved, name) -> None:
    model, told = saved.parts[name], saved.without[name]
    assert (told["uid"], told["has_summary"]) == (model.uid, False)
    weights = model.linear if name in MACHINES else model.coefficients
    assert told["learned"] == [*weights.toArray().tolist(), model.intercept]
    assert told["predictions"] == saved.predictions(name)
    assert told["of_one_row"] == model.predict(Vectors.dense([3.0, -2.0, 0.5]))


def test_pipelines_of_models_load_where_sparkdml_is_not_installed(saved) -> None:
    assert saved.without["pipeline-model"] == saved.predictions("pipeline-model")


def test_pipelines_and_reductions_that_hold_our_estimators_load(saved) -> None:
    assert saved.later["stages"][-1] == "sparkdml.classification.LogisticRegression"
    assert saved.later["pipeline"] == saved.predictions("pipeline-model")
    assert isinstance(saved.parts["one-vs-rest-model"], OneVsRestModel)
    assert saved.later["one-vs-rest-model"] == saved.predictions("one-vs-rest-model")


def test_searches_over_our_estimators_load(saved) -> None:
    search, searched = saved.parts["search"], saved.parts["search-model"]
    estimator = search.getEstimator()
    assert saved.later["grid"] == [[[estimator.uid, "regParam", value]] for value in (0.01, 0.5)]
    assert saved.later["estimator"] == ["sparkdml.classification", estimator.uid]
    assert saved.later["metrics"] == [float(value) for value in searched.avgMetrics]
    best = searched.bestModel
    assert saved.later["best"] == [*best.coefficients.toArray().tolist(), best.intercept]


def test_models_in_shards_load_also_without_pandas(saved) -> None:
    scored = saved.parts["shards"].transform(saved.frame).select("x0", "rawPrediction", "prediction").collect()
    want = sorted([row.x0, *row.rawPrediction.toArray().tolist(), row.prediction] for row in scored)
    np.testing.assert_allclose(saved.later["shards"], want, rtol=1e-12)
