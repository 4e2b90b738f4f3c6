"""Feed-forward networks for classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark import keyword_only
from pyspark.ml import classification as spark
from pyspark.ml.param.shared import HasWeightCol
from pyspark.ml.util import JavaMLReader

from sparkdml import persist
from sparkdml.classification.network_model import NetworkClassificationModel
from sparkdml.data.dataset import Dataset
from sparkdml.estimator import spark_params
from sparkdml.fit.prepared import Prepared
from sparkdml.model import TrainedModel, with_output_columns
from sparkdml.network.estimator import NetworkEstimator
from sparkdml.optim.heads import CrossEntropy
from sparkdml.params import HasClassWeight, HasCooperation, HasNetwork, HasValidation
from sparkdml.report.fit_report import FitReport


class MultilayerPerceptronClassificationModel(TrainedModel, spark.MultilayerPerceptronClassificationModel):
    """Spark's own model, with a ``report`` of the fit that made it (None after loading)."""

    @classmethod
    def read(cls) -> JavaMLReader[Any]:
        """Reads models saved by sparkdml or pyspark; what it returns is pyspark's class."""
        return spark.MultilayerPerceptronClassificationModel.read()

    # a method here, a property everywhere else: so it is in pyspark
    def summary(self) -> Any:  # type: ignore[override]
        """Spark's training summary, with ``history`` and ``plot`` besides."""
        return self._summary(spark.MultilayerPerceptronClassificationModel.summary)


class MultilayerPerceptronClassifier(
    NetworkEstimator,
    HasClassWeight,
    HasValidation,
    HasCooperation,
    HasNetwork,
    HasWeightCol,
    spark._MultilayerPerceptronParams,
    spark.ProbabilisticClassifier,
):
    """A feed-forward network: hidden layers of sigmoid units, softmax outputs, as ``pyspark.ml`` defines it.

    ``F = 1/W * sum_i w_i * -log p_i + regParam / 2 * |weights|^2``; ``p_i`` is what the softmax gives the row's label.
    ``layers`` are the units of each layer, from features to classes. Weights have Spark's order, and start as Spark's
    for ``seed``, or at ``initialWeights``. Arithmetic on rows is float32, sums over them are float64. Not convex: ends
    near a stationary point that depends on the start.

    Parameters are pyspark's (:attr:`SPARK_PARAMS`), and

    - ``solver``: ``l-bfgs``; ``gd``, steps of ``stepSize`` along the gradient of all rows; or a method by which workers
      cooperate, with the parameters of :class:`~sparkdml.params.HasCooperation`: ``sgd``, ``model-averaging``,
      ``one-shot-averaging``, ``bmuf``, ``easgd``. Steps on workers' own rows are along ``blockSize`` of them, unless
      ``batchSize`` is set; else ``blockSize`` has no effect.
    - ``activation``: ``sigmoid``, ``tanh`` or ``relu``, whose weights start within ``sqrt(6 / (in + out))`` and
      ``sqrt(6 / in)`` for features in units of their root mean square (which are the units of ``regParam``, too).
      ``dropout``: the probability with which a step leaves out a hidden value.
    - ``standardization``: as if every feature had mean 0 and variance 1; the model is for features as given.
    - ``weightCol``, ``classWeight``, ``validationIndicatorCol``, ``patience``, ``checkpointDir``,
      ``checkpointInterval``, ``featuresCols``, ``placement``, ``progress``; ``setInitialModel`` and ``setOnRound``.

    ``fit`` returns :class:`MultilayerPerceptronClassificationModel`, which is Spark's own, where hidden units are
    sigmoids, else :class:`NetworkClassificationModel`.

    Raises
    ------
    ValueError : a parameter that cannot be honoured, rows that cannot be trained on, or a fit that diverged.
    TypeError : a column of a type that cannot be used.
    """

    __module__ = "sparkdml.classification"  # where users find it, and what is saved with it

    SPARK_PARAMS = spark_params(
        (
            "featuresCol", "labelCol", "predictionCol", "probabilityCol", "rawPredictionCol", "maxIter", "tol", "seed",
            "layers", "blockSize", "stepSize", "solver", "initialWeights", "thresholds",
        ),
    )  # fmt: skip
    CLASSES = True
    HEAD = CrossEntropy()

    _input_kwargs: dict[str, Any]

    @keyword_only
    def __init__(
        self,
        *,
        featuresCol: str = "features",
        labelCol: str = "label",
        predictionCol: str = "prediction",
        maxIter: int = 100,
        tol: float = 1e-6,
        seed: int | None = None,
        layers: list[int] | None = None,
        blockSize: int = 128,
        stepSize: float = 0.03,
        solver: str = "l-bfgs",
        initialWeights: Any = None,
        probabilityCol: str = "probability",
        rawPredictionCol: str = "rawPrediction",
        thresholds: list[float] | None = None,
        activation: str = "sigmoid",
        dropout: float = 0.0,
        regParam: float = 0.0,
        standardization: bool = False,
        weightCol: str | None = None,
        featuresCols: list[str] | None = None,
        placement: str = "auto",
        progress: bool = False,
        classWeight: str | dict[float, float] | None = None,
        validationIndicatorCol: str | None = None,
        patience: int = 5,
        checkpointDir: str | None = None,
        checkpointInterval: int = 10,
        **cooperation: Any,
    ) -> None:
        super().__init__()
        self._setDefault(patience=5, stepSize=0.03)
        self._set(**self._input_kwargs)

    @keyword_only
    def setParams(self, **kwargs: Any) -> MultilayerPerceptronClassifier:
        """Sets any of the constructor's parameters."""
        self._set(**kwargs)
        return self

    def checkParams(self) -> None:
        super().checkParams()
        thresholds, classes = self._column("thresholds"), self.getLayers()[-1]
        if thresholds is None:
            return
        if len(thresholds) != classes:
            raise ValueError(
                f"thresholds has {len(thresholds)} values, but layers ends with {classes}; give one for each class"
            )
        if min(thresholds) < 0.0 or thresholds.count(0.0) > 1:
            raise ValueError(f"thresholds={thresholds} is not allowed; none may be negative, and at most one 0")

    def _check_rows(self, dataset: Dataset) -> None:
        super()._check_rows(dataset)
        classes, seen = self.getLayers()[-1], len(dataset.totals.histogram)
        if seen > classes:
            raise ValueError(
                f"layers ends with {classes} units, one a class, but the largest label is {seen - 1}; end it with "
                f"{seen} or more"
            )

    def _train(self, given: Prepared) -> Any:
        weights, report = self._trained(given)
        if self.getOrDefault("activation") == "sigmoid":
            return self._spark_model(weights, report, given)
        model = NetworkClassificationModel(self._network(), weights)
        model._resetUid(self.uid)
        model.report = report
        return self._copyValues(model)

    def _spark_model(
        self, weights: np.ndarray, report: FitReport, given: Prepared
    ) -> MultilayerPerceptronClassificationModel:
        java_model = persist.multilayer_perceptron_model(self.uid, weights)

        def summarise(model: Any) -> Any:
            scoring, names = with_output_columns(model, ("predictionCol",))
            predictions = scoring.transform(self._vector_frame(given.frame))
            columns = [*names, self.getOrDefault("labelCol"), given.weight or ""]
            return persist.multilayer_perceptron_summary(predictions, columns, report.objective_history or [0.0])

        return self._finished(MultilayerPerceptronClassificationModel(java_model), report, given, summarise)
