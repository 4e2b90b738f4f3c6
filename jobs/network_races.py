"""The multilayer perceptron (784-100-10, L-BFGS) against pyspark.ml and scikit-learn, to one training loss."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import workloads
from contenders import Contender, run_in_turn, standings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAYERS = [784, 100, 10]
#: What scikit-learn may iterate, to find the fewest that reach the loss: it keeps no history of L-BFGS.
LADDER = (5, 8, 12, 16, 20, 25, 30, 40, 50, 70, 100)


def race(spark: SparkSession, folder: Path, source: Path, iterations: int, repeats: int) -> tuple[dict, str] | None:
    """Figures and a table; the loss is what pyspark.ml reaches in ``iterations``. None where the rows are absent."""
    from pyspark.ml.classification import MultilayerPerceptronClassifier as Stock

    from sparkdml.classification import MultilayerPerceptronClassifier
    from sparkdml.data import from_dataframe

    workload = workloads.mnist(folder, source)
    if workload is None:
        return None
    cached = workload.frame(spark).cache()
    cached.count()
    params: dict[str, Any] = {"layers": LAYERS, "seed": 1, "tol": 0.0}

    def stock() -> tuple[float, dict[str, float]]:
        history = Stock(maxIter=iterations, **params).fit(cached).summary().objectiveHistory
        return history[-1], {"rounds": len(history)}

    target = stock()[0]

    def ours(data: Any, most: int) -> tuple[float, Any]:
        report = MultilayerPerceptronClassifier(maxIter=most, **params).fit(data).report
        return report.objective, {**report.seconds, "rounds": report.rounds}

    with from_dataframe(cached) as blocks:
        longest = MultilayerPerceptronClassifier(maxIter=3 * iterations, **params).fit(blocks).report
        reached = [done.iteration for done in longest.history if done.objective <= target]
        most = reached[0] if reached else 3 * iterations
        contenders = [
            Contender("pyspark.ml, cached", stock),
            Contender("sparkdml, cached", lambda: ours(cached, most)),
            Contender("sparkdml, prepared", lambda: ours(blocks, most)),
            reference(workload, target),
        ]
        run_in_turn(contenders, repeats)
    cached.unpersist()
    lines = [
        f"networks: {LAYERS}, sigmoid, l-bfgs, {len(workload.labels)} rows; pyspark.ml's loss after {iterations} "
        f"iterations, which sparkdml has after {most}",
        standings(contenders, target, lambda c: contenders[0]),
    ]
    figures = {
        "seconds": {c.name: c.seconds for c in contenders},
        "objective": {c.name: c.objective for c in contenders},
    }
    return figures, "\n".join(lines)


def reference(workload: workloads.Workload, target: float) -> Contender:
    """scikit-learn on the same rows, with all cores."""
    from sklearn.neural_network import MLPClassifier

    X, y = np.asarray(workload.features.todense(), np.float32), workload.labels
    how: dict[str, Any] = {"activation": "logistic", "solver": "lbfgs", "alpha": 0.0, "tol": 0.0, "random_state": 1}

    def fit(most: int) -> float:
        return float(MLPClassifier(tuple(LAYERS[1:-1]), max_iter=most, **how).fit(X, y).loss_)

    most = next((most for most in LADDER if fit(most) <= target), LADDER[-1])
    return Contender("scikit-learn, all cores", lambda: (fit(most), {"rounds": most}))
