"""Generalized linear models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from pyspark import keyword_only
from pyspark.ml import regression as spark
from pyspark.ml.util import JavaMLReader

from sparkdml import persist
from sparkdml.algorithms import IRLS
from sparkdml.data.reader import BadInputError
from sparkdml.estimator import spark_params
from sparkdml.families import FamilyAndLink, family_and_link
from sparkdml.fit.prepared import Prepared
from sparkdml.linear import LINEAR_RANGES, LinearEstimator
from sparkdml.losses import Squared
from sparkdml.model import TrainedModel
from sparkdml.regression.linear_regression import MOST_NORMAL_FEATURES, NO_STANDARD_ERRORS

_RANGES = {name: LINEAR_RANGES[name] for name in ("regParam", "tol", "maxIter", "aggregationDepth")}


class GeneralizedLinearRegressionModel(TrainedModel, spark.GeneralizedLinearRegressionModel):
    """Spark's own model, with a ``report`` of the fit that made it (None after loading)."""

    @classmethod
    def read(cls) -> JavaMLReader[Any]:
        """Reads models saved by sparkdml or pyspark; what it returns is pyspark's class."""
        return spark.GeneralizedLinearRegressionModel.read()


class GeneralizedLinearRegression(
    LinearEstimator,
    spark._GeneralizedLinearRegressionParams,
    spark.Regressor,
):
    """Generalized linear model by iteratively reweighted least squares, as ``pyspark.ml`` defines it.

    ``link(E[y]) = x' coefficients + intercept + offset``, ``Var[y] = dispersion * V(E[y]) / weight``. Families and
    their links (the first is the default): gaussian (identity, log, inverse), binomial (logit, probit, cloglog),
    poisson (log, identity, sqrt), gamma (inverse, identity, log), tweedie (powers, by ``variancePower`` and
    ``linkPower``). ``regParam`` penalises the squares of coefficients as given, relative to the sum of the working
    weights (gaussian with identity: as :class:`LinearRegression` does).

    The summary has deviances, AIC, dispersion, residuals and, where features are linearly independent, standard
    errors with t- and p-values. Parameters are pyspark's (:attr:`SPARK_PARAMS` tells how each is treated), and
    ``checkpointDir``, ``checkpointInterval``, ``featuresCols``, ``placement``, ``progress``.
    """

    __module__ = "sparkdml.regression"  # where users find it, and what is saved with it

    SPARK_PARAMS = spark_params(
        (
            "featuresCol", "labelCol", "predictionCol", "family", "link", "fitIntercept", "maxIter", "tol", "regParam",
            "weightCol", "solver", "linkPredictionCol", "variancePower", "linkPower", "offsetCol",
        ),
        ignored=("aggregationDepth",),
    )  # fmt: skip
    RANGES: ClassVar = _RANGES
    SOLVERS = ("irls",)
    CLASSES = False

    _input_kwargs: dict[str, Any]

    @keyword_only
    def __init__(
        self,
        *,
        labelCol: str = "label",
        featuresCol: str = "features",
        predictionCol: str = "prediction",
        family: str = "gaussian",
        link: str | None = None,
        fitIntercept: bool = True,
        maxIter: int = 25,
        tol: float = 1e-6,
        regParam: float = 0.0,
        weightCol: str | None = None,
        solver: str = "irls",
        linkPredictionCol: str | None = None,
        variancePower: float = 0.0,
        linkPower: float | None = None,
        offsetCol: str | None = None,
        aggregationDepth: int = 2,
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
    def setParams(self, **kwargs: Any) -> GeneralizedLinearRegression:
        """Sets any of the constructor's parameters."""
        self._set(**kwargs)
        return self

    def checkParams(self) -> None:
        super().checkParams()
        self._family_and_link()

    def setInitialModel(self, model: Any) -> GeneralizedLinearRegression:
        """Refused: iteratively reweighted least squares starts from the family's own means, as in Spark."""
        if model is not None:
            raise ValueError("generalized linear models take no initial model: they start from the family's means")
        return self

    def _family_and_link(self) -> FamilyAndLink:
        return family_and_link(
            self.getFamily(), self._column("link"), self.getVariancePower(), self._value("linkPower")
        )

    def _train(self, given: Prepared) -> GeneralizedLinearRegressionModel:
        dataset = given.dataset
        if dataset.features > MOST_NORMAL_FEATURES:
            raise ValueError(
                f"generalized linear models take up to {MOST_NORMAL_FEATURES} features, but there are "
                f"{dataset.features}; for many features use LogisticRegression or LinearRegression"
            )
        model = self._family_and_link()
        statistics = dataset.statistics
        complaint = model.family.check(np.array([statistics.label_min, statistics.label_max]))
        if complaint:
            raise BadInputError(f"column '{dataset.columns.label}': {complaint}")
        problem = self._problem(dataset, Squared(), scale=0.0)  # IRLS has the penalty to itself
        algorithm = IRLS(self.getMaxIter(), self.getTol(), model, self.getRegParam())
        start = np.zeros(problem.size)
        if problem.fit_intercept:
            start[-1] = statistics.label_mean
        state, report = self._run(algorithm, problem, start, given, "irls")
        report = replace(report, iterations=state.iteration)
        coefficients, intercepts = problem.to_raw(state.best)
        java_model = persist.generalized_linear_regression_model(self.uid, coefficients[:, 0], intercepts[0])
        inverse_diagonal = state.inverse_diagonal if len(state.inverse_diagonal) else NO_STANDARD_ERRORS

        def summarise(fitted: Any) -> Any:
            fitted._transfer_params_to_java()
            return persist.generalized_linear_regression_summary(
                self._vector_frame(given.frame), fitted._java_obj, inverse_diagonal, state.iteration, self.getSolver()
            )

        return self._finished(GeneralizedLinearRegressionModel(java_model), report, given, summarise)
