"""Input tables: how they are read, and which of their columns are the features and the label."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from config import ConfigError, setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: One column of vectors or arrays, or several columns of numbers.
Features = str | tuple[str, ...]

TRAIN_FEATURES = (
    "a column of vectors or arrays, or a list of numeric columns; "
    'default: "features", and for csv all columns but label and weight'
)
MODEL_FEATURES = (
    "a column of vectors or arrays, or a list of numeric columns in the order of training; "
    "default: the model's featuresCol"
)
LABEL = "the column of classes 0, 1, ..."
POSITIVE_LABEL = "the label that counts as 1 while all others count as 0; default: labels stay as they are"
WEIGHT = "a column of sample weights"

_CSV_OPTIONS = {"header": True, "inferSchema": True}


@dataclass(frozen=True)
class Table:
    """Where rows come from."""

    path: str = setting("a file, a folder or a pattern that Spark reads; for format table its name")
    format: Literal["parquet", "csv", "libsvm", "orc", "json", "table"] = setting(
        "how the rows are stored", default="parquet"
    )
    options: dict[str, Any] = setting(
        "options of Spark's reader for that format; csv starts from header = true and inferSchema = true",
        default_factory=dict,
    )


def read(spark: SparkSession, table: Table, width: int | None = None) -> DataFrame:
    """The table as Spark reads it.

    ``width`` is the number of features that the model has: libsvm files do not say theirs.
    """
    options = dict(table.options)
    if table.format == "csv":
        options = _CSV_OPTIONS | options
    if table.format == "libsvm" and width is not None:
        options.setdefault("numFeatures", width)
    reader = spark.read.options(**options)
    if table.format == "table":
        return reader.table(table.path)
    return reader.format(table.format).load(table.path)


def declared_width(frame: DataFrame) -> int | None:
    """The number of features that a libsvm frame was read with."""
    return next((f.metadata["numFeatures"] for f in frame.schema if "numFeatures" in f.metadata), None)


def require(frame: DataFrame, names: Iterable[str], key: str) -> None:
    """Refuse names that are no columns of ``frame``."""
    for name in names:
        if name not in frame.columns:
            raise ConfigError(f"{key}: given {name!r}, allowed: the columns {', '.join(frame.columns)}")


def train_features(frame: DataFrame, table: Table, given: Features | None, *others: str | None) -> Features:
    """The feature columns to learn from: as given, else what ``TRAIN_FEATURES`` tells.

    ``others`` are the columns with another role.
    """
    if given is not None or table.format != "csv":
        return _existing(frame, given or "features")
    from pyspark.sql.types import NumericType

    chosen = tuple(name for name in frame.columns if name not in others)
    kinds = {name: frame.schema[name].dataType for name in chosen}
    odd = [f"{n} ({k.simpleString()})" for n, k in kinds.items() if not isinstance(k, NumericType)]
    if odd or not chosen:
        raise ConfigError(
            f"features: {table.path!r} has {', '.join(odd) or 'no column'} beside the label, "
            "allowed: columns of numbers; name those to use as a list"
        )
    return chosen


def model_features(frame: DataFrame, model: Any, given: Features | None) -> Features:
    """The feature columns to predict from: as given, else what ``MODEL_FEATURES`` tells."""
    return _existing(frame, given or model.getFeaturesCol())


def _existing(frame: DataFrame, features: Features) -> Features:
    require(frame, [features] if isinstance(features, str) else features, "features")
    return features


def labelled(frame: DataFrame, label: str, positive: float | str | None, weight: str | None) -> DataFrame:
    """``frame`` with its label as ``POSITIVE_LABEL`` tells; null and NaN stay what they are."""
    require(frame, [label], "label")
    if weight is not None:
        require(frame, [weight], "weight")
    if positive is not None:
        return _one_or_zero(frame, label, positive)
    from pyspark.sql.types import NumericType

    kind = frame.schema[label].dataType
    if not isinstance(kind, NumericType):
        raise ConfigError(
            f"label: the column {label!r} is {kind.simpleString()}, allowed: numbers; "
            "positive_label makes them of two classes"
        )
    return frame


def _one_or_zero(frame: DataFrame, label: str, positive: float | str) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.types import NumericType, StringType

    kind = frame.schema[label].dataType
    if not isinstance(kind, StringType if isinstance(positive, str) else NumericType):
        raise ConfigError(
            f"positive_label: given {positive!r}, allowed: a value of the column {label!r}, "
            f"which is {kind.simpleString()}"
        )
    value = F.col(label)
    missing = value.isNull()
    if not isinstance(positive, str):
        value = value.cast("double")
        missing = missing | F.isnan(value)
    nothing = F.lit(None) if isinstance(positive, str) else value
    mapped = F.when(missing, nothing).when(value == positive, 1.0).otherwise(0.0)
    return frame.withColumn(label, mapped)


def with_vector(frame: DataFrame, features: Features) -> tuple[DataFrame, str]:
    """``frame`` and the name of the column that has its features as Spark's models read them."""
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType

    name = "features_as_vector"
    if not isinstance(features, str):
        return VectorAssembler(inputCols=list(features), outputCol=name).transform(frame), name
    if isinstance(frame.schema[features].dataType, ArrayType):
        doubles = F.col(features).cast("array<double>")
        return frame.withColumn(name, array_to_vector(doubles)), name
    return frame, features
