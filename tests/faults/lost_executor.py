"""Run by test_lost_executor.py: one of two executors, each as if on a host of its own, ends during each of some fits.

Prints a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DoubleType, StructField, StructType

import sparkdml
from sparkdml.algorithms import LBFGS
from sparkdml.classification import LogisticRegression
from sparkdml.classification.logistic_regression import starting_point
from sparkdml.data import from_dataframe
from sparkdml.losses import Logistic
from sparkdml.placement import PLACEMENTS

SCHEMA = StructType([StructField("features", VectorUDT()), StructField("label", DoubleType())])
ESTIMATOR = LogisticRegression(regParam=1e-3, tol=1e-12)
SCRATCH, KEPT = Path("scratch").absolute(), Path("kept").absolute()


def executors() -> list[int]:
    """Process ids of the executors that this application started."""
    found = psutil.Process().children(recursive=True)
    return [p.pid for p in found if "CoarseGrainedExecutorBackend" in " ".join(_command(p))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def frame(spark: SparkSession, rows: int = 400) -> DataFrame:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 5)) @ rng.standard_normal((5, 5))
    y = (X[:, 0] + rng.standard_normal(rows) > 0).astype(float)
    data = [(Vectors.dense(x), float(label)) for x, label in zip(X, y, strict=True)]
    return spark.createDataFrame(spark.sparkContext.parallelize(data, 4), SCHEMA)


def with_whole_coefficients(data: DataFrame, placement: str, undisturbed: Any) -> dict[str, Any]:
    """An executor ends after round 3."""
    killed: list[int] = []

    def end_one(entry, state) -> None:
        if entry.round == 3:
            killed.append(sorted(executors())[0])
            os.kill(killed[-1], signal.SIGKILL)

    with from_dataframe(data) as dataset:
        problem = ESTIMATOR._problem(dataset, Logistic())
        start = starting_point(problem, dataset.statistics.histogram)
        algorithm = LBFGS(100, 1e-12)
        trained = PLACEMENTS[placement]().train(algorithm, problem, algorithm.init(problem, start), dataset, end_one)
        directories = sorted(path for _, path in dataset._homes)
    return {
        "undisturbed": undisturbed.report.objective,
        "disturbed": trained.state.objective,
        "killed": len(killed),
        "count": data.count(),
        "again": ESTIMATOR.fit(data).report.objective,
        "left": [d for d in directories if os.path.exists(d)],
    }


def with_shards(data: DataFrame, undisturbed: Any) -> dict[str, Any]:
    """An executor ends within a round, and its disks with it, as a host's would."""
    estimator = ESTIMATOR.copy()._set(solver="l-bfgs", placement="partitioned")
    killed: list[int] = []
    seen: list[int] = []

    def end_one() -> None:
        victim = sorted(executors())[0]
        disks = psutil.Process(victim).environ()["SPARK_EXECUTOR_DIRS"]
        os.kill(victim, signal.SIGKILL)
        for disk in disks.split(os.pathsep):
            shutil.rmtree(disk, ignore_errors=True)
        killed.append(victim)

    ending = threading.Timer(0.15, end_one)

    def on_round(history) -> None:
        seen.append(len(history.rounds))
        if len(history.rounds) == 6 and not ending.is_alive() and not killed:
            ending.start()

    model = estimator.copy()._set(checkpointDir=str(KEPT), checkpointInterval=5).setOnRound(on_round).fit(data)
    again = estimator.copy()._set(tol=1e-6).fit(data)  # of many a Spark job each
    return {
        "killed": len(killed),
        "seen": seen,
        "expected": list(undisturbed.coefficients),
        "objective": [undisturbed.report.objective, model.report.objective],
        "again": list(again.coefficients),
        "scored": again.transform(data).where("prediction = label").count(),
        "correct": undisturbed.transform(data).where("prediction = label").count(),
        "left": [str(path) for path in [*SCRATCH.rglob("sparkdml-*"), *KEPT.iterdir()]],
    }


def main() -> None:
    spark = (
        sparkdml.session()
        .master("local-cluster[2,1,1024]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", str(SCRATCH))
        .config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        .config("spark.executorEnv.SPARKDML_SITES", "executor")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    data = frame(spark)
    undisturbed = ESTIMATOR.fit(data)
    for placement in ("broadcast", "allreduce"):
        print(json.dumps({placement: with_whole_coefficients(data, placement, undisturbed)}), flush=True)
    print(json.dumps({"partitioned": with_shards(data, undisturbed)}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
