"""Linear models whose coefficients are in shards; users find them beside Spark's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.ml import classification as spark
from pyspark.ml import regression as spark_regression
from pyspark.ml.linalg import DenseMatrix, DenseVector, Matrix, SparseMatrix, Vector, VectorUDT
from pyspark.ml.param.shared import HasLabelCol
from pyspark.sql import types as T

from sparkdml import persist
from sparkdml.wide.answers import Answer, Logistic, Margin, Side
from sparkdml.wide.model import DistributedModel
from sparkdml.wide.shard import Chunk

if TYPE_CHECKING:
    from pyspark import RDD


def vector_field(name: str, size: int) -> T.StructField:
    """A column of vectors, with their size as Spark's models tell it."""
    return T.StructField(name, VectorUDT(), True, {"ml_attr": {"num_attrs": size}})


def class_field(name: str, classes: int) -> T.StructField:
    """A column of predicted classes, with their number as Spark's models tell it."""
    return T.StructField(name, T.DoubleType(), False, {"ml_attr": {"type": "nominal", "num_vals": classes}})


class DistributedLogisticRegressionModel(DistributedModel, spark._LogisticRegressionParams):
    """Logistic regression: ``p = 1 / (1 + exp(-m))``, or the softmax of K margins if ``multinomial``.

    Parameters and columns are those of pyspark's ``LogisticRegressionModel``; an empty name leaves a column out.

    Parameters
    ----------
    chunks, bounds, intercepts : see :class:`~sparkdml.wide.model.DistributedModel`.
    classes : 2, or the number of margins if ``multinomial``.
    multinomial : by default, whether there are several intercepts.
    """

    __module__ = "sparkdml.classification"  # where users find it, and what is saved with it

    def __init__(
        self,
        chunks: RDD[Chunk] | None = None,
        bounds: Sequence[int] | np.ndarray = (0, 0),
        intercepts: Sequence[float] | np.ndarray = (0.0,),
        classes: int | None = None,
        multinomial: bool | None = None,
    ) -> None:
        super().__init__(chunks, bounds, intercepts)
        self._multinomial = len(self._intercepts) > 1 if multinomial is None else multinomial
        self._classes = classes or (len(self._intercepts) if self._multinomial else 2)
        margins = self._classes if self._multinomial else 1
        if len(self._intercepts) != margins or (self._classes != 2 and not self._multinomial):
            raise ValueError(
                f"a {'multi' if self._multinomial else 'bi'}nomial model of {self._classes} classes cannot have "
                f"{len(self._intercepts)} intercepts; give one a margin: 1, or as many as classes if multinomial"
            )

    @property
    def numClasses(self) -> int:
        """How many classes there are."""
        return self._classes

    @property
    def interceptVector(self) -> Vector:
        """One a margin."""
        return DenseVector(self._intercepts)

    @property
    def coefficientMatrix(self) -> Matrix:
        """(K, features); sparse if that is smaller.

        Raises ValueError above ``COEFFICIENTS_LIMIT`` (2**24) numbers.
        """
        shard = self._collect("coefficientMatrix")
        margins, features = len(self._intercepts), self.numFeatures
        rows, classes = np.nonzero(shard.values)
        if 12 * len(rows) + 4 * features >= 8 * margins * features:
            return DenseMatrix(margins, features, shard.dense(features).reshape(-1))
        ends = np.searchsorted(shard.indices[rows], np.arange(features + 1))
        return SparseMatrix(margins, features, ends, classes, shard.values[rows, classes])

    def predictRaw(self, value: Any) -> Vector:
        """The raw prediction for one row: see ``predict``."""
        return DenseVector(Logistic(self._multinomial)(self._margins(value))[0][0])

    def predictProbability(self, value: Any) -> Vector:
        """The probabilities for one row: see ``predict``."""
        return DenseVector(Logistic(self._multinomial)(self._margins(value))[1][0])

    def setProbabilityCol(self, value: str) -> Any:
        """An empty name leaves the column out."""
        return self._set(probabilityCol=value)

    def setRawPredictionCol(self, value: str) -> Any:
        """An empty name leaves the column out."""
        return self._set(rawPredictionCol=value)

    def _answer(self, columns: bool = True) -> tuple[Answer, list[T.StructField]]:
        raw, probability, prediction = "", "", self.getPredictionCol()
        if columns:
            raw, probability = self.getRawPredictionCol(), self.getProbabilityCol()
        fields = [vector_field(name, self._classes) for name in (raw, probability) if name]
        fields += [class_field(prediction, self._classes)] if prediction else []
        threshold, thresholds = 0.5, None
        if not self._multinomial:
            threshold = self.getThreshold()
        elif self.isDefined("thresholds"):
            thresholds = tuple(self.getThresholds())
            if len(thresholds) != self._classes:
                raise ValueError(f"thresholds has {len(thresholds)} numbers for {self._classes} classes; give one each")
        wanted = bool(prediction) or not columns
        return Logistic(self._multinomial, threshold, thresholds, bool(raw), bool(probability), wanted), fields

    def _spark_model(self, coefficients: np.ndarray) -> Any:
        java_model = persist.logistic_regression_model(
            self.uid, coefficients.T, self._intercepts, self._classes, self._multinomial
        )
        return spark.LogisticRegressionModel(java_model)

    def _described(self) -> dict[str, Any]:
        return {"classes": self._classes, "multinomial": self._multinomial}

    def _restore(self, about: dict[str, Any]) -> None:
        self._classes, self._multinomial = about["classes"], about["multinomial"]


