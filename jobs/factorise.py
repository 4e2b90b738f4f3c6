"""Matrix factorisation as an objective of one's own: ratings are products of users' and items' factors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from config import setting
from console import launch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Config:
    """Generated ratings, and how they are factorised."""

    users: int = setting("how many", default=300)
    items: int = setting("how many", default=200)
    ratings: int = setting("how many are known", default=20_000)
    factors: int = setting("of each user and item", default=5)
    placement: str = setting("where the model lives", default="auto")
    iterations: int = setting("of L-BFGS", default=60)


def loss(params: Any, batch: Any) -> tuple[np.ndarray, Any]:
    """``(u_i' v_j - r)^2 / 2`` of each row ``(i, j)``, and the derivative of their weighted sum."""
    users, items = batch.features[:, 0].astype(int), batch.features[:, 1].astype(int)
    u, v = params["users"][users], params["items"][items]
    errors = np.einsum("nk,nk->n", u, v) - batch.labels
    slopes = (batch.weights * errors)[:, None]
    gradient = {name: np.zeros_like(params[name]) for name in params}
    np.add.at(gradient["users"], users, slopes * v)
    np.add.at(gradient["items"], items, slopes * u)
    return 0.5 * errors**2, gradient


def predict(params: Any, features: np.ndarray) -> np.ndarray:
    users, items = features[:, 0].astype(int), features[:, 1].astype(int)
    return np.einsum("nk,nk->n", params["users"][users], params["items"][items])


def run(spark: SparkSession, config: Config) -> None:
    import sparkdml

    rng = np.random.default_rng(0)
    shapes = {"users": (config.users, config.factors), "items": (config.items, config.factors)}
    true = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    pairs = np.column_stack([rng.integers(0, n, config.ratings) for n in (config.users, config.items)]).astype(float)
    values = predict(true, pairs) + 0.1 * rng.standard_normal(config.ratings)
    rows = [(pair, value) for pair, value in zip(pairs.tolist(), values.tolist(), strict=True)]
    known, held = spark.createDataFrame(rows, "features array<double>, label double").randomSplit([0.9, 0.1], seed=1)
    start = {name: 0.1 * rng.standard_normal(shape) for name, shape in shapes.items()}
    objective = sparkdml.Objective(loss, start, predict, library="numpy", chunk_rows=8192)
    estimator = sparkdml.Estimator(
        objective=objective, regParam=1e-5, maxIter=config.iterations, tol=1e-9, placement=config.placement
    )
    model = estimator.fit(known)
    error = model.transform(held).selectExpr("sqrt(avg(power(prediction - label, 2))) AS e").first()
    report = model.report
    assert error is not None
    assert report is not None
    print(f"{report.placement}; {report.rounds} rounds; held-out error {error.e:.3f} (noise is 0.1)")


def main(argv: Sequence[str] | None = None) -> int:
    return launch(Config, run, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
