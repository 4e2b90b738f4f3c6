"""Run by test_executor_servers.py: the executor with the server ends during a fit. Prints one line of JSON."""

from __future__ import annotations

import json
import os
import signal
import sys

import numpy as np
import psutil
from lost_executor import executors
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql.types import DoubleType, StructField, StructType

import sparkdml
from sparkdml.classification import LogisticRegression

SCHEMA = StructType([StructField("features", VectorUDT()), StructField("label", DoubleType())])


def server_executor() -> int:
    """The executor one of whose Python processes listens: workers only dial."""
    found = [
        pid
        for pid in executors()
        for child in psutil.Process(pid).children(recursive=True)
        if any(connection.status == psutil.CONN_LISTEN for connection in child.net_connections("tcp"))
    ]
    (pid,) = set(found)
    return pid


def main() -> None:
    spark = (
        sparkdml.session()
        .master("local-cluster[2,2,1024]")
        .config("spark.driver.memory", "1g")
        .config("spark.task.cpus", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 5))
    y = (X[:, 0] + rng.standard_normal(300) > 0).astype(float)
    rows = [(Vectors.dense(x), float(label)) for x, label in zip(X, y, strict=True)]
    data = spark.createDataFrame(spark.sparkContext.parallelize(rows, 3), SCHEMA)
    estimator = LogisticRegression(
        regParam=0.05, solver="sgd", miniBatchFraction=0.5, maxIter=10, tol=0.0, checkpointInterval=2
    )
    calm = estimator.copy()._set(placement="broadcast").fit(data)
    killed: list[int] = []

    def end_one(history) -> None:
        if len(history.rounds) == 5 and not killed:
            killed.append(server_executor())
            os.kill(killed[0], signal.SIGKILL)

    estimator._set(placement="server", serverLaunch="executors", checkpointDir=sys.argv[1])
    model = estimator.setOnRound(end_one).fit(data)
    print(
        json.dumps(
            {
                "same": bool(np.array_equal(model.coefficients.toArray(), calm.coefficients.toArray())),
                "killed": len(killed),
                "rounds": model.report.rounds,
                "count": data.count(),
            }
        ),
        flush=True,
    )
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
