"""Saved models, loaded by the class that their metadata name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from config import ConfigError
from places import is_local, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRUSTED = ("org.apache.spark.ml.", "pyspark.ml.", "sparkdml.")


def check_model(path: str) -> None:
    """Refuse a local path that holds no model, without Spark."""
    if is_local(path) and not os.path.isdir(os.path.join(local_path(path), "metadata")):
        raise ConfigError(f"model: given {path!r}, allowed: a folder that a model was saved to")


def input_width(model: Any) -> int | None:
    """How many features a model reads, where it says."""
    from pyspark.ml import PredictionModel

    return model.numFeatures if isinstance(model, PredictionModel) else None


def load_model(spark: SparkSession, path: str) -> Any:
    """The model saved at ``path``, whichever of Spark's or sparkdml's it is.

    The metadata name the class to load; a name from any other package is refused, not imported.
    """
    from pyspark.ml.util import DefaultParamsReader

    kind = DefaultParamsReader.loadMetadata(path, spark)["class"]
    if not kind.startswith(_TRUSTED):
        raise ConfigError(f"model: {path!r} was saved by {kind!r}, allowed: a class of pyspark.ml or sparkdml")
    return DefaultParamsReader.loadParamsInstance(path, spark)
