"""How workers cooperate, method against method: rounds, seconds and bytes to come within a distance of the optimum."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import workloads
from console import size, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkdml.data import Dataset

#: Distances from the optimum that are raced to.
GAPS = (1e-3, 1e-4, 1e-6)
STEP_SIZES = (0.03, 0.1, 0.3)
#: At most so many passes over the rows.
PASSES = 40
#: Methods with a step size are tried with each; the one that comes closest soonest counts.
METHODS: dict[str, tuple[dict[str, Any], Sequence[float | None]]] = {
    "mini-batch SGD": ({"solver": "sgd", "optimizer": "momentum", "miniBatchFraction": 0.01}, STEP_SIZES),
    "mini-batch AdaGrad": ({"solver": "sgd", "miniBatchFraction": 0.01}, STEP_SIZES),
    "model averaging": ({"solver": "model-averaging"}, STEP_SIZES),
    "model averaging, SVRG": ({"solver": "model-averaging", "optimizer": "svrg"}, (None,)),
    "BMUF": ({"solver": "bmuf", "blockMomentum": 0.5}, STEP_SIZES),
    "EASGD": ({"solver": "easgd"}, STEP_SIZES),
    "ADMM": ({"solver": "admm"}, (None,)),
    "CoCoA+": ({"solver": "cocoa"}, (None,)),
    "distributed SVRG": ({"solver": "svrg"}, (None,)),
    "Newton-CG": ({"solver": "newton-cg"}, (None,)),
    "L-BFGS": ({"solver": "l-bfgs"}, (None,)),
}
#: What is sent: from a name to a codec.
CODECS = {"float64": "identity", "float16": "float16", "8 bits": "int8", "1 bit": "1-bit", "top 1%": "top-k:0.01"}


@dataclass(frozen=True)
class Reached:
    """What a fit had cost when its objective first came within a distance; None if it never did."""

    rounds: int
    seconds: float
    sent: int


def race(spark: SparkSession, name: str, folder: Path, data: Path, placement: str) -> tuple[dict[str, Any], str] | None:
    """All methods on one workload: the figures and their table; None where its data is absent."""
    from sparkdml.data import from_dataframe

    workload = workload_of(name, folder, data)
    if workload is None:
        return None
    with from_dataframe(workload.frame(spark)) as dataset:
        optimum = _fit(dataset, workload.params, solver="l-bfgs", tol=1e-13, maxIter=2000).objective
        body = [["", "step", *(f"{what} to {gap:g}" for gap in GAPS for what in ("rounds", "seconds", "sent"))]]
        results: dict[str, Any] = {"optimum": optimum}
        for method, (params, steps) in METHODS.items():
            if method == "CoCoA+" and len(np.unique(workload.labels)) > 2:
                continue  # its dual has one margin a row
            tries = [(step, _reached(dataset, workload.params, params, step, placement, optimum)) for step in steps]
            step, reached = min(tries, key=lambda entry: _rank(entry[1]))
            results[method] = {"step": step, "reached": [None if r is None else vars(r) for r in reached]}
            body.append([method, "" if step is None else f"{step:g}", *_cells(reached)])
            print(".", end="", flush=True)
    lines = [
        f"\n{workload.name}: {len(workload.labels)} rows x {workload.features.shape[1]} features, {workload.params}",
        f"optimum {optimum:.9f}; placement {placement}; at most {PASSES} passes over the rows",
        table(body),
    ]
    return results, "\n".join(lines)


def codecs(spark: SparkSession, name: str, folder: Path, data: Path) -> tuple[dict[str, Any], str] | None:
    """Mini-batch descent and model averaging with every codec: bytes to the loss that plain numbers end with."""
    from sparkdml.data import from_dataframe

    workload = workload_of(name, folder, data)
    if workload is None:
        return None
    body = [["", "codec", "objective", "apart", "sent", "plain/this"]]
    results: dict[str, Any] = {}
    with from_dataframe(workload.frame(spark)) as dataset:
        for solver in ("sgd", "model-averaging"):
            plain: Any = None
            for label, codec in CODECS.items():
                limits = {"maxIter": 10 if solver == "sgd" else 20, "tol": 0.0}
                report = _fit(
                    dataset, workload.params, solver=solver, stepSize=0.03, codec=codec, placement="allreduce", **limits
                )
                plain = plain or report
                apart = report.objective / plain.objective - 1.0
                ratio = plain.bytes["up"] / report.bytes["up"]
                results[f"{solver}, {label}"] = {"objective": report.objective, "sent": report.bytes["up"]}
                cells = [f"{report.objective:.6f}", f"{apart:+.1e}", size(report.bytes["up"]), f"{ratio:.1f}x"]
                body.append([solver, label, *cells])
    return results, f"\nwhat is sent: {workload.name}, allreduce, same rounds\n" + table(body)


def rounds(spark: SparkSession, parameters: int = 1000, steps: int = 200) -> tuple[dict[str, Any], str]:
    """L-BFGS under every placement on a problem that takes 200 steps: what a round costs beyond arithmetic."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as F

    from sparkdml.data import from_dataframe

    rng = np.random.default_rng(5)
    features = rng.standard_normal((10_000, parameters)) * np.logspace(0, -2, parameters)
    features += rng.standard_normal((10_000, 1))  # correlated, so that it takes many steps
    labels = (rng.random(10_000) < 1 / (1 + np.exp(-features @ rng.standard_normal(parameters)))).astype(float)
    frame = spark.createDataFrame(
        [(row.tolist(), float(y)) for row, y in zip(features, labels, strict=True)],
        "features array<double>, label double",
    )
    frame = frame.select(array_to_vector(F.col("features")).alias("features"), F.col("label")).repartition(2).cache()
    body = [["", "rounds", "seconds", "compute ms", "beyond it ms", "broadcast/this", "objective"]]
    results: dict[str, Any] = {}
    with from_dataframe(frame) as dataset:
        for placement in ("broadcast", "allreduce", "local"):
            for warm in (True, False):
                began = time.perf_counter()
                report = _fit(dataset, {}, placement=placement, solver="l-bfgs", tol=0.0, maxIter=10 if warm else steps)
                seconds = time.perf_counter() - began
            per_round = {phase: 1e3 * value / report.rounds for phase, value in report.seconds.items()}
            beyond = per_round["aggregate"] + per_round["driver"]
            results[placement] = {"rounds": report.rounds, "seconds": seconds, "beyond_ms": beyond, **per_round}
            ratio = results["broadcast"]["seconds"] / seconds
            cells = [f"{seconds:.2f}", f"{per_round['compute']:.2f}", f"{beyond:.2f}", f"{ratio:.1f}x"]
            body.append([placement, str(report.rounds), *cells, f"{report.objective:.6f}"])
    frame.unpersist()
    return results, f"\n{steps} steps of L-BFGS, {parameters} parameters, 2 workers\n" + table(body)


