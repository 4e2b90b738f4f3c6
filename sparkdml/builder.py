"""A SparkSession builder with the settings that speed sparkdml up."""

from __future__ import annotations

import os
import sys

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

#: Each costs speed when missing, never correctness. See docs/architecture.md for what each one saves.
SETTINGS = {
    # over TCP, delayed acknowledgements cost each Python task 40 ms
    "spark.python.unix.domain.socket.enabled": "true",
    # workers fork from a process that has numpy and the kernels loaded
    "spark.python.daemon.module": "sparkdml.daemon",
    # a worker that crashes in native code leaves its stack in the error
    "spark.python.worker.faulthandler.enabled": "true",
    # batches that fit a core's cache; a limit in bytes would be checked after every row, which costs a third of ingest
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.ui.showConsoleProgress": "false",
}


def session() -> SparkSession.Builder:
    """A builder to go on with: ``session().master("local[4]").appName("mine").getOrCreate()``.

    What ``spark-submit`` was told stands. Started from plain Python, the master is ``local[*]`` until you name
    another, and workers run the driver's interpreter.
    """
    builder: SparkSession.Builder = SparkSession.builder
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if submitted:
        # what spark-submit was told lives in its JVM, which a SparkConf sees only once it is attached
        SparkContext._ensure_initialized()
    given = SparkConf(loadDefaults=submitted)
    for name, value in SETTINGS.items():
        if not given.contains(name):
            builder = builder.config(name, value)
    if not submitted:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.master(os.environ.get("MASTER", "local[*]"))
    return builder
