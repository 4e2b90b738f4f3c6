"""Factorization machines for two classes."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark import keyword_only
from pyspark.ml import classification as spark
from pyspark.ml.regression import _FactorizationMachinesParams
from pyspark.ml.util import JavaMLReader

from sparkdml import persist
from sparkdml.estimator import spark_params
from sparkdml.factorization import FactorizationEstimator, Machine
from sparkdml.fit.prepared import Prepared
from sparkdml.losses import Logistic
from sparkdml.model import TrainedModel, with_output_columns
from sparkdml.report.fit_report import FitReport
from sparkdml.wide import DistributedFMClassificationModel


class FMClassificationModel(TrainedModel, spark.FMClassificationModel):
    """Spark's own model, with a ``report`` of the fit that made it (None after loading)."""

    @classmethod
    def read(cls) -> JavaMLReader[Any]:
        """Reads models saved by sparkdml or pyspark; what it returns is pyspark's class."""
        return spark.FMClassificationModel.read()

    def summary(self) -> Any:  # a method here, a property everywhere else: so it is in pyspark
        """Spark's training summary, with ``history`` and ``plot`` besides."""
        return self._summary(spark.FMClassificationModel.summary)


class FMClassifier(FactorizationEstimator, _FactorizationMachinesParams, spark.ProbabilisticClassifier):
    """Factorization machines for labels 0 and 1, with the objective, start and steps of ``pyspark.ml``.

    ``F = 1/n * sum_i [log(1 + exp(m_i)) - y_i m_i] + regParam / 2 * |all coefficients|^2`` with
    ``m(x) = intercept + sum_j linear_j x_j + sum_{i<j} <factors_i, factors_j> x_i x_j`` and ``factorSize`` factors a
    feature (Rendle, "Factorization machines", 2010). Features are neither scaled nor centred.

    ``solver``: ``gd``, steps of ``stepSize / sqrt(t)`` along the gradient of F; ``adamW``, steps of ``stepSize``
    (Loshchilov & Hutter, "Decoupled weight decay regularization", 2019), each of which also takes the share
    ``regParam`` off every coefficient, the intercept among them. Factors start as normal deviates of ``initStd``, drawn
    for ``seed`` as Spark draws them. With ``miniBatchFraction`` 1 coefficients are Spark's to summation order, step by
    step; samples are drawn anew for each worker and round, and differ from Spark's. A fit ends when a step is shorter
    than ``tol * max(1, |all coefficients|)``, and the last point is the answer.

    Parameters are pyspark's (:attr:`SPARK_PARAMS`), and ``checkpointDir``, ``checkpointInterval``, ``featuresCols``,
    ``placement``, ``progress``; ``setInitialModel`` and ``setOnRound``.

    Raises
    ------
    ValueError : a parameter that cannot be honoured, rows that cannot be trained on, or a fit that diverged.
    TypeError : a column of a type that cannot be used.
    """

    __module__ = "sparkdml.classification"  # where users find it, and what is saved with it

    SPARK_PARAMS = spark_params(
        (
            "featuresCol", "labelCol", "predictionCol", "probabilityCol", "rawPredictionCol", "factorSize",
            "fitIntercept", "fitLinear", "regParam", "miniBatchFraction", "initStd", "maxIter", "stepSize", "tol",
            "solver", "thresholds", "seed",
        ),
    )  # fmt: skip
    CLASSES = True

    _input_kwargs: dict[str, Any]

    @keyword_only
    def __init__(
        self,
        *,
        featuresCol: str = "features",
        labelCol: str = "label",
        predictionCol: str = "prediction",
        probabilityCol: str = "probability",
        rawPredictionCol: str = "rawPrediction",
        factorSize: int = 8,
        fitIntercept: bool = True,
        fitLinear: bool = True,
        regParam: float = 0.0,
        miniBatchFraction: float = 1.0,
        initStd: float = 0.01,
        maxIter: int = 100,
        stepSize: float = 1.0,
        tol: float = 1e-6,
        solver: str = "adamW",
        thresholds: list[float] | None = None,
        seed: int | None = None,
        featuresCols: list[str] | None = None,
        placement: str = "auto",
        numWorkers: int = 0,
        gpusPerWorker: float = 0.0,
        progress: bool = False,
        checkpointDir: str | None = None,
        checkpointInterval: int = 10,
    ) -> None:
        super().__init__()
        self._set(**self._input_kwargs)

    @keyword_only
    def setParams(self, **kwargs: Any) -> FMClassifier:
        """Sets any of the constructor's parameters."""
        self._set(**kwargs)
        return self

    def checkParams(self) -> None:
        super().checkParams()
        thresholds = self._column("thresholds")
        if thresholds is None:
            return
        if len(thresholds) != 2:
            raise ValueError(f"thresholds has {len(thresholds)} values, but there are 2 classes; give one for each")
        if min(thresholds) < 0.0 or max(thresholds) == 0.0:
            raise ValueError(f"thresholds={thresholds} is not allowed; none may be negative, and at most one 0")

    def _train(self, given: Prepared) -> Any:
        histogram = given.dataset.totals.histogram
        if len(histogram) > 2:
            raise ValueError(
                f"FMClassifier takes labels 0 and 1, but the largest label is {len(histogram) - 1}; use OneVsRest for "
                "more classes"
            )
        chosen = self._choose(given.dataset, 1 + self.getFactorSize())
        if chosen.partitioned:
            return self._sharded(
                chosen, given, Logistic(), partial(self._model, given), DistributedFMClassificationModel
            )
        return self._model(given, *self._machine(given, Logistic()))

    def _model(self, given: Prepared, machine: Machine, report: FitReport) -> FMClassificationModel:
        java_model = persist.fm_classification_model(self.uid, machine.intercept, machine.linear, machine.factors)

        def summarise(model: Any) -> Any:
            scoring, names = with_output_columns(model, ("probabilityCol", "predictionCol"))
            predictions = scoring.transform(self._vector_frame(given.frame))
            columns = [*names, self.getOrDefault("labelCol"), ""]
            return persist.fm_classification_summary(predictions, columns, report.objective_history)

        return self._finished(FMClassificationModel(java_model), report, given, summarise)