def workload_of(name: str, folder: Path, data: Path) -> workloads.Workload | None:
    if name == "dense":
        return workloads.dense(folder)
    if name == "mnist":
        return workloads.mnist(folder, data / "mnist_train.parquet")
    return workloads.a9a(folder, data / "a9a")


def _fit(dataset: Dataset, params: dict[str, Any], **more: Any) -> Any:
    from sparkdml.classification import LogisticRegression

    return LogisticRegression(**{"seed": 1, **params, **more}).fit(dataset).report


def _reached(
    dataset: Dataset, params: dict[str, Any], method: dict[str, Any], step: float | None, placement: str, optimum: float
) -> list[Reached | None]:
    more = {} if step is None else {"stepSize": step}
    try:
        report = _fit(dataset, params, **method, **more, placement=placement, maxIter=PASSES, tol=1e-12)
    except ValueError:  # it diverged
        return [None] * len(GAPS)
    return [_first_within(report.history, optimum + gap) for gap in GAPS]


def _first_within(history: Iterable[Any], target: float) -> Reached | None:
    seconds, sent = 0.0, 0
    for entry in history:
        seconds += entry.compute_seconds + entry.aggregate_seconds + entry.driver_seconds
        sent += entry.bytes_up
        if entry.objective <= target:
            return Reached(entry.round + 1, seconds, sent)
    return None


def _rank(reached: Sequence[Reached | None]) -> tuple[float, ...]:
    """Closer is better, then sooner."""
    return tuple(math.inf if r is None else r.rounds for r in reversed(reached))


def _cells(reached: Sequence[Reached | None]) -> list[str]:
    return [
        cell
        for r in reached
        for cell in (("-", "-", "-") if r is None else (str(r.rounds), f"{r.seconds:.2f}", size(r.sent)))
    ]
