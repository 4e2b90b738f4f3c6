"""Print how well a saved classification model does on a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tables
from config import ConfigError, setting
from console import launch, table
from metrics import AREA, MULTICLASS, measure
from models import check_model, input_width, load_model
from places import check_input
from tables import Features, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Config:
    """Which model to measure, and on what."""

    model: str = setting("the folder that the model was saved to")
    input: Table = setting("the rows to measure on")
    features: Features | None = setting(tables.MODEL_FEATURES, default=None)
    label: str = setting(tables.LABEL, default="label")
    positive_label: float | str | None = setting(tables.POSITIVE_LABEL, default=None)
    weight: str | None = setting(tables.WEIGHT, default=None)


def check(config: Config) -> None:
    """Refuse what can be known to be wrong without Spark."""
    check_model(config.model)
    check_input(config.input, "input")


def run(spark: SparkSession, config: Config) -> None:
    """Measure, and print a table."""
    from pyspark.ml.classification import ProbabilisticClassificationModel

    model = load_model(spark, config.model)
    if not isinstance(model, ProbabilisticClassificationModel):
        raise ConfigError(
            f"model: {config.model!r} is a {type(model).__name__}, "
            "allowed: a classification model that gives probabilities"
        )
    frame = tables.read(spark, config.input, input_width(model))
    frame = tables.labelled(frame, config.label, config.positive_label, config.weight)
    features = tables.model_features(frame, model, config.features)
    names = (*MULTICLASS, *([AREA] if model.numClasses == 2 else []))
    scores = measure(model, frame, features, config.label, config.weight, names)
    print(f"{config.model} on {config.input.path}\n")
    print(table([[name, f"{value:.4f}"] for name, value in scores.items()]))


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    return launch(Config, run, __doc__, argv, check)


if __name__ == "__main__":
    sys.exit(main())
