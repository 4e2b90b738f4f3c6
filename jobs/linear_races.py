"""Every estimator of the linear family against pyspark.ml, on one cached frame and on prepared blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contenders import Contender, loosest, run_in_turn, standings
from workloads import Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Race:
    """An estimator with its parameters. ``exact``: both sides run the same steps, whatever ``tol`` is."""

    module: str
    estimator: str
    params: dict[str, Any] = field(default_factory=dict)
    label: str = "label"
    exact: bool = False

    def make(self, library: str, **more: Any) -> Any:
        module = __import__(f"{library}.{self.module}", fromlist=[self.estimator])
        return getattr(module, self.estimator)(labelCol=self.label, **self.params, **more)


#: On the dense workload, which has a regression target and a count beside its label.
RACES = {
    "elastic-net": Race("classification", "LogisticRegression", {"regParam": 0.01, "elasticNetParam": 0.5}),
    "svc": Race("classification", "LinearSVC", {"regParam": 0.01}),
    "ridge": Race("regression", "LinearRegression", {"regParam": 0.1, "solver": "l-bfgs"}, "target"),
    "lasso": Race(
        "regression", "LinearRegression", {"regParam": 0.1, "elasticNetParam": 1.0, "solver": "l-bfgs"}, "target"
    ),
    "normal": Race("regression", "LinearRegression", {"regParam": 0.1, "solver": "normal"}, "target", exact=True),
    "huber": Race("regression", "LinearRegression", {"loss": "huber", "regParam": 0.01}, "target"),
    "poisson": Race("regression", "GeneralizedLinearRegression", {"family": "poisson"}, "count", exact=True),
}  # fmt: skip


def race(spark: SparkSession, name: str, workload: Workload, repeats: int, precision: float) -> tuple[dict, str]:
    """Figures and a table. Objectives are those that pyspark.ml reports; 0 where the steps are the same anyway."""
    from sparkdml.data import from_dataframe

    entry = RACES[name]
    classes = entry.module == "classification"
    cached = workload.frame(spark).select("features", entry.label).cache()
    rows = cached.count()
    with from_dataframe(cached, label=entry.label, classes=classes) as blocks:

        def ours(data: Any, tol: float, placement: str = "auto") -> tuple[float, dict[str, float]]:
            tight = {} if entry.exact else {"tol": tol, "maxIter": 1000}
            report = entry.make("sparkdml", placement=placement, **tight).fit(data).report
            return 0.0 if entry.exact else report.objective, {**report.seconds, "rounds": report.rounds}

        def stock(data: DataFrame, tol: float) -> tuple[float, dict[str, float]]:
            tight = {} if entry.exact else {"tol": tol, "maxIter": 1000}
            summary = entry.make("pyspark.ml", **tight).fit(data).summary
            summary = summary() if callable(summary) else summary
            if entry.exact:
                return 0.0, {}
            return summary.objectiveHistory[-1], {"rounds": summary.totalIterations + 1}

        target, tol, stock_tol = 0.0, 1e-6, 1e-6
        if not entry.exact:
            # a loss with corners keeps pyspark.ml from the optimum: what its default tolerance reaches is the target
            optimum = stock(cached, 1e-6)[0] if name == "svc" else ours(blocks, 1e-11)[0] * (1 + precision)
            target = optimum
            tol = loosest(lambda t: ours(blocks, t)[0], target)
            stock_tol = 1e-6 if name == "svc" else loosest(lambda t: stock(cached, t)[0], target)
        contenders = [
            Contender("pyspark.ml, cached", lambda: stock(cached, stock_tol)),
            Contender("sparkdml, cached", lambda: ours(cached, tol)),
            Contender("sparkdml, prepared", lambda: ours(blocks, tol)),
            Contender("sparkdml, prepared, broadcast", lambda: ours(blocks, tol, "broadcast")),
        ]
        run_in_turn(contenders, repeats)
    cached.unpersist()
    lines = [
        f"{name}: {entry.estimator} {entry.params} on {rows} rows x {workload.features.shape[1]} features",
        f"target objective {target:.9f}, tol {tol:g} (pyspark.ml {stock_tol:g})",
        standings(contenders, target, lambda c: contenders[0]),
    ]
    figures = {
        "seconds": {c.name: c.seconds for c in contenders},
        "objective": {c.name: c.objective for c in contenders},
    }
    return figures, "\n".join(lines)
