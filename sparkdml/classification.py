"""Classifiers with the names and parameters of ``pyspark.ml.classification``."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
from pyspark import keyword_only
from pyspark.ml import classification as spark
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable, JavaMLReader

from sparkdml import persist
from sparkdml.algorithms import LBFGS, Problem, Scaling
from sparkdml.algorithms.preconditioner import gram_pays
from sparkdml.core import Stop
from sparkdml.data.dataset import Dataset
from sparkdml.estimator import BlockEstimator, report_of
from sparkdml.losses import Logistic, Loss, Softmax
from sparkdml.params import setter
from sparkdml.penalties import L2
from sparkdml.report.fit_report import FitReport, fit_report
from sparkdml.report.history import History

logger = logging.getLogger(__name__)

#: Parameters of pyspark that cannot be honoured yet.
REFUSED = (
    "lowerBoundsOnCoefficients",
    "upperBoundsOnCoefficients",
    "lowerBoundsOnIntercepts",
    "upperBoundsOnIntercepts",
)


#: What Spark's own validators allow, checked before a fit and not only when its model is used.
RANGES = (
    ("regParam", 0, math.inf),
    ("elasticNetParam", 0, 1),
    ("tol", 0, math.inf),
    ("maxIter", 0, math.inf),
    ("threshold", 0, 1),
    ("aggregationDepth", 2, math.inf),
    ("maxBlockSizeInMB", 0, math.inf),
)


class LogisticRegressionModel(spark.LogisticRegressionModel):
    """Spark's own model, with a ``report`` of the fit that made it (None after loading)."""

    report: FitReport | None = None

    @classmethod
    def read(cls) -> JavaMLReader[Any]:
        """Reads models saved by sparkdml or pyspark; what it returns is pyspark's class."""
        return spark.LogisticRegressionModel.read()


