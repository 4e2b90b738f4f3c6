"""Train a classifier, save it for stock Spark, and tell how well it does and what it cost."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

import tables
from config import ConfigError, setting
from console import launch, size, table
from metrics import measure
from places import Output, check_input, check_output, is_plain_parquet
from tables import Features, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkdml.data import Dataset

ESTIMATORS = dict.fromkeys(("LogisticRegression", "MultilayerPerceptronClassifier"), "sparkdml.classification")

#: The estimator's parameters that have keys of their own here.
_OWN_KEYS = {
    "featuresCol": "features",
    "featuresCols": "features",
    "labelCol": "label",
    "weightCol": "weight",
    "progress": "progress",
}


@dataclass(frozen=True)
class Config:
    """What to train, on what, and where the model goes."""

    train: Table = setting("the rows to learn from")
    test: Table | None = setting("the rows to measure on", default=None)
    test_fraction: float | None = setting(
        "in place of a test table: the share of train that is kept aside", default=None
    )
    seed: int = setting("of the split that test_fraction asks for", default=0)
    features: Features | None = setting(tables.TRAIN_FEATURES, default=None)
    label: str = setting(tables.LABEL, default="label")
    positive_label: float | str | None = setting(tables.POSITIVE_LABEL, default=None)
    weight: str | None = setting(tables.WEIGHT, default=None)
    estimator: Literal["LogisticRegression", "MultilayerPerceptronClassifier"] = setting(
        "what to fit", default="LogisticRegression"
    )
    params: dict[str, Any] = setting("the estimator's parameters, by pyspark's names", default_factory=dict)
    output: Output = setting(
        "the saved model; default path: models/ and the name of train.path",
        default_factory=Output,
    )
    progress: bool = setting("draw a bar of rounds on a terminal", default=True)

    @property
    def model_path(self) -> str:
        """Where the model goes."""
        return self.output.path or f"models/{PurePosixPath(self.train.path).stem}"


def check(config: Config) -> None:
    """Refuse what can be known to be wrong without Spark."""
    check_input(config.train, "train")
    if config.test is not None:
        check_input(config.test, "test")
    fraction = config.test_fraction
    if fraction is not None:
        if config.test is not None:
            raise ConfigError("test_fraction: given together with a test table, allowed: one")
        if not 0 < fraction < 1:
            raise ConfigError(f"test_fraction: given {fraction}, allowed: between 0 and 1")
    check_output(config.output, config.model_path)
    make_estimator(config)


def make_estimator(config: Config, features: Features | None = None) -> Any:
    """The estimator with the parameters of ``config``, on the columns ``features``."""
    kind = getattr(importlib.import_module(ESTIMATORS[config.estimator]), config.estimator)
    _check_params(kind, config.params)
    columns: dict[str, Any] = {"labelCol": config.label}
    if isinstance(features, str):
        columns["featuresCol"] = features
    elif features is not None:
        columns["featuresCols"] = list(features)
    if config.weight is not None:
        columns["weightCol"] = config.weight
    try:
        estimator = kind(**config.params, **columns, progress=config.progress)
        estimator.checkParams()
    except ValueError as error:
        raise ConfigError(f"params: {error}") from None
    return estimator


def _check_params(kind: type, params: dict[str, Any]) -> None:
    allowed = _param_names(kind) - _OWN_KEYS.keys()
    for name, value in params.items():
        if name in _OWN_KEYS:
            raise ConfigError(f"params.{name}: set {_OWN_KEYS[name]} instead")
        if name not in allowed:
            raise ConfigError(
                f"params.{name}: {kind.__name__} has no such parameter, allowed: {', '.join(sorted(allowed))}"
            )
        try:
            kind(**{name: value})
        except TypeError as error:
            raise ConfigError(f"params.{name}: given {value!r}; {error}") from None


def _param_names(kind: type) -> set[str]:
    from pyspark.ml.param import Param

    return {name for name in dir(kind) if isinstance(getattr(kind, name), Param)}


def run(spark: SparkSession, config: Config) -> None:
    """Train, save, measure, and print a table."""
    check_output(config.output, config.model_path, spark)
    train, test = _frames(spark, config)
    features = tables.train_features(train, config.train, config.features, config.label, config.weight)
    estimator = make_estimator(config, features)

    started = time.perf_counter()
    with _dataset(spark, config, train, features) as dataset:
        model = estimator.fit(dataset)
        seconds = model.report.seconds | {"ingest": dataset.ingest_seconds}
    seconds["total"] = time.perf_counter() - started

    writer = model.write()
    (writer.overwrite() if config.output.overwrite else writer).save(config.model_path)
    scores = {
        name: measure(model, frame, features, config.label, config.weight)
        for name, frame in (("train", train), ("test", test))
        if frame is not None
    }
    print(summary(config, model.report, scores, seconds))


def _frames(spark: SparkSession, config: Config) -> tuple[DataFrame, DataFrame | None]:
    train = _labelled(tables.read(spark, config.train), config)
    if config.test_fraction is not None:
        rest, aside = train.randomSplit([1 - config.test_fraction, config.test_fraction], seed=config.seed)
        return rest, aside
    if config.test is None:
        return train, None
    test = tables.read(spark, config.test, tables.declared_width(train))
    return train, _labelled(test, config)


def _labelled(frame: DataFrame, config: Config) -> DataFrame:
    return tables.labelled(frame, config.label, config.positive_label, config.weight)


def _dataset(spark: SparkSession, config: Config, train: DataFrame, features: Features) -> Dataset:
    """The rows to learn from as blocks; straight from the files where nothing is done to them."""
    from sparkdml.data import from_dataframe, from_parquet

    columns: dict[str, Any] = {
        "features": features if isinstance(features, str) else list(features),
        "label": config.label,
        "weight": config.weight,
    }
    untouched = config.positive_label is None and config.test_fraction is None
    if untouched and is_plain_parquet(config.train):
        return from_parquet(spark, config.train.path, **columns)
    return from_dataframe(train, **columns)


def summary(
    config: Config,
    report: Any,
    scores: dict[str, dict[str, float]],
    seconds: dict[str, float],
) -> str:
    """What a person wants to know about a fit, as plain text."""
    metrics = next(iter(scores.values())).keys()
    quality = table([["", *scores], *([m, *(f"{scores[s][m]:.4f}" for s in scores)] for m in metrics)])
    from sparkdml.report.history import PHASES

    phases = ("ingest", *PHASES, "total")
    spent = [f"{phase} {seconds[phase]:.2f}" for phase in phases]
    moved = [f"{kind} {size(report.bytes[kind])}" for kind in ("stored", "down", "up")]
    facts = {
        "rounds": f"{report.rounds} (one evaluation each), {report.iterations} iterations",
        "stopped": ": ".join(filter(None, (report.stop.reason, report.stop.message))),
        "to do": report.stop.remedy,
        "objective": f"{report.objective:.8g}",
        "seconds": ", ".join(spent),
        "bytes": ", ".join(moved),
        "model": config.model_path,
    }
    lines = [f"{name:<11}{text}" for name, text in facts.items() if text]
    return "\n".join([f"{config.estimator} on {config.train.path}", "", quality, "", *lines])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    return launch(Config, run, __doc__, argv, check)


if __name__ == "__main__":
    sys.exit(main())
