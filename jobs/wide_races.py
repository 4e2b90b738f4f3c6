"""Models of millions of features: seconds a round by where coefficients live, and a fit beyond the driver's memory.

Alone, with arguments FEATURES ROWS FOLDER: a few iterations of pyspark.ml on such rows, for a driver that may not
outlive them; prints one line of JSON."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workloads
from console import table
from workloads import Workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Features and rows of each race; in ``8M, few rows`` a worker's rows touch few of the features.
RACES = {"1M": (10**6, 200_000), "8M": (8 * 10**6, 200_000), "8M, few rows": (8 * 10**6, 10_000)}
#: And of the fit that must do with a small driver.
ENDURANCE = {"20M": (20 * 10**6, 200_000)}
#: Iterations of the two fits of pyspark.ml whose difference is the time of one.
SHORT, LONG = 2, 12
#: How often that is measured, unless it takes more than so many seconds.
REPEATS, ENOUGH = 5, 120.0
#: Driver memory to try pyspark.ml with, in GiB, and the most seconds that it may take.
MEMORY, PATIENCE = (1, 6, 14), 600


def race(spark: SparkSession, name: str, folder: Path, iterations: int) -> tuple[dict[str, Any], str]:
    """Seconds and bytes of a round of L-BFGS: broadcast, partitioned, and pyspark.ml in a process of its own."""
    from sparkdml.classification import LogisticRegression
    from sparkdml.data import from_dataframe

    columns, rows = RACES[name]
    workload = workloads.power_law(folder, rows, columns)
    figures: dict[str, dict[str, float]] = {}
    with from_dataframe(workload.frame(spark)) as blocks:
        for placement in ("broadcast", "partitioned", "broadcast", "partitioned"):  # the second of each counts
            estimator = LogisticRegression(
                maxIter=iterations, tol=0.0, placement=placement, solver="l-bfgs", **workload.params
            )
            started = time.perf_counter()
            model = estimator.fit(blocks)
            figures[f"sparkdml, {placement}"] = {**_per_round(model.report), "fit": time.perf_counter() - started}
    stock = alone(columns, rows, folder, MEMORY[1])
    body = [
        [
            "",
            "s a round",
            "compute",
            "wait",
            "serialise",
            "exchange",
            "algorithm",
            "MB to workers",
            "kB to driver",
            "objective",
        ]
    ]
    for who, found in figures.items():
        body.append(
            [
                who,
                *(f"{found[key]:.3f}" for key in ("seconds", "compute", "wait", "serialise", "aggregate", "driver")),
                f"{found['down'] / 1e6:.1f}",
                f"{found['to_driver'] / 1e3:.1f}",
                f"{found['objective']:.9f}",
            ]
        )
    told = f"{stock['seconds']:.3f}" if "seconds" in stock else "-"
    body.append([f"pyspark.ml, driver of {MEMORY[1]} GiB", told, *[""] * 8])
    ours, theirs = figures["sparkdml, partitioned"]["seconds"], figures["sparkdml, broadcast"]["seconds"]
    lines = [
        f"{name}: {rows} rows x {columns} features, 40 drawn a row, {iterations} iterations",
        table(body),
        f"partitioned / broadcast: {ours / theirs:.2f}",
    ]
    if "seconds" in stock:
        lines.append(f"pyspark.ml / partitioned: {stock['seconds'] / ours:.1f}")
    else:
        lines.append(f"pyspark.ml: {stock['error']}")
    return {"ours": figures, "pyspark.ml": stock}, "\n".join(lines)


def _per_round(report: Any) -> dict[str, float]:
    from sparkdml.report.history import PHASES

    rounds = report.history[2:]
    median = {name: statistics.median(getattr(entry, f"{name}_seconds") for entry in rounds) for name in PHASES}
    whole = [entry.seconds for entry in rounds]
    return {
        "seconds": statistics.median(whole),
        **median,
        "down": rounds[-1].bytes_down,
        "to_driver": max(entry.bytes_driver for entry in rounds),
        "objective": report.objective,
        "rounds": report.rounds,
    }


def endure(spark: SparkSession, name: str, folder: Path) -> tuple[dict[str, Any], str]:
    """Train, save, load elsewhere and score what the driver could not hold; and what pyspark.ml needs for it."""
    columns, rows = ENDURANCE[name]
    body = [["", "seconds", "rounds", "objective", "kB to driver a round", "driver, Python MB", "driver, JVM heap MB"]]
    figures: dict[str, Any] = {}
    cases = [("l-bfgs", columns, 2), ("l-bfgs", columns, 8), ("l-bfgs", columns // 4, 2), ("ftrl", columns, 2)]
    path = folder / "wide-model"
    for solver, width, partitions in cases:
        case = f"{solver}, {width // 10**6}M features, {partitions} partitions"
        figures[case] = _endured(spark, workloads.power_law(folder, rows, width), solver, partitions, path)
        found = figures[case]
        numbers = (found["seconds"], found["rounds"], found["objective"])
        sizes = (found["to_driver"] / 1e3, found["python"] / 1e6, found["heap"] / 1e6)
        body.append([case, f"{numbers[0]:.1f}", f"{numbers[1]}", f"{numbers[2]:.6f}", *(f"{s:.0f}" for s in sizes)])
    started = time.perf_counter()
    scored = _scored_elsewhere(path, workloads.power_law(folder, rows, columns))
    seconds = time.perf_counter() - started
    files = sorted(file.stat().st_size for file in path.rglob("*.parquet"))
    lines = [
        f"{name}: {rows} rows x {columns} features; spark.driver.memory={spark.conf.get('spark.driver.memory', '1g')}, "
        f"spark.driver.maxResultSize={spark.conf.get('spark.driver.maxResultSize', '1g')}",
        table(body),
        f"saved, loaded in a new process and scored there: {scored} of {rows} rows predicted right, {seconds:.1f} s; "
        f"coefficients in {len(files)} files of up to {files[-1] / 1e6:.1f} MB",
    ]
    stock = {}
    for memory in MEMORY:
        stock[memory] = alone(columns, rows, folder, memory)
        told = (
            f"{stock[memory]['seconds']:.1f} s an iteration" if "seconds" in stock[memory] else stock[memory]["error"]
        )
        lines.append(f"pyspark.ml with a driver of {memory} GiB: {told}")
        if "seconds" in stock[memory]:
            break
    return {"ours": figures, "pyspark.ml": stock, "scored": scored}, "\n".join(lines)


def _endured(spark: SparkSession, workload: Workload, solver: str, partitions: int, path: Path) -> dict[str, Any]:
    from memory import Watch
    from sparkdml.classification import LogisticRegression

    how: dict[str, Any] = {"maxIter": 15, "tol": 1e-6}
    if solver == "ftrl":
        how = {"solver": "sgd", "optimizer": "ftrl", "miniBatchFraction": 0.1, "stepSize": 0.5, "maxIter": 3}
    frame = workload.frame(spark).repartition(partitions) if partitions > 2 else workload.frame(spark)
    started = time.perf_counter()
    with Watch(spark) as watch:
        model = LogisticRegression(placement="partitioned", **how, **workload.params).fit(frame)
        model.write().overwrite().save(str(path))
    return {
        "seconds": time.perf_counter() - started,
        "rounds": model.report.rounds,
        "objective": model.report.objective,
        "to_driver": max(entry.bytes_driver for entry in model.report.history),
        "python": watch.python_bytes,
        "heap": watch.heap_bytes,
    }


def _scored_elsewhere(path: Path, workload: Workload) -> int:
    """Rows that the saved model predicts right, in a process that knows nothing else of it."""
    code = f"""
