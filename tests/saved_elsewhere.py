"""Run by test_saving.py in a fresh interpreter: loads what was saved, first without sparkdml. Prints lines of JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path


class Refuse:
    """As if sparkdml were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "sparkdml":
            raise ModuleNotFoundError(f"No module named '{name}'")


def main(saved: Path) -> None:
    refuse = Refuse()
    sys.meta_path.insert(0, refuse)
    from pyspark.ml import Pipeline, PipelineModel, classification, regression
    from pyspark.ml.tuning import CrossValidator, CrossValidatorModel
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    frame = spark.read.parquet(str(saved / "rows"))

    def predictions(model, rows):
        return [row.prediction for row in model.transform(rows).select("prediction").collect()]

    found = {}
    for name in ("LogisticRegression", "LinearSVC", "LinearRegression", "GeneralizedLinearRegression"):
        room = classification if hasattr(classification, name) else regression
        model = getattr(room, f"{name}Model").load(str(saved / name))
        coefficients = [*model.coefficients.toArray().tolist(), float(model.intercept)]
        found[name] = [model.uid, coefficients, bool(model.hasSummary), predictions(model, frame)]
    pipeline_model = PipelineModel.load(str(saved / "pipeline-model"))
    found["pipeline-model"] = predictions(pipeline_model, frame.drop("features"))
    assert "sparkdml" not in sys.modules
    print(json.dumps({"without": found}), flush=True)

    sys.meta_path.remove(refuse)
    pipeline = Pipeline.load(str(saved / "pipeline"))
    fitted = predictions(pipeline.fit(frame.drop("features")), frame.drop("features"))
    one_vs_rest = classification.OneVsRestModel.load(str(saved / "one-vs-rest-model"))
    search = CrossValidator.load(str(saved / "search"))
    searched = CrossValidatorModel.load(str(saved / "search-model"))
    found = {
        "stages": [type(stage).__module__ + "." + type(stage).__name__ for stage in pipeline.getStages()],
        "pipeline": fitted,
        "one-vs-rest-model": predictions(one_vs_rest, frame),
        "grid": [[[p.parent, p.name, v] for p, v in each.items()] for each in search.getEstimatorParamMaps()],
        "estimator": [type(search.getEstimator()).__module__, search.getEstimator().uid],
        "metrics": [float(value) for value in searched.avgMetrics],
        "best": [*searched.bestModel.coefficients.toArray().tolist(), float(searched.bestModel.intercept)],
    }
    print(json.dumps({"with": found}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
