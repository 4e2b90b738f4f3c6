"""Parameters beyond pyspark.ml's, each named in this one room."""

from sparkdml.params.cooperating import HasCooperation
from sparkdml.params.fitting import (
    HasCheckpoint,
    HasClassWeight,
    HasFeaturesCols,
    HasPlacement,
    HasProgress,
    HasValidation,
    PlainValues,
)
from sparkdml.params.network import HasLayers, HasNetwork
from sparkdml.params.workers import HasWorkers

__all__ = [
    "HasCheckpoint",
    "HasClassWeight",
    "HasCooperation",
    "HasFeaturesCols",
    "HasLayers",
    "HasNetwork",
    "HasPlacement",
    "HasProgress",
    "HasValidation",
    "HasWorkers",
    "PlainValues",
]