class LogisticRegression(
    BlockEstimator,
    spark._LogisticRegressionParams,
    spark.ProbabilisticClassifier,
    DefaultParamsWritable,
    DefaultParamsReadable["LogisticRegression"],
):
    """Binomial and multinomial logistic regression with L2 penalty, as ``pyspark.ml`` defines it.

    ``F = 1/W * sum_i w_i * loss_i + regParam / 2 * sum_j (std_j * coefficient_j)^2``, W the sum of weights; without
    ``standardization`` the penalty is on the coefficients themselves. The optimum is Spark's to summation order.

    Parameters are pyspark's, and ``featuresCols``, ``placement``, ``progress``. ``aggregationDepth`` and
    ``maxBlockSizeInMB`` are accepted and have no effect: depth follows from sizes, and blocks are bounded anyway.
    ``fit`` returns :class:`LogisticRegressionModel`, which is Spark's own; it saves, loads and scores without
    sparkdml. Like Spark's it scores a *vector* column: after a fit on ``featuresCols`` or on arrays, assemble one
    with ``VectorAssembler`` or ``array_to_vector`` before ``transform``.

    Raises
    ------
    ValueError : a parameter that cannot be honoured, or rows that cannot be trained on.
    TypeError : a column of a type that cannot be used.
    """

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
        progress: bool = False,
    ) -> None:
        super().__init__()
        self._set(**self._input_kwargs)
        self._checkThresholdConsistency()

    @keyword_only
    def setParams(self, **kwargs: Any) -> LogisticRegression:
        """Sets any of the constructor's parameters."""
        self._set(**kwargs)
        self._checkThresholdConsistency()
        return self

    setFamily = setter("family")
    setMaxIter = setter("maxIter")
    setRegParam = setter("regParam")
    setElasticNetParam = setter("elasticNetParam")
    setTol = setter("tol")
    setFitIntercept = setter("fitIntercept")
    setStandardization = setter("standardization")
    setWeightCol = setter("weightCol")
    setAggregationDepth = setter("aggregationDepth")
    setMaxBlockSizeInMB = setter("maxBlockSizeInMB")
    setLowerBoundsOnCoefficients = setter("lowerBoundsOnCoefficients")
    setUpperBoundsOnCoefficients = setter("upperBoundsOnCoefficients")
    setLowerBoundsOnIntercepts = setter("lowerBoundsOnIntercepts")
    setUpperBoundsOnIntercepts = setter("upperBoundsOnIntercepts")

    def checkParams(self) -> None:
        super().checkParams()
        for name in REFUSED:
            if self.isSet(name) and self.getOrDefault(name) is not None:
                raise ValueError(f"{name} is not supported yet; leave it unset")
        if self.getElasticNetParam() != 0.0 and self.getRegParam() != 0.0:
            raise ValueError(f"elasticNetParam={self.getElasticNetParam()} is not supported yet; only 0.0 (pure L2) is")
        for name, low, high in RANGES:
            value = self.getOrDefault(name)
            if not low <= value <= high:
                allowed = f"at least {low}" if high == math.inf else f"from {low} to {high}"
                raise ValueError(f"{name}={value} is not allowed; it must be {allowed}")
        if self.getFamily().lower() not in ("auto", "binomial", "multinomial"):
            raise ValueError(f"family='{self.getFamily()}' is not known; it can be auto, binomial or multinomial")

    def _train(self, dataset: Dataset, ingest_seconds: float) -> LogisticRegressionModel:
        histogram = self._class_weights(dataset)
        multinomial = self._is_multinomial(len(histogram))
        thresholds = self.getOrDefault("thresholds") if self.isSet("thresholds") else None
        if thresholds and len(thresholds) != max(len(histogram), 2):
            raise ValueError(
                f"thresholds has {len(thresholds)} values, but there are {len(histogram)} classes; give one for each"
            )
        if np.count_nonzero(histogram) == 1 and self.getFitIntercept():
            return self._constant_model(dataset, histogram, multinomial, ingest_seconds)
        loss: Loss = Softmax(len(histogram)) if multinomial else Logistic()
        problem = self._problem(dataset, loss)
        gram = gram_pays(dataset.rows, dataset.features, float(dataset.statistics.nonzeros.sum()), dataset.partitions)
        algorithm = LBFGS(self.getMaxIter(), self.getTol(), gram)
        start = _starting_point(problem, histogram)
        trained = self._run(algorithm, problem, start, dataset)
        stop: Stop = trained.state.stop
        if stop.reason == "diverged":
            raise ValueError(f"the fit diverged: {stop.message}; {stop.remedy}")
        coefficients, intercepts = problem.to_raw(trained.state.best)
        if multinomial:
            # adding a constant to every class changes no probability; Spark chooses mean 0
            if self.getRegParam() == 0.0:
                coefficients = coefficients - coefficients.mean(axis=1, keepdims=True)
            if self.getFitIntercept():
                intercepts = intercepts - intercepts.mean()
        report = report_of(trained, dataset, ingest_seconds)
        return self._model(coefficients.T, intercepts, len(histogram), multinomial, report)

    def _class_weights(self, dataset: Dataset) -> np.ndarray:
        """Weight of every class; the label column's metadata may name classes that have no row."""
        histogram = dataset.statistics.histogram
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

    def _problem(self, dataset: Dataset, loss: Loss) -> Problem:
        statistics = dataset.statistics
        std = statistics.std[:, None]
        inverse_std = np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)
        if not self.getFitIntercept() and np.any((std == 0) & (statistics.mean[:, None] != 0)):
            logger.warning("some features are constant and fitIntercept is False: their coefficients are 0")
        factors = np.ones_like(std) if self.getStandardization() else inverse_std**2
        penalty = L2(self.getRegParam(), factors)
        scaling = Scaling(statistics.mean[:, None], inverse_std)
        return Problem(loss, penalty, scaling, self.getFitIntercept(), statistics.weight_sum)

    def _constant_model(
        self, dataset: Dataset, histogram: np.ndarray, multinomial: bool, ingest_seconds: float
    ) -> LogisticRegressionModel:
        """One class only: its probability is 1 whatever the features are."""
        label = int(np.argmax(histogram))
        logger.warning("every label is %d: the model always predicts it; no round was run", label)
        rows = len(histogram) if multinomial else 1
        intercepts = np.zeros(rows)
        intercepts[label if multinomial else 0] = math.inf if multinomial or label else -math.inf
        stop = Stop("converged", f"every label is {label}", "give rows of at least two classes")
        report = fit_report(stop, 0.0, History(), ingest_seconds, dataset.stored_bytes)
        zeros = np.zeros((rows, dataset.features))
        return self._model(zeros, intercepts, len(histogram), multinomial, report)

    def _model(
        self,
        coefficients: np.ndarray,
        intercepts: np.ndarray,
        classes: int,
        multinomial: bool,
        report: FitReport,
    ) -> LogisticRegressionModel:
        # a binary model has two raw predictions also where only label 0 was seen: evaluators demand both
        classes = classes if multinomial else 2
        java_model = persist.logistic_regression_model(self.uid, coefficients, intercepts, classes, multinomial)
        model = LogisticRegressionModel(java_model)
        model._resetUid(self.uid)
        model.report = report
        return self._copyValues(model)


def _starting_point(problem: Problem, histogram: np.ndarray) -> np.ndarray:
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
