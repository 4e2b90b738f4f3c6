"""Networks that tell classes, with activations that Spark's do not have."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml.linalg import DenseVector, Vector
from pyspark.ml.param.shared import HasProbabilityCol, HasRawPredictionCol, HasThresholds
from pyspark.sql import types as T

from sparkdml.network.model import NetworkModel
from sparkdml.wide.answers import Answer, Logistic
from sparkdml.wide.linear_models import class_field, vector_field


class NetworkClassificationModel(NetworkModel, HasRawPredictionCol, HasProbabilityCol, HasThresholds):
    """``p = softmax(outputs)`` of a feed-forward network; columns are those of Spark's model, which scores sigmoids.

    An empty name leaves a column out. Scoring and loading need sparkdml.
    """

    __module__ = "sparkdml.classification"  # where users find it, and what is saved with it

    @property
    def numClasses(self) -> int:
        """How many classes there are."""
        return self.layers[-1]

    def predictRaw(self, value: Vector) -> Vector:
        """The outputs for one row."""
        return DenseVector(self._of(value)[0][0])

    def predictProbability(self, value: Vector) -> Vector:
        """The probability of each class for one row."""
        return DenseVector(self._of(value)[1][0])

    def _answer(self, columns: bool = True) -> tuple[Answer, list[T.StructField]]:
        raw, probability, prediction = "", "", self.getPredictionCol()
        raw, probability = self.getRawPredictionCol(), self.getProbabilityCol()
        fields = [vector_field(name, self.numClasses) for name in (raw, probability) if name]
        fields += [class_field(prediction, self.numClasses)] if prediction else []
        thresholds: Any = tuple(np.asarray(self.getThresholds())) if self.isDefined("thresholds") else None
        if not columns:
            return Logistic(True, thresholds=thresholds), []
        return Logistic(True, 0.5, thresholds, bool(raw), bool(probability), bool(prediction)), fields
