"""Fits beside a parameter server: in step and out of step, with a slow worker and without, late gradients as they come
and corrected. Workers are as slow as they are told to be: they sleep, so that two cores stand for many."""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark import cloudpickle

import server_bench
import sparkdml.cooperation
from console import table
from sparkdml.algorithms import SyncSGD
from sparkdml.classification import LogisticRegression
from sparkdml.data import from_dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RACES = ("messages", "stragglers", "delays")
#: Seconds of computing in a clock of an ordinary worker, and how many times as long a slow one takes.
CLOCK_SECONDS, SLOWER = 0.02, 5
ROWS, COLUMNS = 20_000, 50
REPEATS, PASSES = 3, 8
#: Of which the best is taken, by one fit of each.
STEP_SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)
#: BSP, SSP and ASP.
STALENESS = (0, 3, 10, 30, -1)
#: How near to the optimum counts as there.
NEAR = 1e-3


@dataclass(frozen=True)
class Paced(SyncSGD):
    """Each clock of worker n takes at least ``pace[n]`` seconds."""

    pace: tuple[float, ...] = ()

    def gradient(self, problem: Any, blocks: Any, coef: np.ndarray, turn: Any) -> np.ndarray:
        began = time.perf_counter()
        result = super().gradient(problem, blocks, coef, turn)
        time.sleep(max(self.pace[turn.worker] - (time.perf_counter() - began), 0.0))
        return result


@contextmanager
def paced(pace: tuple[float, ...]) -> Iterator[None]:
    """Fits by sgd have workers of this pace."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import jobs
    plain = sparkdml.cooperation.SyncSGD
    sparkdml.cooperation.SyncSGD = lambda *args: Paced(*args, pace=pace)  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        sparkdml.cooperation.SyncSGD = plain  # type: ignore[misc]
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def race(spark: SparkSession, name: str) -> tuple[dict[str, Any], str]:
    """One of :data:`RACES`; the session needs as many slots as there are workers: 4, or 8 for ``delays``."""
    if name == "messages":
        return server_bench.race()
    workers = {"stragglers": 4, "delays": 8}[name]
    slots = spark.sparkContext.defaultParallelism
    if slots < workers:
        raise ValueError(f"{name} needs {workers} slots, but the session has {slots}; use --master 'local[{workers}]'")
    frame = rows(spark, workers)
    with from_dataframe(frame) as blocks:
        optimum = LogisticRegression(regParam=1e-3, tol=1e-12, maxIter=200).fit(blocks).report.objective
        return {"stragglers": stragglers, "delays": delays}[name](blocks, workers, optimum)


def rows(spark: SparkSession, partitions: int) -> DataFrame:
    """Correlated features and noisy labels."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((ROWS, COLUMNS)) @ (np.eye(COLUMNS) + 0.3 * rng.standard_normal((COLUMNS, COLUMNS)) / 7.0)
    margins = X @ rng.standard_normal(COLUMNS) * 0.3
    labels = (margins + rng.logistic(size=ROWS) > 0).astype(float)
    lines = [(x.tolist(), label) for x, label in zip(X, labels.tolist(), strict=True)]
    schema = "features array<double>, label double"
    return spark.createDataFrame(spark.sparkContext.parallelize(lines, partitions), schema)


def estimator(**params: Any) -> LogisticRegression:
    return LogisticRegression(
        regParam=1e-3, solver="sgd", optimizer="sgd", schedule="inverse-square-root", miniBatchFraction=0.1,
        tol=0.0, placement="server", **params,
    )  # fmt: skip


def seconds_to(report: Any, optimum: float) -> float:
    """When the objective was :data:`NEAR`; infinite if it never was.

    It is known at the starts of passes; between two of them the distance to the optimum is taken to fall by a rate.
    """
    spent = list(itertools.accumulate(entry.seconds for entry in report.history))
    above = [entry.objective - optimum for entry in report.history]
    there = next((n for n, gap in enumerate(above) if gap <= NEAR), None)
    if there is None:
        return math.inf
    if there == 0 or above[there] <= 0.0:
        return spent[there]
    share = math.log(above[there - 1] / NEAR) / math.log(above[there - 1] / above[there])
    return spent[there - 1] + share * (spent[there] - spent[there - 1])


def stragglers(blocks: Any, workers: int, optimum: float) -> tuple[dict[str, Any], str]:
    """Seconds to the optimum by staleness, the best step size of each, with one slow worker and without."""
    figures: dict[str, Any] = {}
    body = [["", "step size", f"s to F* + {NEAR:g}", "F - F* at the end", "BSP / this"]]
    for kind, pace in {
        "all alike": (CLOCK_SECONDS,) * workers,
        f"one {SLOWER}x slower": (CLOCK_SECONDS * SLOWER,) + (CLOCK_SECONDS,) * (workers - 1),
    }.items():
        in_step = np.nan
        for staleness in STALENESS:
            size, taken, left = best(blocks, pace, staleness, optimum)
            in_step = taken if staleness == 0 else in_step
            name = {0: "BSP", -1: "ASP"}.get(staleness, f"SSP {staleness}")
            figures[f"{kind}, {name}"] = {"step size": size, "seconds": taken, "above": left}
            body.append([f"{kind}, {name}", f"{size:g}", f"{taken:.2f}", f"{left:.2e}", f"{in_step / taken:.2f}"])
    return figures, f"stragglers: {workers} workers, {CLOCK_SECONDS * 1e3:g} ms a clock\n{table(body)}"


def best(blocks: Any, pace: tuple[float, ...], staleness: int, optimum: float) -> tuple[float, float, float]:
    """The step size that gets there first, its median seconds, and how far above the optimum it ends."""

    def run(size: float) -> tuple[float, float]:
        with paced(pace):
            report = estimator(staleness=staleness, stepSize=size, maxIter=PASSES).fit(blocks).report
        return seconds_to(report, optimum), report.objective - optimum

    size = min(STEP_SIZES, key=lambda size: run(size))
    times, left = zip(*(run(size) for _ in range(REPEATS)), strict=True)
    return size, statistics.median(times), statistics.median(left)


def delays(blocks: Any, workers: int, optimum: float) -> tuple[dict[str, Any], str]:
    """The objective after as many passes, by what is done about late gradients."""
    pace = (CLOCK_SECONDS,) * workers
    figures: dict[str, Any] = {}
    sizes = (0.5, 2.0)
    body = [["F - F* after 6 passes", *(f"step size {size:g}" for size in sizes)]]
    for stale in ("as-it-comes", "compensated:0.04", "compensated:1", "adaptively-compensated:0.5", "adadelay"):
        left = []
        for size in sizes:
            ends = []
            for seed in range(REPEATS):
                with paced(pace):
                    how = {} if stale == "as-it-comes" else {"staleGradients": stale}
                    fit = estimator(staleness=-1, stepSize=size, maxIter=6, seed=seed, **how)
                    ends.append(fit.fit(blocks).report.objective - optimum)
            left.append(statistics.median(ends))
        figures[stale] = dict(zip(map(str, sizes), left, strict=True))
        body.append([stale, *(f"{value:.3e}" for value in left)])
    return figures, f"delays: {workers} workers, asynchronous\n{table(body)}"
