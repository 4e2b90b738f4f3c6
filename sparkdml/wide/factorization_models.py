"""Factorization machines whose coefficients are in shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.ml import classification as spark
from pyspark.ml import regression as spark_regression
from pyspark.ml.linalg import DenseVector
from pyspark.ml.param.shared import HasLabelCol, HasProbabilityCol, HasRawPredictionCol, HasThresholds
from pyspark.sql import types as T
from scipy import sparse

from sparkdml import persist
from sparkdml.wide.answers import Answer, Logistic, Margin
from sparkdml.wide.linear_models import class_field, vector_field
from sparkdml.wide.model import DistributedModel
from sparkdml.wide.scorer import Scorer


@dataclass(frozen=True)
class Pairwise(Scorer):
    """``m = intercept + sum_j w_j x_j + 1/2 sum_f [(sum_j v_jf x_j)^2 - sum_j v_jf^2 x_j^2]``.

    Sums of a row: the linear part, one of each factor, and that of all squares; C is 1 + ``factors``.
    """

    factors: int

    @property
    def sums(self) -> int:
        return self.factors + 2

    def partial(
        self, indptr: np.ndarray, local_indices: np.ndarray, values: np.ndarray, coefficients: np.ndarray
    ) -> np.ndarray:
        rows = sparse.csr_matrix(
            (np.asarray(values, np.float64), local_indices, indptr), (len(indptr) - 1, len(coefficients)), copy=True
        )
        rows.sum_duplicates()  # a feature is paired with others, not with itself
        sums = rows @ coefficients
        rows.data **= 2
        squares = rows @ (coefficients[:, 1:] ** 2).sum(axis=1)
        return np.hstack([sums, squares[:, None]])

    def margins(self, sums: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
        pairs = 0.5 * ((sums[:, 1:-1] ** 2).sum(axis=1) - sums[:, -1])
        return (intercepts[0] + sums[:, 0] + pairs)[:, None]


class _Machine(DistributedModel):
    """What both have in common; ``columns`` is 1 + the number of factors."""

    @property
    def factorSize(self) -> int:
        """How many factors a feature has."""
        return self._shards.columns - 1

    def _scorer(self) -> Scorer:
        return Pairwise(self.factorSize)


class DistributedFMClassificationModel(_Machine, HasLabelCol, HasRawPredictionCol, HasProbabilityCol, HasThresholds):
    """A factorization machine for two classes: ``p = 1 / (1 + exp(-m))``, m the margin.

    ``coefficientsRDD`` has each feature's linear coefficient, then its factors.
    """

    __module__ = "sparkdml.classification"  # where users find it, and what is saved with it

    @property
    def numClasses(self) -> int:
        """2."""
        return 2

    def _answer(self, columns: bool = True) -> tuple[Answer, list[T.StructField]]:
        raw, probability, prediction = "", "", self.getPredictionCol()
        if columns:
            raw, probability = self.getRawPredictionCol(), self.getProbabilityCol()
        fields = [vector_field(name, 2) for name in (raw, probability) if name]
        fields += [class_field(prediction, 2)] if prediction else []
        threshold = 0.5
        if self.isDefined("thresholds"):
            first, second = self.getThresholds()
            threshold = 1.0 if first == 0.0 else 1.0 / (1.0 + first / second) if second else 0.0
        wanted = bool(prediction) or not columns
        return Logistic(False, threshold, None, bool(raw), bool(probability), wanted), fields

    def _spark_model(self, coefficients: np.ndarray) -> Any:
        linear, factors = DenseVector(coefficients[:, 0]), coefficients[:, 1:]
        return spark.FMClassificationModel(persist.fm_classification_model(self.uid, self.intercept, linear, factors))


class DistributedFMRegressionModel(_Machine, HasLabelCol):
    """A factorization machine for regression: the prediction is the margin."""

    __module__ = "sparkdml.regression"

    def _answer(self, columns: bool = True) -> tuple[Answer, list[T.StructField]]:
        name = self.getPredictionCol()
        return Margin(), [T.StructField(name, T.DoubleType(), False, {"ml_attr": {}})] if name else []

    def _spark_model(self, coefficients: np.ndarray) -> Any:
        linear, factors = DenseVector(coefficients[:, 0]), coefficients[:, 1:]
        return spark_regression.FMRegressionModel(
            persist.fm_regression_model(self.uid, self.intercept, linear, factors)
        )
