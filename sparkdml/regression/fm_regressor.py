"""Factorization machines for regression."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark import keyword_only
from pyspark.ml import regression as spark
from pyspark.ml.util import JavaMLReader

from sparkdml import persist
from sparkdml.estimator import spark_params
from sparkdml.factorization import FactorizationEstimator, Machine
from sparkdml.fit.prepared import Prepared
from sparkdml.losses import Squared
from sparkdml.model import TrainedModel
from sparkdml.report.fit_report import FitReport
from sparkdml.wide import DistributedFMRegressionModel


class FMRegressionModel(TrainedModel, spark.FMRegressionModel):
    """Spark's own model, with a ``report`` of the fit that made it (None after loading)."""

    @classmethod
    def read(cls) -> JavaMLReader[Any]:
        """Reads models saved by sparkdml or pyspark; what it returns is pyspark's class."""
        return spark.FMRegressionModel.read()

    @property
    def hasSummary(self) -> bool:
        """False: Spark has no summary of this model."""
        return False


class FMRegressor(FactorizationEstimator, spark._FactorizationMachinesParams, spark.Regressor):
    """Factorization machines for regression, with the objective, start and steps of ``pyspark.ml``.

    ``F = 1/n * sum_i (m_i - y_i)^2 + regParam / 2 * |all coefficients|^2`` with
    ``m(x) = intercept + sum_j linear_j x_j + sum_{i<j} <factors_i, factors_j> x_i x_j`` (Rendle, "Factorization
    machines", 2010). Solvers, parameters and errors: as :class:`~sparkdml.classification.FMClassifier`.
    """

    __module__ = "sparkdml.regression"  # where users find it, and what is saved with it

    SPARK_PARAMS = spark_params(
        (
            "featuresCol", "labelCol", "predictionCol", "factorSize", "fitIntercept", "fitLinear", "regParam",
            "miniBatchFraction", "initStd", "maxIter", "stepSize", "tol", "solver", "seed",
        ),
    )  # fmt: skip
    CLASSES = False

    _input_kwargs: dict[str, Any]

    @keyword_only
    def __init__(
        self,
        *,
        featuresCol: str = "features",
        labelCol: str = "label",
        predictionCol: str = "prediction",
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
    def setParams(self, **kwargs: Any) -> FMRegressor:
        """Sets any of the constructor's parameters."""
        self._set(**kwargs)
        return self

    def _train(self, given: Prepared) -> Any:
        loss = Squared(2.0)  # Spark's error has no factor 1/2
        chosen = self._choose(given.dataset, 1 + self.getFactorSize())
        if chosen.partitioned:
            return self._sharded(chosen, given, loss, partial(self._model, given), DistributedFMRegressionModel)
        return self._model(given, *self._machine(given, loss))

    def _model(self, given: Prepared, machine: Machine, report: FitReport) -> FMRegressionModel:
        java_model = persist.fm_regression_model(self.uid, machine.intercept, machine.linear, machine.factors)
        return self._finished(FMRegressionModel(java_model), report, given, None)
