"""Networks that tell a number."""

from __future__ import annotations

from pyspark.sql import types as T

from sparkdml.network.model import NetworkModel
from sparkdml.wide.answers import Answer, Margin


class NetworkRegressionModel(NetworkModel):
    """The output of a feed-forward network. Scoring and loading need sparkdml."""

    __module__ = "sparkdml.regression"  # where users find it, and what is saved with it

    def _answer(self, columns: bool = True) -> tuple[Answer, list[T.StructField]]:
        name = self.getPredictionCol()
        return Margin(), [T.StructField(name, T.DoubleType(), False, {"ml_attr": {}})] if name else []
