"""Logistic regression."""

from __future__ import annotations

import logging
import math
from typing import Any, ClassVar

import numpy as np
from pyspark import keyword_only
from pyspark.ml import classification as spark
from pyspark.ml.param.shared import HasSolver
from pyspark.ml.util import JavaMLReader

from sparkdml import persist
from sparkdml.algorithms import LBFGS, OWLQN, Algorithm, Newton, Problem, ProjectedLBFGS
from sparkdml.algorithms.ensemble import EnsembleState
from sparkdml.algorithms.preconditioner import gram_pays, newton_pays
from sparkdml.classification.ensemble import LogisticRegressionEnsembleModel
from sparkdml.cooperating import COOPERATION_RANGES
from sparkdml.core import Stop
from sparkdml.data.dataset import Dataset
from sparkdml.estimator import spark_params
from sparkdml.fit.prepared import Prepared
from sparkdml.linear import LINEAR_RANGES, LinearEstimator
from sparkdml.losses import Logistic, Loss, Softmax
from sparkdml.model import TrainedModel, with_output_columns
from sparkdml.params import HasClassWeight, HasCooperation, HasValidation
from sparkdml.placement import Choice
from sparkdml.report.fit_report import FitReport
from sparkdml.report.history import History
from sparkdml.wide import DistributedLogisticRegressionModel

logger = logging.getLogger(__name__)

BOUNDS = (
    "lowerBoundsOnCoefficients",
    "upperBoundsOnCoefficients",
    "lowerBoundsOnIntercepts",
    "upperBoundsOnIntercepts",
)


class LogisticRegressionModel(TrainedModel, spark.LogisticRegressionModel):
    """Spark's own model, with a ``report`` of the fit that made it (None after loading)."""

    @classmethod
    def read(cls) -> JavaMLReader[Any]:
        """Reads models saved by sparkdml or pyspark; what it returns is pyspark's class."""
        return spark.LogisticRegressionModel.read()