class DistributedLinearSVCModel(DistributedModel, spark._LinearSVCParams):
    """Linear support vector machine; parameters and columns are those of pyspark's ``LinearSVCModel``.

    ``threshold`` is compared with the margin.
    """

    __module__ = "sparkdml.classification"

    @property
    def numClasses(self) -> int:
        """2."""
        return 2

    def predictRaw(self, value: Any) -> Vector:
        """The raw prediction for one row: see ``predict``."""
        return DenseVector(Side(0.0)(self._margins(value))[0][0])

    def setRawPredictionCol(self, value: str) -> Any:
        """An empty name leaves the column out."""
        return self._set(rawPredictionCol=value)

    def setThreshold(self, value: float) -> Any:
        """Rows with a larger margin are of class 1."""
        return self._set(threshold=value)

    def _answer(self, columns: bool = True) -> tuple[Answer, list[T.StructField]]:
        raw, prediction = self.getRawPredictionCol() if columns else "", self.getPredictionCol()
        fields = [vector_field(raw, 2)] if raw else []
        fields += [class_field(prediction, 2)] if prediction else []
        return Side(self.getThreshold(), bool(raw), bool(prediction) or not columns), fields

    def _spark_model(self, coefficients: np.ndarray) -> Any:
        return spark.LinearSVCModel(persist.linear_svc_model(self.uid, coefficients[:, 0], self.intercept))


class DistributedLinearRegressionModel(DistributedModel, HasLabelCol):
    """Linear regression: the prediction is the margin.

    ``scale`` : by which the Huber loss divided residuals; 1 for squared errors.
    """

    __module__ = "sparkdml.regression"

    def __init__(
        self,
        chunks: RDD[Chunk] | None = None,
        bounds: Sequence[int] | np.ndarray = (0, 0),
        intercepts: Sequence[float] | np.ndarray = (0.0,),
        scale: float = 1.0,
    ) -> None:
        super().__init__(chunks, bounds, intercepts)
        self.scale = scale

    def _answer(self, columns: bool = True) -> tuple[Answer, list[T.StructField]]:
        name = self.getPredictionCol()
        return Margin(), [T.StructField(name, T.DoubleType(), False, {"ml_attr": {}})] if name else []

    def _described(self) -> dict[str, Any]:
        return {"scale": self.scale}

    def _restore(self, about: dict[str, Any]) -> None:
        self.scale = about["scale"]

    def _spark_model(self, coefficients: np.ndarray) -> Any:
        java_model = persist.linear_regression_model(self.uid, coefficients[:, 0], self.intercept, self.scale)
        return spark_regression.LinearRegressionModel(java_model)
