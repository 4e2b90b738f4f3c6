"""How workers cooperate, method against method: rounds, seconds and bytes to come within a distance of the optimum."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import workloads
from console import size, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkdml.data import Dataset
    from sparkdml.placement import Placement, Trained

#: Distances from the optimum that are raced to.
GAPS = (1e-2, 1e-3, 1e-4, 1e-6)
#: Step sizes and schedules: methods that have them are tried with each; what comes closest soonest counts.
TUNED = [
    {"stepSize": step, "schedule": schedule}
    for schedule in ("constant", "inverse-square-root")
    for step in (0.03, 0.1, 0.3)
]
AS_IT_IS: list[dict[str, Any]] = [{}]
METHODS: dict[str, tuple[dict[str, Any], Sequence[dict[str, Any]]]] = {
    "mini-batch SGD": ({"solver": "sgd", "optimizer": "momentum", "miniBatchFraction": 0.01}, TUNED),
    "mini-batch AdaGrad": ({"solver": "sgd", "miniBatchFraction": 0.01}, TUNED),
    "model averaging": ({"solver": "model-averaging"}, TUNED),
    "model averaging, SVRG": ({"solver": "model-averaging", "optimizer": "svrg"}, AS_IT_IS),
    "BMUF": ({"solver": "bmuf", "blockMomentum": 0.5}, TUNED),
    "EASGD": ({"solver": "easgd"}, TUNED),
    "ADMM": ({"solver": "admm"}, AS_IT_IS),
    "CoCoA+": ({"solver": "cocoa"}, AS_IT_IS),
    "distributed SVRG": ({"solver": "svrg"}, AS_IT_IS),
    "Newton-CG": ({"solver": "newton-cg"}, AS_IT_IS),
    "L-BFGS": ({"solver": "l-bfgs"}, AS_IT_IS),
}
#: Digits that are raced on: of all of them, a hundred passes of every method would take hours.
MNIST_ROWS = 10_000
#: What is sent: from a name to a codec.
CODECS = {"float64": "identity", "float16": "float16", "8 bits": "int8", "1 bit": "1-bit", "top 1%": "top-k:0.01"}


SENDERS: dict[str, dict[str, Any]] = {
    "sgd": {"stepSize": 0.03, "miniBatchFraction": 0.01},
    "model-averaging": {"stepSize": 0.03, "localSteps": 20},
}
#: Passes over the rows that plain numbers get.
CODEC_PASSES = 10


@dataclass(frozen=True)
class Reached:
    """What a fit had cost when its objective first came within a distance; None if it never did."""

    rounds: int
    seconds: float
    sent: int


def race(
    spark: SparkSession, name: str, folder: Path, data: Path, placement: str, passes: int
) -> tuple[dict[str, Any], str] | None:
    """All methods on one workload, each for at most so many passes: figures and table; None without its data."""
    from sparkdml.data import from_dataframe

    workload = workload_of(name, folder, data)
    if workload is None:
        return None
    with from_dataframe(workload.frame(spark)) as dataset:
        optimum = _fit(dataset, {**workload.params, "solver": "l-bfgs", "tol": 1e-13, "maxIter": 2000}).objective
        body = [["", "steps", *(f"{what} to {gap:g}" for gap in GAPS for what in ("rounds", "seconds", "sent"))]]
        results: dict[str, Any] = {"optimum": optimum}
        for method, (params, choices) in METHODS.items():
            if method == "CoCoA+" and len(np.unique(workload.labels)) > 2:
                continue  # its dual has one margin a row
            common = {**workload.params, **params, "placement": placement, "maxIter": passes, "tol": 1e-12}
            tries = [(choice, _reached(dataset, {**common, **choice}, optimum)) for choice in choices]
            choice, reached = min(tries, key=lambda entry: _rank(entry[1]))
            results[method] = {**choice, "reached": [None if r is None else vars(r) for r in reached]}
            body.append([method, " ".join(map(str, choice.values())), *_cells(reached)])
            print(".", end="", flush=True)
    lines = [
        f"\n{workload.name}: {len(workload.labels)} rows x {workload.features.shape[1]} features, {workload.params}",
        f"optimum {optimum:.9f}; placement {placement}; at most {passes} passes over the rows",
        table(body),
    ]
    return results, "\n".join(lines)


def codecs(spark: SparkSession, name: str, folder: Path, data: Path) -> tuple[dict[str, Any], str] | None:
    """Bytes with every codec to the loss that plain numbers end with, within 1e-3 of it; None without its data."""
    from sparkdml.data import from_dataframe

    workload = workload_of(name, folder, data)
    if workload is None:
        return None
    body = [["", "codec", "rounds", "sent", "plain/this"]]
    results: dict[str, Any] = {}
    with from_dataframe(workload.frame(spark)) as dataset:
        for solver, more in SENDERS.items():
            common = {**workload.params, **more, "solver": solver, "placement": "allreduce", "tol": 0.0}
            target = _fit(dataset, {**common, "maxIter": CODEC_PASSES}).objective * (1 + 1e-3)
            plain = 0
            for label, codec in CODECS.items():
                # what sends a fiftieth may take more rounds
                report = _fit(dataset, {**common, "codec": codec, "maxIter": 3 * CODEC_PASSES})
                reached = _first_within(report.history, target)
                results[f"{solver}, {label}"] = None if reached is None else vars(reached)
                if reached is None:
                    body.append([solver, label, "-", "-", f"ends {report.objective / target - 1:.1e} above"])
                    continue
                plain = plain or reached.sent
                body.append([solver, label, str(reached.rounds), size(reached.sent), f"{plain / reached.sent:.1f}x"])
    return results, f"\nwhat is sent: {workload.name}, allreduce, to the same loss\n" + table(body)


def rounds(spark: SparkSession, parameters: int = 1000, steps: int = 200) -> tuple[dict[str, Any], str]:
    """L-BFGS under every placement on a problem that takes 200 steps: what a round costs beyond arithmetic."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as F

    from sparkdml.data import from_dataframe
    from sparkdml.placement import AllReduce, Broadcast, Local

    rng = np.random.default_rng(5)
    # correlated, so that it takes many steps
    turn = np.linalg.qr(rng.standard_normal((parameters, parameters)))[0]
    features = rng.standard_normal((10_000, parameters)) * np.logspace(0, -2.5, parameters) @ turn
    scores = features @ rng.standard_normal(parameters)
    labels = (rng.random(10_000) < 1 / (1 + np.exp(-scores / scores.std()))).astype(float)
    frame = spark.createDataFrame(
        [(row.tolist(), float(y)) for row, y in zip(features, labels, strict=True)],
        "features array<double>, label double",
    )
    frame = frame.select(array_to_vector(F.col("features")).alias("features"), F.col("label")).repartition(2).cache()
    body = [["", "rounds", "seconds", "compute ms", "beyond it ms", "broadcast/this", "objective"]]
    results: dict[str, Any] = {}
    with from_dataframe(frame) as dataset:
        for placement in (Broadcast(), AllReduce(), Local()):
            for limit in (10, steps):  # the first is a warm-up
                began = time.perf_counter()
                trained = _lbfgs(dataset, placement, limit)
                seconds = time.perf_counter() - began
            history = trained.history
            count = len(history.rounds)
            compute = 1e3 * history.total("compute_seconds") / count
            beyond = 1e3 * history.total("seconds") / count - compute
            results[placement.name] = {"rounds": count, "seconds": seconds, "compute_ms": compute, "beyond_ms": beyond}
            ratio = results["broadcast"]["seconds"] / seconds
            cells = [f"{seconds:.2f}", f"{compute:.2f}", f"{beyond:.2f}", f"{ratio:.1f}x"]
            body.append([placement.name, str(count), *cells, f"{trained.state.objective:.9f}"])
    frame.unpersist()
    return results, f"\n{steps} steps of L-BFGS, {parameters} parameters, 2 workers\n" + table(body)


