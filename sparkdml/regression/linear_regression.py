"""Linear regression."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from pyspark import keyword_only
from pyspark.ml import regression as spark
from pyspark.ml.util import JavaMLReader

from sparkdml import persist
from sparkdml.algorithms import LBFGS, OWLQN, NormalEquations, Problem
from sparkdml.algorithms.preconditioner import gram_pays
from sparkdml.cooperating import COOPERATION_RANGES
from sparkdml.core import Stop
from sparkdml.estimator import spark_params
from sparkdml.fit.prepared import Prepared
from sparkdml.linear import LINEAR_RANGES, LinearEstimator
from sparkdml.losses import Huber, Loss, Squared
from sparkdml.model import TrainedModel, with_output_columns
from sparkdml.params import HasCooperation, HasValidation
from sparkdml.placement import Choice
from sparkdml.report.fit_report import FitReport
from sparkdml.report.history import History
from sparkdml.wide import DistributedLinearRegressionModel

logger = logging.getLogger(__name__)

#: Up to so many features ``auto`` solves the normal equations, as Spark does.
MOST_NORMAL_FEATURES = 4096
#: What Spark's summaries take for "no standard errors".
NO_STANDARD_ERRORS = np.zeros(1)


class LinearRegressionModel(TrainedModel, spark.LinearRegressionModel):
    """Spark's own model, with a ``report`` of the fit that made it (None after loading)."""

    @classmethod
    def read(cls) -> JavaMLReader[Any]:
        """Reads models saved by sparkdml or pyspark; what it returns is pyspark's class."""
        return spark.LinearRegressionModel.read()


