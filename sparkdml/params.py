"""Parameters beyond pyspark.ml's, each named in this one place."""

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


def setter(name: str) -> Callable[[Any, Any], Any]:
    """A method that sets the parameter ``name`` and returns the estimator, as pyspark's estimators have them."""

    def method(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    method.__name__ = method.__qualname__ = f"set{name[0].upper()}{name[1:]}"
    method.__doc__ = f"Sets :py:attr:`{name}`."
    return method


class HasFeaturesCols(Params):
    featuresCols: Param[list[str]] = Param(
        Params._dummy(),
        "featuresCols",
        "numeric columns that together are the features; takes the place of featuresCol",
        typeConverter=TypeConverters.toListString,
    )

    def getFeaturesCols(self) -> list[str]:
        """The numeric columns that are the features, if they were set."""
        return list(self.getOrDefault("featuresCols"))


class HasPlacement(Params):
    placement: Param[str] = Param(
        Params._dummy(),
        "placement",
        "where the model's parameters live while training: auto, broadcast (on the driver, sent out each round) or "
        "local (in the driver, which computes too; Spark's local mode)",
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
