"""Linear support vector machines."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pyspark import keyword_only
from pyspark.ml import classification as spark
from pyspark.ml.param.shared import HasSolver
from pyspark.ml.util import JavaMLReader

from sparkdml import persist
from sparkdml.algorithms import OWLQN, Algorithm
from sparkdml.cooperating import COOPERATION_RANGES
from sparkdml.estimator import spark_params
from sparkdml.fit.prepared import Prepared
from sparkdml.linear import LINEAR_RANGES, LinearEstimator
from sparkdml.losses import Hinge
from sparkdml.model import TrainedModel, with_output_columns
from sparkdml.params import HasClassWeight, HasCooperation, HasValidation
from sparkdml.placement import Choice
from sparkdml.report.fit_report import FitReport
from sparkdml.wide import DistributedLinearSVCModel


class LinearSVCModel(TrainedModel, spark.LinearSVCModel):
    """Spark's own model, with a ``report`` of the fit that made it (None after loading)."""

    @classmethod
    def read(cls) -> JavaMLReader[Any]:
        """Reads models saved by sparkdml or pyspark; what it returns is pyspark's class."""
        return spark.LinearSVCModel.read()

    def summary(self) -> Any:  # type: ignore[override]  # a method here, a property everywhere else: so it is in pyspark
        """Spark's training summary, with ``history`` and ``plot`` besides."""
        return self._summary(spark.LinearSVCModel.summary)


class LinearSVC(
    LinearEstimator,
    HasClassWeight,
    HasValidation,
    HasCooperation,
    HasSolver,
    spark._LinearSVCParams,
    spark.Classifier,
):
    """Binary linear support vector machine: hinge loss with L2 penalty, as ``pyspark.ml`` defines it.

    ``F = 1/W * sum_i w_i * max(0, 1 - (2 y_i - 1) m_i) + regParam / 2 * sum_j (std_j * coefficient_j)^2``; without
    ``standardization`` the penalty is on the coefficients themselves. By OWL-QN with subgradients, as in Spark: the
    loss has corners, so the last digits of the optimum are out of reach for either.

    Parameters are pyspark's (:attr:`SPARK_PARAMS` tells how each is treated), and ``classWeight``,
    ``validationIndicatorCol``, ``patience``, ``checkpointDir``, ``checkpointInterval``, ``featuresCols``,
    ``placement``, ``progress`` as in :class:`LogisticRegression`; ``solver``: ``auto`` (``owl-qn``), or a method by
    which workers cooperate: ``sgd``, ``model-averaging``, ``hogwild``, ``one-shot-averaging``, ``bmuf``, ``easgd``,
    ``admm``, ``cocoa``, with the parameters of :class:`~sparkdml.params.HasCooperation`.
    """

    __module__ = "sparkdml.classification"  # where users find it, and what is saved with it

    SPARK_PARAMS = spark_params(
        (
            "featuresCol", "labelCol", "predictionCol", "maxIter", "regParam", "tol", "rawPredictionCol",
            "fitIntercept", "standardization", "threshold", "weightCol",
        ),
        ignored=("aggregationDepth", "maxBlockSizeInMB"),
    )  # fmt: skip
    RANGES: ClassVar = {**LINEAR_RANGES, **COOPERATION_RANGES}
    SOLVERS = ("auto", "owl-qn")
    CLASSES = True

    _input_kwargs: dict[str, Any]

    @keyword_only
    def __init__(
        self,
        *,
        featuresCol: str = "features",
        labelCol: str = "label",
        predictionCol: str = "prediction",
        maxIter: int = 100,
        regParam: float = 0.0,
        tol: float = 1e-6,
        rawPredictionCol: str = "rawPrediction",
        fitIntercept: bool = True,
        standardization: bool = True,
        threshold: float = 0.0,
        weightCol: str | None = None,
        aggregationDepth: int = 2,
        maxBlockSizeInMB: float = 0.0,
        featuresCols: list[str] | None = None,
        placement: str = "auto",
        numWorkers: int = 0,
        gpusPerWorker: float = 0.0,
        progress: bool = False,
        classWeight: str | dict[float, float] | None = None,
        validationIndicatorCol: str | None = None,
        patience: int = 5,
        checkpointDir: str | None = None,
        checkpointInterval: int = 10,
        solver: str = "auto",
        **cooperation: Any,
    ) -> None:
        super().__init__()
        self._setDefault(patience=5, solver="auto")
        self._set(**self._input_kwargs)

    @keyword_only
    def setParams(self, **kwargs: Any) -> LinearSVC:
        """Sets any of the constructor's parameters."""
        self._set(**kwargs)
        return self

    def checkParams(self) -> None:
        super().checkParams()
        if self.getSolver() in ("svrg", "coordinate-descent", "newton-cg"):
            raise ValueError(
                f"solver='{self.getSolver()}' needs a smooth loss, and the hinge loss has corners; use cocoa, admm, "
                "sgd or auto"
            )

    def _solver(self) -> tuple[str, Algorithm]:
        """The algorithm, and its name with the reason for it."""
        if self._cooperates:
            return f"{self.getSolver()}: asked for", self._plan().algorithm()
        return "owl-qn: the loss has corners", OWLQN(self.getMaxIter(), self.getTol())

    def _train_partitioned(self, chosen: Choice, given: Prepared) -> LinearSVCModel | DistributedLinearSVCModel:
        dataset = given.dataset
        objective = self._objective(dataset.totals, Hinge(), **self._coordinates(dataset.has_sparse_blocks))
        start = self._tail_start(objective, 0.0)
        trained, report = self._run_sharded(chosen, objective, start, given, lasso=True)
        model = DistributedLinearSVCModel(trained.chunks, trained.bounds, trained.intercepts)
        if not chosen.fits_driver:
            return self._distributed(model, report)
        coefficients = model.coefficients.toArray()
        trained.chunks.unpersist()
        return self._model(coefficients, float(trained.intercepts[0]), report, given)

    def _train(self, given: Prepared) -> Any:
        histogram = given.dataset.totals.histogram
        if len(histogram) != 2:
            raise ValueError(
                f"LinearSVC takes labels 0 and 1, but the largest label is {len(histogram) - 1}; use OneVsRest for "
                "more classes, and give rows of both"
            )
        chosen = self._choose(given.dataset)
        if chosen.partitioned:
            return self._train_partitioned(chosen, given)
        problem = self._problem(given.dataset, Hinge(), **self._coordinates(given.dataset.has_sparse_blocks))
        start = self._warm_start(problem)
        solver, algorithm = self._solver()
        state, report = self._run(algorithm, problem, start, given, solver)
        coefficients, intercepts = problem.to_raw(state.best)
        return self._model(coefficients[:, 0], intercepts[0], report, given)

    def _model(self, coefficients: np.ndarray, intercept: float, report: FitReport, given: Prepared) -> LinearSVCModel:
        java_model = persist.linear_svc_model(self.uid, coefficients, intercept)

        def summarise(model: Any) -> Any:
            scoring, names = with_output_columns(model, ("rawPredictionCol", "predictionCol"))
            predictions = scoring.transform(self._vector_frame(given.frame))
            columns = [*names, self.getOrDefault("labelCol"), given.weight or ""]
            return persist.linear_svc_summary(predictions, columns, report.objective_history)

        return self._finished(LinearSVCModel(java_model), report, given, summarise)
