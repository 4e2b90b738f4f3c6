"""Run by test_elsewhere.py in a fresh interpreter: loads what was saved, first without sparkdml. Prints lines of JSON.

Nor is pandas there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


class Refuse:
    """As if a package were not installed."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named '{name}'")


def predictions(model, rows):
    return [row.prediction for row in model.transform(rows).select("prediction").collect()]


def without_sparkdml(saved: Path, frame) -> dict:
    from pyspark.ml import PipelineModel, classification, regression
    from pyspark.ml.linalg import Vectors

    classes = {
        "LogisticRegression": classification.LogisticRegressionModel,
        "LinearSVC": classification.LinearSVCModel,
        "LinearRegression": regression.LinearRegressionModel,
        "GeneralizedLinearRegression": regression.GeneralizedLinearRegressionModel,
        "FMClassifier": classification.FMClassificationModel,
        "FMRegressor": regression.FMRegressionModel,
    }
    found = {}
    for name, cls in classes.items():
        model = cls.load(str(saved / name))
        weights = model.linear if name.startswith("FM") else model.coefficients
        found[name] = {
            "uid": model.uid,
            "learned": [*weights.toArray().tolist(), float(model.intercept)],
            "has_summary": bool(getattr(model, "hasSummary", False)),
            "predictions": predictions(model, frame),
            "of_one_row": model.predict(Vectors.dense([3.0, -2.0, 0.5])),
        }
    pipeline_model = PipelineModel.load(str(saved / "pipeline-model"))
    found["pipeline-model"] = predictions(pipeline_model, frame.drop("features"))
    assert "sparkdml" not in sys.modules
    return found


def with_sparkdml(saved: Path, frame) -> dict:
    from pyspark.ml import Pipeline
    from pyspark.ml.classification import OneVsRestModel
    from pyspark.ml.tuning import CrossValidator, CrossValidatorModel

    from sparkdml.wide import DistributedLogisticRegressionModel, scoring

    pipeline = Pipeline.load(str(saved / "pipeline"))
    search = CrossValidator.load(str(saved / "search"))
    searched = CrossValidatorModel.load(str(saved / "search-model"))
    scoring.REPLICATED_BYTES = 0
    scored = DistributedLogisticRegressionModel.load(str(saved / "shards")).transform(frame).collect()
    return {
        "stages": [type(stage).__module__ + "." + type(stage).__name__ for stage in pipeline.getStages()],
        "pipeline": predictions(pipeline.fit(frame.drop("features")), frame.drop("features")),
        "one-vs-rest-model": predictions(OneVsRestModel.load(str(saved / "one-vs-rest-model")), frame),
        "grid": [[[p.parent, p.name, v] for p, v in each.items()] for each in search.getEstimatorParamMaps()],
        "estimator": [type(search.getEstimator()).__module__, search.getEstimator().uid],
        "metrics": [float(value) for value in searched.avgMetrics],
        "best": [*searched.bestModel.coefficients.toArray().tolist(), float(searched.bestModel.intercept)],
        "shards": sorted([row.x0, *row.rawPrediction.toArray().tolist(), row.prediction] for row in scored),
    }


def main(saved: Path) -> None:
    refuse = Refuse("sparkdml")
    sys.meta_path[:0] = [Refuse("pandas"), refuse]
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    frame = spark.read.parquet(str(saved / "rows"))
    print(json.dumps({"without": without_sparkdml(saved, frame)}), flush=True)
    sys.meta_path.remove(refuse)
    print(json.dumps({"with": with_sparkdml(saved, frame)}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
