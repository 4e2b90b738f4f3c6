"""Threads that share coefficients: what a second thread saves, and what it costs in loss; and against pyspark.ml."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import workloads
from console import table
from contenders import Contender, run_in_turn, standings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkdml.data import Dataset

#: Coefficients of features as they are: divided by deviations, rare ones make rows too long for steps of single rows.
RACES: dict[str, dict[str, Any]] = {
    "adagrad": {"optimizer": "adagrad", "stepSize": 0.1},
    "sgd": {"optimizer": "sgd", "stepSize": 0.05, "schedule": "cosine"},
}
#: How far above the optimum contenders may stop, and the most passes or iterations that they may take to come there.
GAP, MOST = 1e-2, 20
#: Passes of a fit by each number of threads, for the loss at its end.
PASSES = 5


def race(spark: SparkSession, name: str, folder: Path, repeats: int) -> tuple[dict[str, Any], str]:
    """Figures and tables of one step rule on sparse rows."""
    from sparkdml.data import from_dataframe
    from sparkdml.resources.threads import one_blas_thread

    workload = workloads.wide_sparse(folder)
    workload = replace(workload, params={**workload.params, "standardization": False})
    steps = {"solver": "hogwild", **RACES[name]}
    cached = workload.frame(spark).cache()
    rows = cached.count()
    with from_dataframe(cached) as blocks:
        optimum = _fit(blocks, {**workload.params, "solver": "l-bfgs", "tol": 1e-11, "maxIter": 1000}).objective
        with one_blas_thread():
            scaling = scale(blocks, {**workload.params, **steps}, repeats)
        target = optimum + GAP
        passes = _fewest(lambda n: _fit(blocks, {**workload.params, **steps, "maxIter": n}).objective, target)
        iterations = _fewest(lambda n: _stock(cached, {**workload.params, "maxIter": n})[0], target)

        def ours(data: Any, **how: Any) -> tuple[float, dict[str, float]]:
            report = _fit(data, {**workload.params, **how})
            return report.objective, {**report.seconds, "rounds": report.rounds}

        contenders = [
            Contender("pyspark.ml, cached", lambda: _stock(cached, {**workload.params, "maxIter": iterations})),
            Contender("hogwild, cached", lambda: ours(cached, **steps, maxIter=passes)),
            Contender("hogwild, prepared", lambda: ours(blocks, **steps, maxIter=passes)),
            Contender("l-bfgs, cached", lambda: ours(cached, solver="l-bfgs", maxIter=iterations)),
        ]
        run_in_turn(contenders, repeats)
    cached.unpersist()
    one, two = (scaling["seconds"][threads] for threads in (1, 2))
    losses = scaling["objective"]
    body = [["threads", "seconds a pass", "CPU seconds", f"objective after {PASSES} passes"]]
    for threads in (1, 2):
        cpu = statistics.median(scaling["cpu"][threads])
        wall = statistics.median(scaling["seconds"][threads])
        body.append([str(threads), f"{wall:.3f}", f"{cpu:.3f}", f"{losses[threads]:.6f}"])
    lines = [
        f"hogwild, {name}: {rows} rows x {workload.features.shape[1]} features, {workload.params}, {RACES[name]}",
        table(body),
        f"one thread / two: {statistics.median(one) / statistics.median(two):.2f}; two threads' objective / one's: "
        f"{losses[2] / losses[1]:.4f}",
        f"to {target:.6f}, which is {GAP:g} above the optimum:",
        standings(contenders, target, lambda c: contenders[0]),
    ]
    figures = {"scaling": scaling, "optimum": optimum, "seconds": {c.name: c.seconds for c in contenders}}
    return figures, "\n".join(lines)


def scale(blocks: Dataset, params: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Seconds of a round, a pass and the loss before it, on one thread and on two in turn; objectives after passes."""
    from sparkdml.classification import LogisticRegression
    from sparkdml.core import Turn
    from sparkdml.losses import Logistic

    estimator = LogisticRegression(**params)
    problem = estimator._problem(blocks, Logistic(), **estimator._coordinates(sparse=True))
    algorithm = estimator._plan().algorithm()
    opened = [block for partition in blocks.open_here() for block in partition]
    seconds: dict[int, list[float]] = {1: [], 2: []}
    cpu: dict[int, list[float]] = {1: [], 2: []}
    objective = {}
    for repeat in range(repeats + 1):
        states = {threads: algorithm.init(problem, np.zeros(problem.size)) for threads in (1, 2)}
        memories: dict[int, Any] = {1: None, 2: None}
        for clock in range(PASSES + 1):
            for threads in (1, 2):
                began, spent = time.perf_counter(), time.process_time()
                turn = Turn(clock, threads=threads)
                update, memories[threads] = algorithm.work(
                    problem, opened, states[threads].coef, memories[threads], turn
                )
                if repeat:  # the first is a warm-up
                    seconds[threads].append(time.perf_counter() - began)
                    cpu[threads].append(time.process_time() - spent)
                states[threads] = algorithm.advance(problem, states[threads], update)
        objective = {threads: states[threads].objective for threads in (1, 2)}
    return {"seconds": seconds, "cpu": cpu, "objective": objective}


def _fewest(reached: Callable[[int], float], target: float) -> int:
    """The smallest limit with which a fit comes to ``target``."""
    return next((limit for limit in range(1, MOST) if reached(limit) <= target), MOST)


def _fit(data: Any, params: dict[str, Any]) -> Any:
    from sparkdml.classification import LogisticRegression

    return LogisticRegression(**{"tol": 0.0, **params}).fit(data).report


def _stock(frame: DataFrame, params: dict[str, Any]) -> tuple[float, dict[str, float]]:
    from pyspark.ml.classification import LogisticRegression

    summary = LogisticRegression(tol=0.0, **params).fit(frame).summary
    return summary.objectiveHistory[-1], {"rounds": summary.totalIterations + 1}