class LinearRegression(
    LinearEstimator,
    HasValidation,
    HasCooperation,
    spark._LinearRegressionParams,
    spark.Regressor,
):
    """Linear regression with elastic net penalty, or Huber's robust loss, as ``pyspark.ml`` defines them.

    ``squaredError``: ``1/(2W) * sum_i w_i * (y_i - m_i)^2 + regParam * sum_j (elasticNetParam * |c_j| +
    (1 - elasticNetParam) / (2 std_y) * c_j^2)`` with ``c_j = std_j * coefficient_j``: the L2 part is divided by the
    labels' standard deviation, as in Spark and glmnet. ``huber`` (:class:`~sparkdml.losses.Huber`) takes L2 only and
    estimates the residuals' scale. ``solver``: ``normal`` (one round, up to 4096 features), ``l-bfgs``, ``auto``,
    or for squared errors a method by which workers cooperate, as in
    :class:`~sparkdml.classification.LogisticRegression`.

    ``report.objective`` and the summary's ``objectiveHistory`` are of labels scaled to unit variance, as in Spark.
    Parameters are pyspark's (:attr:`SPARK_PARAMS` tells how each is treated), and ``validationIndicatorCol`` and
    ``patience`` (with l-bfgs), ``checkpointDir``, ``checkpointInterval``, ``featuresCols``, ``placement``,
    ``numWorkers``, ``gpusPerWorker`` (squared errors, with l-bfgs), ``progress``; ``setInitialModel`` and
    ``setOnRound``.
    """

    __module__ = "sparkdml.regression"  # where users find it, and what is saved with it

    SPARK_PARAMS = spark_params(
        (
            "featuresCol", "labelCol", "predictionCol", "maxIter", "regParam", "elasticNetParam", "tol", "fitIntercept",
            "standardization", "solver", "weightCol", "loss", "epsilon",
        ),
        ignored=("aggregationDepth", "maxBlockSizeInMB"),
    )  # fmt: skip
    RANGES: ClassVar = {**LINEAR_RANGES, **COOPERATION_RANGES, "elasticNetParam": (0, 1)}
    SOLVERS = ("auto", "normal", "l-bfgs")
    CLASSES = False

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
        elasticNetParam: float = 0.0,
        tol: float = 1e-6,
        fitIntercept: bool = True,
        standardization: bool = True,
        solver: str = "auto",
        weightCol: str | None = None,
        aggregationDepth: int = 2,
        loss: str = "squaredError",
        epsilon: float = 1.35,
        maxBlockSizeInMB: float = 0.0,
        featuresCols: list[str] | None = None,
        placement: str = "auto",
        numWorkers: int = 0,
        gpusPerWorker: float = 0.0,
        progress: bool = False,
        validationIndicatorCol: str | None = None,
        patience: int = 5,
        checkpointDir: str | None = None,
        checkpointInterval: int = 10,
        **cooperation: Any,
    ) -> None:
        super().__init__()
        self._setDefault(patience=5)
        self._set(**self._input_kwargs)

    @keyword_only
    def setParams(self, **kwargs: Any) -> LinearRegression:
        """Sets any of the constructor's parameters."""
        self._set(**kwargs)
        return self

    def checkParams(self) -> None:
        super().checkParams()
        solver, loss = self.getSolver(), self.getLoss()
        if loss not in ("squaredError", "huber"):
            raise ValueError(f"loss='{loss}' is not known; it can be squaredError or huber")
        if self.getEpsilon() <= 1.0:
            raise ValueError(f"epsilon={self.getEpsilon()} is not allowed; it must be larger than 1")
        if loss == "huber" and self.getElasticNetParam() != 0.0 and self.getRegParam() != 0.0:
            raise ValueError(f"loss='huber' takes L2 only; set elasticNetParam={self.getElasticNetParam()} to 0.0")
        if self._cooperates and loss == "huber":
            raise ValueError(f"loss='huber' estimates a scale too, which solver='{solver}' does not; use solver='auto'")
        if solver == "normal" and loss == "huber":
            raise ValueError("loss='huber' has no normal equations; use solver='auto' or 'l-bfgs'")
        if solver == "normal" and self._column("validationIndicatorCol"):
            raise ValueError("validationIndicatorCol needs rounds, and solver='normal' has one; use solver='l-bfgs'")

    def _cannot_use_gpus(self) -> str:
        if self.getSolver() not in ("auto", "l-bfgs"):
            return f"solver='{self.getSolver()}' computes on CPUs, solver='l-bfgs' would not"
        return "loss='huber' computes on CPUs" if self.getLoss() == "huber" else ""

    def _train(self, given: Prepared) -> Any:
        statistics = given.dataset.totals
        mean = statistics.label_mean
        chosen = self._choose(given.dataset)
        if statistics.label_m2 == 0.0 and (self.getFitIntercept() or mean == 0.0):
            return self._constant_model(given, mean, chosen)
        huber = self.getLoss() == "huber"
        if huber and not chosen.partitioned:
            return self._train_huber(given)
        if statistics.label_m2 == 0.0 and self.getRegParam() > 0.0 and not huber:
            raise ValueError(
                f"every label is {mean:g}, so labels cannot be scaled, which a penalty (regParam="
                f"{self.getRegParam()}) needs where fitIntercept is False; set fitIntercept=True or regParam=0.0"
            )
        if chosen.partitioned:
            return self._train_partitioned(chosen, given)
        if self._cooperates and self.getSolver() != "newton-cg":
            return self._train_together(given)
        if self._solves_normal_equations(given):
            return self._train_normal(given)
        label_std = statistics.label_std or abs(mean)
        # coefficients are told in the labels' deviation: then no tolerance depends on the labels' unit
        problem = self._problem(given.dataset, Squared(1.0 / label_std**2), scale=1.0 / label_std, unit=label_std)
        start = self._start(problem, mean)
        limits = self.getMaxIter(), self.getTol()
        if self._cooperates:
            algorithm = self._plan().algorithm()
            state, report = self._run(algorithm, problem, start, given, f"{self.getSolver()}: asked for")
        elif problem.penalty.l1() is not None:
            state, report = self._run(OWLQN(*limits), problem, start, given, "owl-qn: L1 penalty")
        elif self.getGpusPerWorker():
            state, report = self._run(LBFGS(*limits), problem, start, given, "l-bfgs: on GPUs")
        else:
            gram = gram_pays(*self._cost(given.dataset))
            state, report = self._run(LBFGS(*limits, gram), problem, start, given, "l-bfgs")
        coefficients, intercepts = problem.to_raw(state.best)
        return self._model(coefficients[:, 0], intercepts[0], 1.0, NO_STANDARD_ERRORS, report, given)

    def _train_partitioned(
        self, chosen: Choice, given: Prepared
    ) -> LinearRegressionModel | DistributedLinearRegressionModel:
        """As the methods below do it for models that are whole."""
        totals = given.dataset.totals
        label_std = totals.label_std or abs(totals.label_mean) or 1.0
        unit, intercept = 1.0, totals.label_mean
        if self.getLoss() == "huber":
            unit, intercept = label_std, intercept / label_std
            loss: Loss = Huber(self.getEpsilon(), unit=unit)
            objective = self._objective(totals, loss, scale=unit, told=unit)
        elif self._cooperates:
            coordinates = self._coordinates(given.dataset.has_sparse_blocks)
            objective = self._objective(totals, Squared(), 1.0 / label_std, told=label_std**-2, **coordinates)
        else:
            loss = Squared(1.0 / label_std**2)
            objective = self._objective(totals, loss, scale=1.0 / label_std, unit=label_std)
        start = self._tail_start(objective, intercept, unit)
        if self.getLoss() == "huber":
            scale = getattr(self._initial_model, "scale", label_std) / unit
            start[-1] = math.log(scale) if scale > 0.0 else 0.0

        def finish(coefficients: np.ndarray) -> np.ndarray:
            return unit * coefficients

        trained, report = self._run_sharded(chosen, objective, start, given, unit=label_std, told=unit, finish=finish)
        intercepts = unit * trained.intercepts
        scale = unit * math.exp(trained.tail[-1]) if self.getLoss() == "huber" else 1.0
        model = DistributedLinearRegressionModel(trained.chunks, trained.bounds, intercepts, scale)
        if not chosen.fits_driver:
            return self._distributed(model, report)
        coefficients = model.coefficients.toArray()
        trained.chunks.unpersist()
        return self._model(coefficients, float(intercepts[0]), scale, NO_STANDARD_ERRORS, report, given)

    def _solves_normal_equations(self, given: Prepared) -> bool:
        features = given.dataset.features
        if self.getSolver() == "normal":
            if features > MOST_NORMAL_FEATURES:
                raise ValueError(
                    f"solver='normal' takes up to {MOST_NORMAL_FEATURES} features, but there are {features}; use "
                    "solver='l-bfgs'"
                )
            return True
        few = features <= MOST_NORMAL_FEATURES
        return self.getSolver() == "auto" and few and given.validation is None and not self.getGpusPerWorker()

    def _train_normal(self, given: Prepared) -> LinearRegressionModel:
        """Spark's normal solver scales by population deviations, its other one by sample deviations."""
        statistics = given.dataset.statistics
        label_std = statistics.population_label_std or abs(statistics.label_mean)
        problem = self._problem(
            given.dataset, Squared(), statistics.population_std, l2_scale=1.0 / label_std, told=label_std**-2
        )
        start = self._start(problem, statistics.label_mean)
        state, report = self._run(NormalEquations(), problem, start, given, "normal: one round")
        coefficients, intercepts = problem.to_raw(state.best)
        report = replace(report, objective_history=[0.0], iterations=0)
        inverse_diagonal = state.inverse_diagonal if len(state.inverse_diagonal) else NO_STANDARD_ERRORS
        return self._model(coefficients[:, 0], intercepts[0], 1.0, inverse_diagonal, report, given)

    def _train_together(self, given: Prepared) -> LinearRegressionModel:
        """By a method in which workers cooperate: on labels as they are, so that step sizes suit any of them."""
        statistics, solver = given.dataset.statistics, self.getSolver()
        label_std = statistics.label_std or abs(statistics.label_mean)
        coordinates = self._coordinates(given.dataset.has_sparse_blocks)
        problem = self._problem(given.dataset, Squared(), l2_scale=1.0 / label_std, told=label_std**-2, **coordinates)
        algorithm = replace(self._plan(), unit=label_std).algorithm()
        start = self._start(problem, statistics.label_mean)
        state, report = self._run(algorithm, problem, start, given, f"{solver}: asked for")
        coefficients, intercepts = problem.to_raw(state.best)
        return self._model(coefficients[:, 0], intercepts[0], 1.0, NO_STANDARD_ERRORS, report, given)

    def _train_huber(self, given: Prepared) -> LinearRegressionModel:
        """On labels in their own deviation: then no tolerance depends on their unit."""
        statistics = given.dataset.statistics
        unit = statistics.label_std or abs(statistics.label_mean) or 1.0
        problem = self._problem(given.dataset, Huber(self.getEpsilon(), unit=unit), scale=unit, told=unit)
        start = self._start(problem, statistics.label_mean) / unit
        scale = getattr(self._initial_model, "scale", statistics.label_std) / unit
        start[-1] = math.log(scale) if scale > 0.0 else 0.0
        state, report = self._run(LBFGS(self.getMaxIter(), self.getTol()), problem, start, given, "l-bfgs: huber")
        coefficients, intercepts = problem.to_raw(state.best)
        scale = unit * math.exp(state.best[-1])
        return self._model(unit * coefficients[:, 0], unit * intercepts[0], scale, NO_STANDARD_ERRORS, report, given)

    def _start(self, problem: Problem, label_mean: float) -> np.ndarray:
        start = self._warm_start(problem)
        if self._initial_model is None and problem.fit_intercept:
            start[problem.features] = label_mean
        return start

    def _constant_model(self, given: Prepared, mean: float, chosen: Choice) -> Any:
        logger.warning("every label is %g: the model always predicts it; no round was run", mean)
        stop = Stop("converged", f"every label is {mean:g}", "give rows of different labels")
        report = replace(self._report(given, stop, 0.0, History(), "none: constant labels"), objective_history=[0.0])
        if not chosen.fits_driver:
            nothing: Any = given.dataset.context.parallelize([], 1)
            return self._distributed(
                DistributedLinearRegressionModel(nothing, [0, given.dataset.features], [mean]), report
            )
        return self._model(np.zeros(given.dataset.features), mean, 1.0, NO_STANDARD_ERRORS, report, given)

    def _model(
        self,
        coefficients: np.ndarray,
        intercept: float,
        scale: float,
        inverse_diagonal: np.ndarray,
        report: FitReport,
        given: Prepared,
    ) -> LinearRegressionModel:
        java_model = persist.linear_regression_model(self.uid, coefficients, intercept, scale)
        columns = [self.getOrDefault(name) for name in ("labelCol", "featuresCol")] + [given.weight or ""]

        def summarise(model: Any) -> Any:
            scoring, names = with_output_columns(model, ("predictionCol",))
            predictions = scoring.transform(self._vector_frame(given.frame))
            estimates = np.append(coefficients, intercept) if self.getFitIntercept() else coefficients
            return persist.linear_regression_summary(
                predictions,
                [*names, *columns],
                estimates,
                self.getFitIntercept(),
                inverse_diagonal,
                report.objective_history,
            )

        return self._finished(LinearRegressionModel(java_model), report, given, summarise)
