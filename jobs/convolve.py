"""A convolutional network on handwritten digits, written in PyTorch as for one machine and trained by all workers."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import tables
from config import setting
from console import launch
from tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Config:
    """Which digits, and how they are learned; the defaults are those in data/."""

    train: Table = setting("the rows to learn from", default_factory=lambda: Table("data/digits_train.parquet"))
    test: Table = setting("the rows to measure on", default_factory=lambda: Table("data/digits_test.parquet"))
    scale: float = setting("the largest value of a pixel", default=16.0)
    placement: str = setting("where the model lives", default="auto")
    solver: str = setting("how workers cooperate", default="model-averaging")
    passes: int = setting("over the rows", default=15)
    rate: float = setting("Adam's step size", default=0.005)
    seed: int = setting("of the start, and of what is random", default=1)


def scores(params: Any, features: Any, scale: float) -> Any:
    """Two 3 x 3 convolutions, each halved by the largest of 2 x 2, and one linear layer: (n, 10)."""
    import torch.nn.functional as F

    side = math.isqrt(features.shape[1])
    images = features.reshape(-1, 1, side, side) / scale
    for layer in params["convolutions"]:
        images = F.max_pool2d(F.relu(F.conv2d(images, layer["kernels"], layer["bias"], padding=1)), 2)
    return images.flatten(1) @ params["linear"]["weights"] + params["linear"]["bias"]


def run(spark: SparkSession, config: Config) -> None:
    import sparkdml

    train, test = (_labelled(tables.read(spark, table)) for table in (config.train, config.test))
    first = train.first()
    assert first is not None
    side, scale = math.isqrt(len(first.features)), config.scale

    def loss(params: Any, batch: Any) -> Any:
        import torch.nn.functional as F

        return F.cross_entropy(scores(params, batch.features, scale), batch.labels.long(), reduction="none")

    def predict(params: Any, features: Any) -> Any:
        return scores(params, features, scale).argmax(dim=1)

    objective = sparkdml.Objective(loss, start(side, config.seed), predict, library="torch")
    how: dict[str, Any] = {"localSteps": "pass"} if config.solver == "model-averaging" else {}
    model = sparkdml.Estimator(
        objective=objective, solver=config.solver, optimizer="adam", stepSize=config.rate, maxIter=config.passes,
        seed=config.seed, placement=config.placement, **how,
    ).fit(train)  # fmt: skip
    scored = model.transform(test)
    accuracy = scored.where("prediction = label").count() / scored.count()
    report = model.report
    assert report is not None
    print(f"{report.placement}; loss {report.objective:.4f}; accuracy on the test rows {accuracy:.4f}")


def start(side: int, seed: int) -> Any:
    """Kernels and weights of variance ``2 / inputs``."""
    rng = np.random.default_rng(seed)

    def drawn(*shape: int, inputs: int) -> np.ndarray:
        return rng.standard_normal(shape) * math.sqrt(2.0 / inputs)

    return {
        "convolutions": [
            {"kernels": drawn(8, 1, 3, 3, inputs=9), "bias": np.zeros(8)},
            {"kernels": drawn(16, 8, 3, 3, inputs=72), "bias": np.zeros(16)},
        ],
        "linear": {"weights": drawn(16 * (side // 4) ** 2, 10, inputs=16 * (side // 4) ** 2), "bias": np.zeros(10)},
    }


def _labelled(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.select(
        F.col("pixels").cast("array<double>").alias("features"), F.col("label").cast("double").alias("label")
    )


def main(argv: Sequence[str] | None = None) -> int:
    return launch(Config, run, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