class LogisticRegression(
    LinearEstimator,
    HasClassWeight,
    HasValidation,
    HasCooperation,
    HasSolver,
    spark._LogisticRegressionParams,
    spark.ProbabilisticClassifier,
):
    """Binomial and multinomial logistic regression with elastic net penalty, as ``pyspark.ml`` defines it.

    ``F = 1/W * sum_i w_i * loss_i + regParam * sum_j (elasticNetParam * |c_j| + (1 - elasticNetParam) / 2 * c_j^2)``,
    W the sum of weights, ``c_j = std_j * coefficient_j``; without ``standardization`` the penalty is on the
    coefficients themselves. The optimum is Spark's to summation order.

    Parameters are pyspark's (:attr:`SPARK_PARAMS` tells how each is treated; ``aggregationDepth`` and
    ``maxBlockSizeInMB`` have no effect: depth follows from sizes, and blocks are bounded anyway), and

    - ``solver``: ``auto``, ``l-bfgs`` (OWL-QN with an L1 penalty, projected L-BFGS within bounds) or ``newton`` (the
      exact Hessian in every round: binomial, few features, no L1 and no bounds). ``auto`` chooses by cost. Or a method
      by which workers cooperate, with the parameters of :class:`~sparkdml.params.HasCooperation`: ``sgd``,
      ``model-averaging``, ``hogwild``, ``one-shot-averaging``, ``ensemble`` (whose model
      is a :class:`LogisticRegressionEnsembleModel`), ``bmuf``, ``easgd``, ``admm``, ``cocoa``, ``svrg``,
      ``coordinate-descent``, ``newton-cg``.
    - ``classWeight``: ``"balanced"`` or a dict from label to factor.
    - ``validationIndicatorCol``, ``patience``: early stopping by rows that are held back.
    - ``checkpointDir``, ``checkpointInterval``: an interrupted fit, run again, goes on where it was.
    - ``numWorkers``, ``gpusPerWorker``: how many workers train, and on how many GPUs each (``solver`` ``auto`` or
      ``l-bfgs``, which then has no Gram matrix).
    - ``featuresCols``, ``placement``, ``progress``; ``setInitialModel`` (warm start) and ``setOnRound`` (a callback).

    ``fit`` returns :class:`LogisticRegressionModel`, which is Spark's own; it saves, loads and scores without
    sparkdml. Like Spark's it scores a *vector* column: after a fit on ``featuresCols`` or on arrays, assemble one
    with ``VectorAssembler`` or ``array_to_vector`` before ``transform``.

    Raises
    ------
    ValueError : a parameter that cannot be honoured, or rows that cannot be trained on.
    TypeError : a column of a type that cannot be used.
    """

    __module__ = "sparkdml.classification"  # where users find it, and what is saved with it

    SPARK_PARAMS = spark_params(
        (
            "featuresCol", "labelCol", "predictionCol", "maxIter", "regParam", "elasticNetParam", "tol", "fitIntercept",
            "threshold", "thresholds", "probabilityCol", "rawPredictionCol", "standardization", "weightCol", "family",
            *BOUNDS,
        ),
        ignored=("aggregationDepth", "maxBlockSizeInMB"),
    )  # fmt: skip
    RANGES: ClassVar = {**LINEAR_RANGES, **COOPERATION_RANGES, "elasticNetParam": (0, 1), "threshold": (0, 1)}
    SOLVERS = ("auto", "l-bfgs", "newton")
    ENSEMBLES = True
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
        elasticNetParam: float = 0.0,
        tol: float = 1e-6,
        fitIntercept: bool = True,
        threshold: float = 0.5,
        thresholds: list[float] | None = None,
        probabilityCol: str = "probability",
        rawPredictionCol: str = "rawPrediction",
        standardization: bool = True,
        weightCol: str | None = None,
        aggregationDepth: int = 2,
        family: str = "auto",
        lowerBoundsOnCoefficients: Any = None,
        upperBoundsOnCoefficients: Any = None,
        lowerBoundsOnIntercepts: Any = None,
        upperBoundsOnIntercepts: Any = None,
        maxBlockSizeInMB: float = 0.0,
        featuresCols: list[str] | None = None,
        placement: str = "auto",
        numWorkers: int = 0,
        gpusPerWorker: float = 0.0,
        progress: bool = False,
        solver: str = "auto",
        classWeight: str | dict[float, float] | None = None,
        validationIndicatorCol: str | None = None,
        patience: int = 5,
        checkpointDir: str | None = None,
        checkpointInterval: int = 10,
        **cooperation: Any,
    ) -> None:
        super().__init__()
        self._setDefault(solver="auto", patience=5)
        self._set(**self._input_kwargs)
        self._checkThresholdConsistency()

    @keyword_only
    def setParams(self, **kwargs: Any) -> LogisticRegression:
        """Sets any of the constructor's parameters."""
        self._set(**kwargs)
        self._checkThresholdConsistency()
        return self

    def checkParams(self) -> None:
        super().checkParams()
        if self.getFamily().lower() not in ("auto", "binomial", "multinomial"):
            raise ValueError(f"family='{self.getFamily()}' is not known; it can be auto, binomial or multinomial")
        lasso = self.getElasticNetParam() > 0.0 and self.getRegParam() > 0.0
        if lasso and self._bounded:
            raise ValueError(
                f"bounds need elasticNetParam=0.0 or regParam=0.0, but elasticNetParam={self.getElasticNetParam()} and "
                f"regParam={self.getRegParam()}"
            )
        if not self.getFitIntercept() and any(self._column(name) is not None for name in BOUNDS[2:]):
            raise ValueError("bounds on intercepts need fitIntercept=True; unset them or set it")
        if self.getSolver() == "newton" and (lasso or self._bounded):
            raise ValueError("solver='newton' takes no L1 penalty and no bounds; use solver='auto'")
        if self._cooperates and self._bounded:
            raise ValueError(f"solver='{self.getSolver()}' takes no bounds; use solver='auto'")
        thresholds = self._column("thresholds") or [1.0]
        if min(thresholds) < 0.0 or thresholds.count(0.0) > 1:
            raise ValueError(f"thresholds={thresholds} is not allowed; none may be negative, and at most one 0")

    def _cannot_use_gpus(self) -> str:
        if self.getSolver() not in ("auto", "l-bfgs"):
            return f"solver='{self.getSolver()}' computes on CPUs, solver='l-bfgs' would not"
        return ""

    def _cannot_partition(self) -> str:
        return "bounds are set; unset them" if self._bounded else super()._cannot_partition()

    @property
    def _bounded(self) -> bool:
        return any(self._column(name) is not None for name in BOUNDS)

    def _train(self, given: Prepared) -> Any:
        dataset = given.dataset
        histogram = self._class_weights(dataset)
        classes = len(histogram)
        multinomial = self._is_multinomial(classes)
        thresholds = self.getOrDefault("thresholds") if self.isSet("thresholds") else None
        if thresholds and len(thresholds) != max(classes, 2):
            raise ValueError(
                f"thresholds has {len(thresholds)} values, but there are {classes} classes; give one for each"
            )
        loss: Loss = Softmax(classes) if multinomial else Logistic()
        chosen = self._choose(dataset, loss.outputs)
        if np.count_nonzero(histogram) == 1 and self.getFitIntercept() and not self._bounded:
            return self._constant_model(given, histogram, multinomial, chosen)
        if chosen.partitioned:
            return self._train_partitioned(chosen, given, loss, histogram, multinomial)
        # bounds are on intercepts themselves, not on margins at the mean row
        coordinates = {"centred": not self._bounded, **self._coordinates(dataset.has_sparse_blocks)}
        problem = self._problem(dataset, loss, **coordinates)
        solver, algorithm = self._solver(problem, dataset)
        state, report = self._run(algorithm, problem, self._start(problem, histogram), given, solver)
        if isinstance(state, EnsembleState):
            return self._ensemble(state, problem, classes, multinomial, report)
        coefficients, intercepts = problem.to_raw(state.best)
        if multinomial and not self._bounded:
            if self.getRegParam() == 0.0:
                coefficients = centred_classes(coefficients)
            if self.getFitIntercept():
                intercepts = intercepts - intercepts.mean()
        return self._model(coefficients.T, intercepts, classes, multinomial, report, given)

    def _train_partitioned(
        self, chosen: Choice, given: Prepared, loss: Loss, histogram: np.ndarray, multinomial: bool
    ) -> LogisticRegressionModel | DistributedLogisticRegressionModel:
        dataset, classes = given.dataset, len(histogram)
        objective = self._objective(dataset.totals, loss, **self._coordinates(dataset.has_sparse_blocks))
        start = starting_point(objective.tail(), histogram)
        if self._initial_model is not None and objective.fit_intercept:
            given_intercepts = np.array(self._initial_model.interceptVector.toArray())
            if np.isfinite(given_intercepts).all():
                start = given_intercepts
        free = multinomial and self.getRegParam() == 0.0
        trained, report = self._run_sharded(chosen, objective, start, given, finish=centred_classes if free else None)
        intercepts = trained.intercepts
        if multinomial and self.getFitIntercept():
            intercepts = intercepts - intercepts.mean()
        classes = classes if multinomial else 2
        model = DistributedLogisticRegressionModel(trained.chunks, trained.bounds, intercepts, classes, multinomial)
        if not chosen.fits_driver:
            return self._distributed(model, report)
        whole = model.coefficientMatrix.toArray()
        trained.chunks.unpersist()
        return self._model(whole, intercepts, classes, multinomial, report, given)

    def _ensemble(
        self, state: EnsembleState, problem: Problem, classes: int, multinomial: bool, report: FitReport
    ) -> LogisticRegressionEnsembleModel:
        members: list[spark.LogisticRegressionModel] = []
        shares: list[float] = []
        for share, model in zip(state.shares, state.models, strict=True):
            if share > 0.0:
                coefficients, intercepts = problem.to_raw(model)
                java_model = persist.logistic_regression_model(
                    f"{self.uid}_{len(members)}", coefficients.T, intercepts, classes if multinomial else 2, multinomial
                )
                members.append(spark.LogisticRegressionModel(java_model))
                shares.append(share)
        ensemble = LogisticRegressionEnsembleModel(members, shares)
        ensemble.report = report
        self._copyValues(ensemble)
        return ensemble

    def _solver(self, problem: Problem, dataset: Dataset) -> tuple[str, Algorithm]:
        """The algorithm, and its name with the reason for it."""
        limits = self.getMaxIter(), self.getTol()
        if self._cooperates:
            return f"{self.getSolver()}: asked for", self._plan().algorithm()
        if self._bounded:
            return "projected l-bfgs: bounds", ProjectedLBFGS(*limits, *self._bounds(problem))
        if problem.penalty.l1() is not None:
            return "owl-qn: L1 penalty", OWLQN(*limits)
        if self.getSolver() == "newton":
            if problem.loss.outputs > 1:
                raise ValueError("solver='newton' is for binomial models only; use solver='auto' or 'l-bfgs'")
            return "newton: asked for", Newton(*limits)
        if self.getGpusPerWorker():
            return "l-bfgs: on GPUs", LBFGS(*limits)
        cost = self._cost(dataset)
        gram = gram_pays(*cost)
        if self.getSolver() == "auto" and problem.loss.outputs == 1 and newton_pays(*cost):
            return "newton: few features", Newton(*limits)
        return "l-bfgs: " + ("with a Gram matrix" if gram else "by diagonal"), LBFGS(*limits, gram)

    def _start(self, problem: Problem, histogram: np.ndarray) -> np.ndarray:
        model = self._initial_model
        if model is None:
            return starting_point(problem, histogram)
        coefficients, intercepts = model.coefficientMatrix.toArray().T, model.interceptVector.toArray()
        wanted = (problem.features, problem.loss.outputs)
        if coefficients.shape != wanted:
            raise ValueError(
                f"the initial model has {coefficients.shape[0]} features and {coefficients.shape[1]} sets of "
                f"coefficients, but the data need {wanted[0]} and {wanted[1]}; give a model of such data"
            )
        if not np.isfinite(intercepts).all():
            return starting_point(problem, histogram)
        return problem.from_raw(coefficients, intercepts)

    def _bounds(self, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds in the problem's coordinates."""
        classes, std = problem.loss.outputs, problem.scaling.std
        # a constant feature keeps coefficient 0, whatever its bounds
        sides = [
            np.multiply(side.T, std, where=std > 0, out=np.zeros((problem.features, classes))).ravel()
            for side in self._given_bounds("BoundsOnCoefficients", (classes, problem.features))
        ]
        if problem.fit_intercept:
            given = self._given_bounds("BoundsOnIntercepts", (classes,))
            sides = [np.concatenate(pair) for pair in zip(sides, given, strict=True)]
        return sides[0], sides[1]

    def _given_bounds(self, name: str, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """What the user gave as lower and upper ``name``; infinite where nothing was given."""
        sides = []
        for prefix, infinity in (("lower", -math.inf), ("upper", math.inf)):
            value = self._column(prefix + name)
            given = np.full(shape, infinity) if value is None else np.asarray(value.toArray())
            if given.shape != shape:
                raise ValueError(
                    f"{prefix}{name} has shape {given.shape}, but the data need {shape}; give one bound for each"
                )
            sides.append(given)
        lower, upper = sides
        if (lower > upper).any():
            at = tuple(int(i) for i in np.argwhere(lower > upper)[0])
            raise ValueError(
                f"lower{name}{list(at)} is {lower[at]:g}, above upper{name}{list(at)}, which is {upper[at]:g}"
            )
        return lower, upper

    def _class_weights(self, dataset: Dataset) -> np.ndarray:
        """Weight of every class; the label column's metadata may name classes that have no row."""
        histogram = dataset.totals.histogram
        named = dataset.columns.label_values or 0
        if named and named < len(histogram):
            raise ValueError(
                f"column '{dataset.columns.label}' has label {len(histogram) - 1}, but its metadata names only "
                f"{named} classes; index the column again"
            )
        return np.concatenate([histogram, np.zeros(max(named - len(histogram), 0))])

    def _is_multinomial(self, classes: int) -> bool:
        family = self.getFamily().lower()
        if family == "binomial" and classes > 2:
            raise ValueError(
                f"family='binomial' takes labels 0 and 1, but the largest label is {classes - 1}; use "
                "family='auto' or 'multinomial'"
            )
        return family == "multinomial" or (family == "auto" and classes > 2)

    def _constant_model(
        self, given: Prepared, histogram: np.ndarray, multinomial: bool, chosen: Choice
    ) -> LogisticRegressionModel | DistributedLogisticRegressionModel:
        """One class only: its probability is 1 whatever the features are."""
        label = int(np.argmax(histogram))
        logger.warning("every label is %d: the model always predicts it; no round was run", label)
        rows = len(histogram) if multinomial else 1
        intercepts = np.zeros(rows)
        intercepts[label if multinomial else 0] = math.inf if multinomial or label else -math.inf
        stop = Stop("converged", f"every label is {label}", "give rows of at least two classes")
        report = self._report(given, stop, 0.0, History(), "none: one class")
        if not chosen.fits_driver:
            nothing: Any = given.dataset.context.parallelize([], 1)
            bounds = [0, given.dataset.features]
            classes = len(histogram) if multinomial else 2
            model = DistributedLogisticRegressionModel(nothing, bounds, intercepts, classes, multinomial)
            return self._distributed(model, report)
        zeros = np.zeros((rows, given.dataset.features))
        return self._model(zeros, intercepts, len(histogram), multinomial, report, given)

    def _model(
        self,
        coefficients: np.ndarray,
        intercepts: np.ndarray,
        classes: int,
        multinomial: bool,
        report: FitReport,
        given: Prepared,
    ) -> LogisticRegressionModel:
        # a binary model has two raw predictions also where only label 0 was seen: evaluators demand both
        classes = classes if multinomial else 2
        java_model = persist.logistic_regression_model(self.uid, coefficients, intercepts, classes, multinomial)
        columns = [self.getOrDefault(name) for name in ("labelCol", "featuresCol")] + [given.weight or ""]

        def summarise(model: Any) -> Any:
            scoring, names = with_output_columns(model, ("probabilityCol", "predictionCol"))
            predictions = scoring.transform(self._vector_frame(given.frame))
            objectives = report.objective_history or [0.0]
            return persist.logistic_regression_summary(predictions, [*names, *columns], objectives, classes <= 2)

        return self._finished(LogisticRegressionModel(java_model), report, given, summarise)


def centred_classes(coefficients: np.ndarray) -> np.ndarray:
    """Adding a constant to every class changes no probability; Spark chooses mean 0. (n, K)."""
    return coefficients - coefficients.mean(axis=1, keepdims=True)


def starting_point(problem: Problem, histogram: np.ndarray) -> np.ndarray:
    """Coefficients 0 and the intercepts that give every class its share of the weight (Spark's choice too)."""
    start = np.zeros(problem.size)
    if not problem.fit_intercept:
        return start
    if problem.loss.outputs == 1:
        start[-1] = math.log(histogram[1] / histogram[0])
    else:
        shares = np.log1p(histogram)
        start[-problem.loss.outputs :] = shares - shares.mean()
    return start
