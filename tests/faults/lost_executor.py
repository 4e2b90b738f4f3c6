"""Run by test_lost_executor.py with a placement: one of two executors ends during a fit. Prints one line of JSON."""

from __future__ import annotations

import json
import os
import signal
import sys

import numpy as np
import psutil
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql.types import DoubleType, StructField, StructType

import sparkdml
from sparkdml.algorithms import LBFGS
from sparkdml.classification import LogisticRegression
from sparkdml.classification.logistic_regression import starting_point
from sparkdml.data import from_dataframe
from sparkdml.losses import Logistic
from sparkdml.placement import PLACEMENTS

SCHEMA = StructType([StructField("features", VectorUDT()), StructField("label", DoubleType())])


def executors() -> list[int]:
    """Process ids of the executors that this application started."""
    found = psutil.Process().children(recursive=True)
    return [p.pid for p in found if "CoarseGrainedExecutorBackend" in " ".join(_command(p))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def frame(spark, rows=400):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 5)) @ rng.standard_normal((5, 5))
    y = (X[:, 0] + rng.standard_normal(rows) > 0).astype(float)
    data = [(Vectors.dense(x), float(label)) for x, label in zip(X, y, strict=True)]
    return spark.createDataFrame(spark.sparkContext.parallelize(data, 4), SCHEMA)


def main() -> None:
    spark = (
        sparkdml.session()
        .master("local-cluster[2,1,1024]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    data = frame(spark)
    estimator = LogisticRegression(regParam=1e-3, tol=1e-12)
    undisturbed = estimator.fit(data)
    killed: list[int] = []

    def end_one(entry, state) -> None:
        if entry.round == 3:
            victim = sorted(executors())[0]
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

    with from_dataframe(data) as dataset:
        problem = estimator._problem(dataset, Logistic())
        start = starting_point(problem, dataset.statistics.histogram)
        algorithm = LBFGS(100, 1e-12)
        trained = PLACEMENTS[sys.argv[1]]().train(algorithm, problem, algorithm.init(problem, start), dataset, end_one)
        directories = sorted(path for _, path in dataset._homes)
    print(
        json.dumps(
            {
                "undisturbed": undisturbed.report.objective,
                "disturbed": trained.state.objective,
                "rounds": [undisturbed.report.rounds, len(trained.history.rounds)],
                "killed": len(killed),
                "count": data.count(),
                "again": estimator.fit(data).report.objective,
                "left": [d for d in directories if os.path.exists(d)],
            }
        ),
        flush=True,
    )
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
