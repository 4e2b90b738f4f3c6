"""Run by test_gpu_cluster.py: workers with GPUs on a cluster of two executors, then local mode. Prints a JSON line."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DoubleType, StructField, StructType

import sparkdml
from sparkdml.classification import LogisticRegression
from sparkdml.data import from_dataframe
from sparkdml.regression import LinearRegression
from sparkdml.resources.gpus.granted import addresses
from sparkdml.resources.gpus.workers import workers_for

SCHEMA = StructType([StructField("features", VectorUDT()), StructField("label", DoubleType())])
#: Which worker of the cluster comes first is left to them; none of the addresses is the first device.
DISCOVERY = """#!/bin/sh
for address in 1 3; do
  if mkdir "{folder}/$address" 2>/dev/null; then break; fi
done
printf '{{"name": "gpu", "addresses": ["%s"]}}\\n' "$address"
"""


def cluster(folder: Path) -> SparkSession:
    script = folder / "discovery.sh"
    script.write_text(DISCOVERY.format(folder=folder))
    script.chmod(0o755)
    return (
        sparkdml.session()
        .master("local-cluster[2,1,1024]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.worker.resource.gpu.amount", "1")
        .config("spark.worker.resource.gpu.discoveryScript", str(script))
        .config("spark.executor.resource.gpu.amount", "1")
        .config("spark.executorEnv.PYTHONPATH", os.environ["WORKERS_PYTHONPATH"])
        .getOrCreate()
    )


def frame(spark: SparkSession, classes: int = 2) -> DataFrame:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 5)) @ rng.standard_normal((5, 5))
    y = np.clip(np.round(X[:, 0] + rng.standard_normal(400)) + 1, 0, classes - 1)
    data = [(Vectors.dense(x), float(label)) for x, label in zip(X, y, strict=True)]
    return spark.createDataFrame(spark.sparkContext.parallelize(data, 4), SCHEMA)


def report(_: Iterator[int]) -> Iterator[tuple[str, list[str]]]:
    """The executor's number, and this task's GPUs."""
    time.sleep(1.0)
    yield Path.cwd().name, list(addresses())


def told(spark: SparkSession) -> dict[str, list[str]]:
    """The GPUs of each executor, as Spark's own status has them."""
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    found = [executors.apply(i) for i in range(executors.size())]
    return {e.id(): list(e.resources().apply("gpu").addresses()) for e in found if e.resources().contains("gpu")}


def refusal(action) -> str:
    began = time.monotonic()
    try:
        action()
    except ValueError as error:
        assert time.monotonic() - began < 30.0
        return str(error)
    return "was not refused"


def main() -> None:
    found: dict[str, object] = {}
    spark = cluster(Path.cwd())
    sc = spark.sparkContext
    sc.setLogLevel("OFF")
    tasks = workers_for(sc, gpus=1.0)
    deadline = time.monotonic() + 120.0
    while tasks.slots(sc) < 2 and time.monotonic() < deadline:  # executors come one by one
        time.sleep(0.2)
    found["slots"] = tasks.slots(sc)
    found["tasks"] = dict(tasks.holding(sc.parallelize(range(2), 2).mapPartitions(report)).collect())
    found["executors"] = told(spark)
    found["equal profiles are one"] = workers_for(sc, gpus=1.0).profile is tasks.profile

    for classes, hows in ((2, (("broadcast", 1.0), ("allreduce", 1.0))), (3, (("broadcast", 0.5),))):
        data = frame(spark, classes)
        estimator = LogisticRegression(regParam=1e-3, tol=1e-10, placement="broadcast", solver="l-bfgs")
        with from_dataframe(data) as dataset:
            plain = estimator.fit(dataset)
            for placement, gpus in hows:
                model = estimator.copy()._set(placement=placement, gpusPerWorker=gpus).fit(dataset)
                difference = np.abs(model.coefficientMatrix.toArray() - plain.coefficientMatrix.toArray()).max()
                found[f"{placement} {gpus:g}"] = [float(difference), model.report.devices]
            found["plain"] = plain.report.devices
    linear = LinearRegression(regParam=1e-3, tol=1e-12, solver="l-bfgs", placement="broadcast")
    plain, model = (each.fit(data) for each in (linear, linear.copy()._set(gpusPerWorker=1.0, numWorkers=1)))
    difference = model.report.objective / plain.report.objective - 1.0
    found["linear"] = [float(difference), model.report.devices, model.report.solver]
    found["auto"] = LogisticRegression(gpusPerWorker=1.0).fit(data).report.placement
    found["too many"] = refusal(lambda: LogisticRegression(gpusPerWorker=2.0).fit(data))
    spark.stop()

    amounts = {"spark.task.resource.gpu.amount": "1", "spark.executor.resource.gpu.amount": "1"}
    local = sparkdml.session().master("local[1]").config(map=amounts).getOrCreate()
    found["local"] = [
        refusal(lambda: LogisticRegression().fit(local.createDataFrame([(Vectors.dense(1.0), 1.0)], SCHEMA))),
        refusal(lambda: from_dataframe(local.createDataFrame([(Vectors.dense(1.0), 1.0)], SCHEMA))),
    ]
    print(json.dumps(found), flush=True)
    local.stop()


if __name__ == "__main__":
    sys.exit(main())
