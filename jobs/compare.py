"""One workload, many arrangements: the same estimator, rows and seed under several placements and solvers, and under
pyspark.ml, each alone and in turn to the same loss. Prints tables; writes report.json, report.html, which is a page
that needs nothing else, and its charts as SVG."""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import compare_page
import config as configuration
import tables
from arrangements import ESTIMATORS, Outcome, Study, make, measured
from config import ConfigError, setting
from console import launch, table
from sparkdml.report import page as pages
from tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Config:
    """Which rows, which studies, how often."""

    train: Table = setting("the rows to learn from")
    studies: dict[str, Any] = setting(
        "a table for each study, by name: estimator, params, target (the loss to reach), arrangements, about"
    )
    test: Table | None = setting("the rows on which models are judged", default=None)
    features: str = setting("the column of vectors or arrays", default="features")
    label: str = setting(tables.LABEL, default="label")
    divide_by: float = setting("features are divided by this", default=1.0)
    rows: int | None = setting("so many of the rows only", default=None)
    repeats: int = setting("timed fits of each arrangement, after one to warm up", default=3)
    only: tuple[str, ...] = setting("names of studies; all if there are none", default=())
    output: str = setting("the folder of report.json, report.html and charts", default="compare")


def studies_of(config: Config) -> dict[str, Study]:
    """The studies to run; ConfigError for what cannot be."""
    unknown = [name for name in config.only if name not in config.studies]
    if unknown:
        raise ConfigError(f"only: given {', '.join(unknown)}, allowed: {', '.join(config.studies)}")
    found = {}
    for name, values in config.studies.items():
        if config.only and name not in config.only:
            continue
        study = found[name] = configuration.convert(Study, values, f"studies.{name}")
        if study.estimator not in ESTIMATORS:
            raise ConfigError(f"studies.{name}.estimator: given '{study.estimator}', allowed: {', '.join(ESTIMATORS)}")
    return found


def check(config: Config) -> None:
    studies_of(config)
    if config.repeats < 1:
        raise ConfigError(f"repeats: given {config.repeats}, allowed: 1 or more")


def run(spark: SparkSession, config: Config) -> None:
    studies = studies_of(config)
    for study in studies.values():  # all of them, before the first takes its minutes
        for name in study.arrangements:
            make(study, name)
    train = prepared(spark, config, config.train).cache()
    test = None if config.test is None else prepared(spark, config, config.test).cache()
    rows = train.count()
    about = machine(spark)
    print(f"{rows} rows; {about}")
    outcomes: dict[str, list[Outcome]] = {}
    for name, study in studies.items():
        outcomes[name] = []
        for arrangement in study.arrangements:
            outcomes[name].append(measured(study, arrangement, train, test, config.repeats))
            print(f"{name}, {arrangement}: {outcomes[name][-1].seconds:.2f} s to the target", flush=True)
        print(f"\n{name}, to a training loss of {study.target:g}\n{table(compare_page.summary(outcomes[name]))}\n")
    write(Path(config.output), studies, outcomes, rows, about)


def prepared(spark: SparkSession, config: Config, source: Table) -> DataFrame:
    """Vectors and labels, in as many partitions as there are slots."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as F

    frame = tables.read(spark, source)
    if config.rows is not None:
        frame = frame.limit(config.rows)
    features = F.col(config.features)
    if frame.schema[config.features].dataType.typeName() == "array":
        features = array_to_vector(F.transform(features, lambda value: value.cast("double") / config.divide_by))
    elif config.divide_by != 1.0:
        raise ConfigError(f"divide_by: given {config.divide_by}, allowed: 1 where {config.features} has vectors")
    return frame.select(features.alias("features"), F.col(config.label).cast("double").alias("label")).repartition(
        spark.sparkContext.defaultParallelism
    )


def machine(spark: SparkSession) -> str:
    import pyspark

    import sparkdml

    slots = spark.sparkContext.defaultParallelism
    return (
        f"{slots} slots on {platform.machine()}, {platform.system()}; Python {platform.python_version()}, Spark "
        f"{pyspark.__version__}, sparkdml {sparkdml.__version__}"
    )


def write(folder: Path, studies: dict[str, Study], outcomes: dict[str, list[Outcome]], rows: int, about: str) -> None:
    """``report.json``, ``report.html``, and its charts as files of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "rows": rows,
        "machine": about,
        "command": " ".join(sys.argv),
        "studies": {
            name: {**asdict(studies[name]), "outcomes": [asdict(outcome) for outcome in found]}
            for name, found in outcomes.items()
        },
    }
    (folder / "report.json").write_text(json.dumps(_plain(content), indent=1, allow_nan=False), encoding="utf-8")
    page = compare_page.page(studies, outcomes, f"{rows} rows; {about}.")
    (folder / "report.html").write_text(page, encoding="utf-8")
    for name, found in outcomes.items():
        for figure in compare_page.figures(found):
            picture = pages.picture(figure.chart, figure.legend)
            (folder / f"{name.replace(' ', '-')}-{figure.name}.svg").write_text(picture, encoding="utf-8")
    print(f"written: {folder / 'report.json'}, {folder / 'report.html'}, and charts as {folder / '*.svg'}")


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity; they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def main(argv: Sequence[str] | None = None) -> int:
    return launch(Config, run, __doc__, argv, check)


if __name__ == "__main__":
    sys.exit(main())