def _lbfgs(dataset: Dataset, placement: Placement, steps: int) -> Trained:
    """The same steps everywhere: where rounds are dear, estimators would choose a Gram matrix, which takes few."""
    from sparkdml.algorithms import LBFGS
    from sparkdml.losses import Logistic
    from sparkdml.penalties import L2
    from sparkdml.problem import Problem, Scaling

    statistics = dataset.statistics
    scaling = Scaling(statistics.mean[:, None], 1.0 / statistics.std[:, None])
    problem = Problem(Logistic(), L2(1e-6, np.ones((dataset.features, 1))), scaling, True, statistics.weight_sum)
    algorithm = LBFGS(steps, 0.0)
    return placement.train(algorithm, problem, algorithm.init(problem, np.zeros(problem.size)), dataset)


def workload_of(name: str, folder: Path, data: Path) -> workloads.Workload | None:
    if name == "dense":
        return workloads.dense(folder)
    if name == "mnist":
        digits = workloads.mnist(folder, data / "mnist_train.parquet", MNIST_ROWS)
        # with less of a penalty, methods of single steps do not come within 1e-3 in a hundred passes
        return digits and replace(digits, params={**digits.params, "regParam": 1e-2})
    return workloads.a9a(folder, data / "a9a")


def _fit(dataset: Dataset, params: dict[str, Any]) -> Any:
    from sparkdml.classification import LogisticRegression

    return LogisticRegression(**{"seed": 1, **params}).fit(dataset).report


def _reached(dataset: Dataset, params: dict[str, Any], optimum: float) -> list[Reached | None]:
    try:
        report = _fit(dataset, params)
    except ValueError:  # it diverged
        return [None] * len(GAPS)
    return [_first_within(report.history, optimum + gap) for gap in GAPS]


def _first_within(history: Iterable[Any], target: float) -> Reached | None:
    seconds, sent = 0.0, 0
    for entry in history:
        seconds += entry.seconds
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
