"""A grid search by pyspark.ml's CrossValidator over its own estimator and over ours."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDS = 3
GRID = {"regParam": [1e-3, 1e-2, 0.1, 0.5], "elasticNetParam": [0.0, 0.5, 1.0]}


def a9a(spark: SparkSession, source: Path) -> DataFrame | None:
    """Labels -1 and 1 become 0 and 1."""
    from pyspark.sql import functions as F

    if not source.exists():
        return None
    frame = spark.read.format("libsvm").option("numFeatures", 123).load(str(source))
    return frame.withColumn("label", F.when(F.col("label") > 0, 1.0).otherwise(0.0))


def mnist(spark: SparkSession, source: Path, rows: int = 5000) -> DataFrame | None:
    """The first digits, pixels from 0 to 1, as sparse vectors."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as F

    if not source.exists():
        return None
    pixels = F.transform("pixels", lambda p: p.cast("double") / 255.0)
    return spark.read.parquet(str(source)).limit(rows).select(
        F.col("label").cast("double").alias("label"), array_to_vector(pixels).alias("features")
    )  # fmt: skip


def race(name: str, frame: DataFrame, max_iterations: int) -> tuple[dict[str, Any], str]:
    """Both once, ours after a warm-up fit of each library; figures and a table."""
    from pyspark.ml import classification as stock

    from sparkdml import classification as ours

    frame = frame.repartition(2).cache()
    rows = frame.count()
    libraries = {"pyspark.ml": stock.LogisticRegression, "sparkdml": ours.LogisticRegression}
    for kind in libraries.values():
        kind(maxIter=3, regParam=0.1).fit(frame)
    results = {library: _search(name, kind(maxIter=max_iterations), frame) for library, kind in libraries.items()}
    frame.unpersist()
    slow = results["pyspark.ml"]
    body = [["", "seconds", "pyspark/this", "best", "metric"]]
    for library, found in results.items():
        body.append(
            [library, f"{found['seconds']:.1f}", f"{slow['seconds'] / found['seconds']:.1f}x", str(found["best"]),
             f"{found['metric']:.5f}"]
        )  # fmt: skip
    apart = max(abs(a - b) for a, b in zip(slow["metrics"], results["sparkdml"]["metrics"], strict=True))
    lines = [
        f"cross-validation, {name}: {rows} rows, {FOLDS} folds x {len(slow['metrics'])} maps, maxIter {max_iterations}",
        table(body),
        f"largest difference of an average metric: {apart:.1e}",
    ]
    return results, "\n".join(lines)


def _search(name: str, estimator: Any, frame: DataFrame) -> dict[str, Any]:
    from pyspark.ml.evaluation import BinaryClassificationEvaluator, MulticlassClassificationEvaluator
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

    grid = ParamGridBuilder()
    for param, values in GRID.items():
        grid = grid.addGrid(estimator.getParam(param), values)
    maps = grid.build()
    evaluator = (
        BinaryClassificationEvaluator() if name == "a9a" else MulticlassClassificationEvaluator(metricName="accuracy")
    )
    search = CrossValidator(estimator=estimator, estimatorParamMaps=maps, evaluator=evaluator, numFolds=FOLDS, seed=7)
    started = time.perf_counter()
    metrics = [float(metric) for metric in search.fit(frame).avgMetrics]
    seconds = time.perf_counter() - started
    best = (max if evaluator.isLargerBetter() else min)(range(len(maps)), key=metrics.__getitem__)
    chosen = {param.name: value for param, value in maps[best].items()}
    return {"seconds": seconds, "metrics": metrics, "best": chosen, "metric": metrics[best]}
