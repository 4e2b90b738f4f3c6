"""How well a classification model does on a frame, by Spark's own evaluators."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tables import Features, with_vector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Metrics as tables head them, and the names that Spark's evaluators have for them.
MULTICLASS = {"accuracy": "accuracy", "weighted F1": "f1", "log-loss": "logLoss"}
AREA = "AUC"


def measure(
    model: Any,
    frame: DataFrame,
    features: Features,
    label: str,
    weight: str | None = None,
    names: tuple[str, ...] = ("accuracy", "log-loss"),
) -> dict[str, float]:
    """The metrics ``names`` (of ``MULTICLASS``, and ``AREA``) of ``model`` on ``frame``.

    Raises:
        ValueError: for labels that are none of the model's classes.
    """
    with _scored(model, frame, features, label, weight) as scored:
        _check_labels(scored, label, model.numClasses)
        return {n: _evaluator(n, model, label, weight).evaluate(scored) for n in names}


@contextlib.contextmanager
def _scored(model: Any, frame: DataFrame, features: Features, label: str, weight: str | None) -> Iterator[DataFrame]:
    """Predictions and labels only, kept for as many metrics as are asked for."""
    frame, vector = with_vector(frame, features)
    outputs = [
        model.getPredictionCol(),
        model.getProbabilityCol(),
        model.getRawPredictionCol(),
    ]
    columns = dict.fromkeys([*outputs, label, *([weight] if weight else [])])
    scored = model.transform(frame, {model.featuresCol: vector}).select(*columns).persist()
    try:
        yield scored
    finally:
        scored.unpersist()


def _check_labels(scored: DataFrame, label: str, classes: int) -> None:
    from pyspark.sql import functions as F

    value = F.col(label)
    row = scored.agg(
        F.min(value).alias("least"),
        F.max(value).alias("most"),
        F.count(F.when(value.isNull(), 1)).alias("missing"),
        F.count(F.lit(1)).alias("rows"),
    ).head()
    assert row is not None
    if not row["rows"]:
        raise ValueError("the table has no rows, so there is nothing to measure")
    if row["missing"]:
        raise ValueError(f"column {label!r} is null in {row['missing']} rows; remove or fill them")
    if row["least"] < 0 or row["most"] >= classes:
        raise ValueError(
            f"column {label!r} has values from {row['least']} to {row['most']}, but the model "
            f"knows the classes 0 to {classes - 1}; map the labels, positive_label does for two"
        )


def _evaluator(name: str, model: Any, label: str, weight: str | None) -> Any:
    from pyspark.ml.evaluation import (
        BinaryClassificationEvaluator,
        MulticlassClassificationEvaluator,
    )

    evaluator: Any
    if name == AREA:
        evaluator = BinaryClassificationEvaluator(labelCol=label)
        evaluator.setRawPredictionCol(model.getRawPredictionCol())
    else:
        evaluator = MulticlassClassificationEvaluator(labelCol=label)
        evaluator.setMetricName(MULTICLASS[name])
        evaluator.setPredictionCol(model.getPredictionCol())
        evaluator.setProbabilityCol(model.getProbabilityCol())
    return evaluator.setWeightCol(weight) if weight else evaluator
