"""Run by test_lost_shards.py: one of two executors, each as if on a host of its own, ends during a partitioned fit.

Arguments: when (``between`` rounds, ``within`` one, or ``never``). Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import psutil
from lost_executor import executors, frame

import sparkdml
from sparkdml.classification import LogisticRegression


def main() -> None:
    when = sys.argv[1]
    spark = (
        sparkdml.session()
        .master("local-cluster[2,1,1024]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        .config("spark.executorEnv.SPARKDML_SITES", "executor")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    data = frame(spark)
    estimator = LogisticRegression(regParam=1e-3, tol=1e-12, solver="l-bfgs")
    undisturbed = estimator.copy().setPlacement("broadcast").fit(data)
    killed: list[int] = []
    seen: list[int] = []
    kept = Path("kept").absolute()

    def end_one() -> None:
        victim = sorted(executors())[0]
        disks = psutil.Process(victim).environ()["SPARK_EXECUTOR_DIRS"]
        os.kill(victim, signal.SIGKILL)
        for disk in disks.split(os.pathsep):  # which a host takes along
            shutil.rmtree(disk, ignore_errors=True)
        killed.append(victim)

    def on_round(history) -> None:
        seen.append(len(history.rounds))
        if len(history.rounds) == 6 and not killed and when != "never":
            if when == "between":
                end_one()
            else:
                killed.append(0)
                threading.Timer(0.15, lambda: (killed.clear(), end_one())).start()

    checkpointed = estimator.copy()._set(placement="partitioned", checkpointDir=str(kept), checkpointInterval=5)
    model = checkpointed.setOnRound(on_round).fit(data)
    again = estimator.copy().setPlacement("partitioned").fit(data)
    scored = again.transform(data).where("prediction = label").count()
    root = Path(spark.conf.get("spark.local.dir", "") or os.environ.get("SPARK_LOCAL_DIRS", "/tmp"))
    print(
        json.dumps(
            {
                "killed": len(killed),
                "seen": seen,
                "expected": list(undisturbed.coefficients),
                "disturbed": list(model.coefficients) if when == "never" else [],
                "objective": [undisturbed.report.objective, model.report.objective],
                "again": list(again.coefficients),
                "scored": scored,
                "correct": undisturbed.transform(data).where("prediction = label").count(),
                "driver": max(entry.bytes_driver for entry in again.report.history),
                "left": [str(path) for path in [*root.glob("*/sparkdml-*"), *kept.iterdir()]],
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main()
