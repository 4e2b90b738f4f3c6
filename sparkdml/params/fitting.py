"""What a fit reads, where it runs, and what surrounds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pyspark.ml.param import Param, Params, TypeConverters


class PlainValues(Params):
    """Stores numpy scalars as the Python numbers they stand for, so that every value can be saved as JSON."""

    def _set(self, **kwargs: Any) -> PlainValues:
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in kwargs.items()}
        super()._set(**plain)
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Every parameter has methods that set and get it, as pyspark's estimators have them."""
        super().__init_subclass__(**kwargs)
        for name in dir(cls):
            if not isinstance(getattr(cls, name, None), Param):
                continue
            for prefix, make in (("set", setter), ("get", getter)):
                method = f"{prefix}{name[0].upper()}{name[1:]}"
                if not hasattr(cls, method):
                    setattr(cls, method, make(name))


def setter(name: str) -> Callable[[Any, Any], Any]:
    """A method that sets the parameter ``name`` and returns the estimator, as pyspark's estimators have them."""

    def method(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    method.__name__ = method.__qualname__ = f"set{name[0].upper()}{name[1:]}"
    method.__doc__ = f"Sets :py:attr:`{name}`."
    return method


def getter(name: str) -> Callable[[Any], Any]:
    """A method that returns the value of the parameter ``name``, or its default."""

    def method(self: Any) -> Any:
        return self.getOrDefault(name)

    method.__name__ = method.__qualname__ = f"get{name[0].upper()}{name[1:]}"
    method.__doc__ = f"Gets the value of :py:attr:`{name}` or its default value."
    return method


class HasFeaturesCols(Params):
    featuresCols: Param[list[str]] = Param(
        Params._dummy(),
        "featuresCols",
        "numeric columns that together are the features; takes the place of featuresCol",
        typeConverter=TypeConverters.toListString,
    )

    indicesCol: Param[str] = Param(
        Params._dummy(),
        "indicesCol",
        "column of arrays of feature numbers (int or long), in any order; with valuesCol it takes the place of "
        "featuresCol, and values of one number add up",
        typeConverter=TypeConverters.toString,
    )
    valuesCol: Param[str] = Param(
        Params._dummy(),
        "valuesCol",
        "column of arrays of the values of indicesCol",
        typeConverter=TypeConverters.toString,
    )
    numFeatures: Param[int] = Param(
        Params._dummy(),
        "numFeatures",
        "number of features of indicesCol and valuesCol: numbers are below it; it may exceed 2^31",
        typeConverter=TypeConverters.toInt,
    )

    def getFeaturesCols(self) -> list[str]:
        """The numeric columns that are the features, if they were set."""
        return list(self.getOrDefault("featuresCols"))


class HasPlacement(Params):
    placement: Param[str] = Param(
        Params._dummy(),
        "placement",
        "where the model's parameters live while training: auto, broadcast (on the driver, sent out each round), "
        "local (in the driver, which computes too; small data, or Spark's local mode), allreduce (in every worker), "
        "partitioned (in shards on the executors, never whole on one machine) or server (in processes beside Spark, "
        "which take the steps)",
        typeConverter=TypeConverters.toString,
    )

    def getPlacement(self) -> str:
        """Where the model's parameters live while training."""
        return str(self.getOrDefault(self.placement))


class HasProgress(Params):
    progress: Param[bool] = Param(
        Params._dummy(),
        "progress",
        "whether to draw a progress bar on a terminal or in a notebook",
        typeConverter=TypeConverters.toBoolean,
    )

    def getProgress(self) -> bool:
        """Whether a progress bar is drawn."""
        return bool(self.getOrDefault(self.progress))


class HasClassWeight(Params):
    classWeight: Param[Any] = Param(
        Params._dummy(),
        "classWeight",
        "what each row's weight is multiplied by: 'balanced' (W / (K * W_c), so that all classes weigh the same), or a "
        "dict from label to factor",
        typeConverter=lambda value: _class_weight(value),
    )

    def getClassWeight(self) -> str | dict[str, float] | None:
        """'balanced', a factor for each label, or None."""
        value: str | dict[str, float] | None = self.getOrDefault(self.classWeight)
        return value


def _class_weight(value: Any) -> str | dict[str, float] | None:
    """A dict's labels become strings, as in the JSON that it is saved as."""
    if value is None or value == "balanced":
        return value
    if isinstance(value, dict):
        return {repr(float(label)): float(factor) for label, factor in value.items()}
    raise TypeError(f"classWeight={value!r} is not allowed; it can be 'balanced', a dict from label to factor, or None")


class HasValidation(Params):
    validationIndicatorCol: Param[str] = Param(
        Params._dummy(),
        "validationIndicatorCol",
        "a boolean column: rows where it is true are not trained on, they tell when to stop",
        typeConverter=TypeConverters.toString,
    )
    patience: Param[int] = Param(
        Params._dummy(),
        "patience",
        "iterations without a better validation loss after which the fit stops; the best point is kept",
        typeConverter=TypeConverters.toInt,
    )

    def getValidationIndicatorCol(self) -> str:
        """The column that marks validation rows, if it was set."""
        return str(self.getOrDefault(self.validationIndicatorCol))

    def getPatience(self) -> int:
        """Iterations without a better validation loss before the fit stops."""
        return int(self.getOrDefault(self.patience))


class HasCheckpoint(Params):
    checkpointDir: Param[str] = Param(
        Params._dummy(),
        "checkpointDir",
        "where the state of a running fit is kept (any file system that Spark reaches); an interrupted fit that is run "
        "again goes on from there",
        typeConverter=TypeConverters.toString,
    )
    checkpointInterval: Param[int] = Param(
        Params._dummy(),
        "checkpointInterval",
        "rounds between two checkpoints",
        typeConverter=TypeConverters.toInt,
    )

    def getCheckpointDir(self) -> str:
        """Where the state of a running fit is kept, if it was set."""
        return str(self.getOrDefault(self.checkpointDir))

    def getCheckpointInterval(self) -> int:
        """Rounds between two checkpoints."""
        return int(self.getOrDefault(self.checkpointInterval))