import sparkdml
from sparkdml.classification import DistributedLogisticRegressionModel
spark = sparkdml.session().master("local[2]").config("spark.driver.memory", "1g").getOrCreate()
model = DistributedLogisticRegressionModel.load({str(path)!r})
print(model.transform(spark.read.parquet({workload.path!r})).where("prediction = label").count())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, env=_own_jvm(), check=False
    )
    if done.returncode:
        raise RuntimeError(f"the process that was to score ended with {done.returncode}: {done.stderr[-2000:]}")
    return int(done.stdout.split()[-1])


def _own_jvm() -> dict[str, str]:
    """The environment without spark-submit's JVM, which another process must not use."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}


def alone(columns: int, rows: int, folder: Path, memory: int) -> dict[str, Any]:
    """Seconds of an iteration of pyspark.ml, in a process of its own with a driver of ``memory`` GiB; or its error."""
    command = [sys.executable, __file__, str(columns), str(rows), str(folder)]
    environment = {**_own_jvm(), "PYSPARK_SUBMIT_ARGS": f"--driver-memory {memory}g pyspark-shell"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {PATIENCE} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if lines:
        return dict(json.loads(lines[-1]))
    trouble = [line for line in done.stderr.splitlines() if "OutOfMemory" in line or "bigger than" in line]
    return {"error": (trouble or done.stderr.splitlines() or ["it ended without a word"])[0].strip()[:160]}


def stock(columns: int, rows: int, folder: Path) -> None:
    """A few iterations of pyspark.ml on cached rows."""
    from pyspark.ml.classification import LogisticRegression
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    workload = workloads.power_law(folder, rows, columns)
    frame = workload.frame(spark).cache()
    frame.count()

    def fit(iterations: int) -> tuple[float, int]:
        started = time.perf_counter()
        model = LogisticRegression(maxIter=iterations, tol=0.0, **workload.params).fit(frame)
        return time.perf_counter() - started, model.summary.totalIterations

    began = time.perf_counter()
    fit(SHORT)  # warms up
    differences: list[float] = []
    while len(differences) < REPEATS and (not differences or time.perf_counter() - began < ENOUGH):
        (short, _), (long, made) = fit(SHORT), fit(LONG)
        differences.append((long - short) / (made - SHORT))
    print(json.dumps({"seconds": statistics.median(differences), "fit": long}))
    spark.stop()


if __name__ == "__main__":
    stock(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
