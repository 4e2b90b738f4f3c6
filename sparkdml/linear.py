"""What estimators of linear models share: their objective in Spark's terms."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from sparkdml import cooperation
from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.element_wise import ElementWise
from sparkdml.algorithms.sharded import Sharded
from sparkdml.algorithms.starts import Start, Whole
from sparkdml.algorithms.vector_free import VectorFree
from sparkdml.cooperating import CooperatingEstimator
from sparkdml.data.by_features import FeatureDataset
from sparkdml.data.dataset import Dataset
from sparkdml.data.statistics import Statistics
from sparkdml.fit.prepared import Prepared
from sparkdml.fit.sharded import ShardedRun
from sparkdml.losses import Loss
from sparkdml.placement import Choice, Local, TrainedShards
from sparkdml.problem import Differentiable, Objective, Problem
from sparkdml.report.fit_report import FitReport
from sparkdml.resources.slots import task_slots
from sparkdml.wide import DistributedModel

logger = logging.getLogger(__name__)

#: Values of ``solver`` for models in shards.
SHARDED = ("auto", "l-bfgs", "owl-qn", "sgd")

#: What linear models allow, by parameter: least and largest value.
LINEAR_RANGES: dict[str, tuple[float, float]] = {
    "regParam": (0, math.inf),
    "tol": (0, math.inf),
    "maxIter": (0, math.inf),
    "aggregationDepth": (2, math.inf),
    "maxBlockSizeInMB": (0, math.inf),
}


class LinearEstimator(CooperatingEstimator):
    """An estimator of coefficients by a loss of margins and a penalty."""

    #: Names of ``solver`` besides those of :mod:`sparkdml.cooperation`.
    SOLVERS: ClassVar[tuple[str, ...]]
    #: Whether models tell probabilities, which an ensemble can average.
    ENSEMBLES: ClassVar[bool] = False

    def checkParams(self) -> None:
        super().checkParams()
        solver = self.getOrDefault("solver")
        methods = tuple(cooperation.SOLVERS) if self.hasParam("codec") else ()
        if solver not in (*self.SOLVERS, *methods):
            raise ValueError(f"solver='{solver}' is not known; it can be {', '.join((*self.SOLVERS, *methods))}")
        if solver == "ensemble" and not self.ENSEMBLES:
            raise ValueError("solver='ensemble' averages probabilities, which only LogisticRegression has; use another")
        if methods:
            self._check_used(solver)
        if solver in methods:
            self._check_method()
            self._check_penalty(solver)
        elif methods and self.getOrDefault("codec") != cooperation.EXACT:
            raise ValueError(
                f"codec='{self.getOrDefault('codec')}' needs a solver of steps, such as sgd or model-averaging, and "
                f"solver is '{solver}'; set that, or codec='{cooperation.EXACT}'"
            )

    def _check_penalty(self, solver: str) -> None:
        strength = self.getOrDefault("regParam")
        share = self.getOrDefault("elasticNetParam") if self.hasParam("elasticNetParam") else 0.0
        if solver == "cocoa" and strength * (1.0 - share) == 0.0:
            raise ValueError("solver='cocoa' needs an L2 penalty; set regParam above 0 and elasticNetParam below 1")
        if solver == "newton-cg" and strength * share > 0.0:
            raise ValueError("solver='newton-cg' takes no L1 penalty; use solver='auto' or elasticNetParam=0.0")

    def _cannot_partition(self) -> str:
        solver = self.getOrDefault("solver")
        if solver not in SHARDED:
            return f"solver='{solver}' must see all coefficients; use one of {', '.join(SHARDED)}"
        if self._column("validationIndicatorCol"):
            return "validationIndicatorCol is set, and what it does needs all coefficients; unset it"
        if self._value("codec") not in (None, cooperation.EXACT):
            return f"codec='{self._value('codec')}' is for whole models; use codec='{cooperation.EXACT}'"
        return ""

    def _run_sharded(
        self,
        chosen: Choice,
        objective: Objective,
        start: np.ndarray,
        given: Prepared,
        lasso: bool = False,
        unit: float = 1.0,
        told: float = 1.0,
        finish: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> tuple[TrainedShards, FitReport]:
        """Train by shards.

        ``lasso`` asks for OWL-QN where no L1 penalty does; coefficients are about as large as ``unit``. ``told`` times
        the objective's coefficients are users'.
        """
        algorithm: Sharded
        if self._cooperates:
            name = f"{self.getOrDefault('solver')}: asked for"
            algorithm = ElementWise(replace(self._plan(), unit=unit).algorithm())
        else:
            lasso = lasso or objective.lasso > 0.0
            name = "vector-free owl-qn" if lasso else "vector-free l-bfgs"
            algorithm = VectorFree(self.getOrDefault("maxIter"), self.getOrDefault("tol"), lasso)
        run = ShardedRun(chosen, self._on_round, self.getOrDefault("progress"), self._keeping())
        return run.fit(
            algorithm, objective, start, given, name, self._initial_coefficients(given, objective, told), finish
        )

    def _initial_coefficients(self, given: Prepared, objective: Objective, told: float) -> Start | None:
        """Those of the initial model, over ``told``."""
        model = self._initial_model
        if model is None:
            return None
        found = model.coefficientMatrix if hasattr(model, "coefficientMatrix") else model.coefficients
        coefficients = np.asarray(found.toArray(), np.float64)
        coefficients = coefficients[:, None] if coefficients.ndim == 1 else coefficients.T
        wanted = (given.dataset.features, objective.loss.outputs)
        if coefficients.shape != wanted:
            raise ValueError(
                f"the initial model has coefficients of shape {coefficients.shape}, but the data need {wanted}; give a "
                "model of such data"
            )
        return Whole(coefficients / told)

    def _tail_start(self, objective: Objective, intercept: float, told: float = 1.0) -> np.ndarray:
        """The tail that a fit of one output begins with: ``intercept``, or the initial model's over ``told``."""
        start = np.zeros(objective.tail().size)
        if objective.fit_intercept:
            model = self._initial_model
            start[0] = intercept if model is None else model.intercept / told
        return start

    def _distributed(self, model: DistributedModel, report: FitReport) -> Any:
        """``model`` with this estimator's parameters and the report."""
        model._resetUid(self.uid)
        model.report = report
        self._copyValues(model)
        return model

    def _choose(self, dataset: Dataset, outputs: int = 1) -> Choice:
        if self.getPlacement() == "auto" and self.getOrDefault("solver") in cooperation.SHARED_MEMORY:
            return Choice(Local(self._workers(dataset.context)), "threads of one process share the coefficients")
        return super()._choose(dataset, outputs)

    def _run(
        self, algorithm: Algorithm, problem: Differentiable, start: np.ndarray, given: Prepared, solver: str
    ) -> tuple[Any, FitReport]:
        if self.getOrDefault("solver") not in cooperation.BY_FEATURES:
            return super()._run(algorithm, problem, start, given, solver)
        if self.getPlacement() == "allreduce" and not given.dataset.is_here:
            raise ValueError(
                f"solver='{self.getOrDefault('solver')}' gives each worker all rows of some columns, which "
                "placement='allreduce' deals by host; use placement='broadcast' on a cluster"
            )
        with FeatureDataset(given.dataset) as columns:
            seconds = given.ingest_seconds + columns.ingest_seconds
            by_features = replace(given, dataset=columns, ingest_seconds=seconds, closing=[])
            return super()._run(algorithm, problem, start, by_features, solver)

    def _coordinates(self, sparse: bool) -> dict[str, Any]:
        """How :meth:`_objective` shall scale for the solver: steps on single rows want these as sparse as they are."""
        if self.getOrDefault("solver") not in cooperation.STEPPING:
            return {}
        centred = not (sparse or self.getOrDefault("solver") in cooperation.BY_FEATURES)
        return {"centred": centred, "scaled": self.getOrDefault("standardization")}

    def _objective(
        self, totals: Statistics, loss: Loss, l2_scale: float = 1.0, scale: float = 1.0, **coordinates: Any
    ) -> Objective:
        """The elastic net of Spark's parameters; all of the penalty is multiplied by ``scale``, its L2 part also by
        ``l2_scale``. Other arguments are :class:`~sparkdml.problem.Objective`'s.
        """
        strength = scale * self.getOrDefault("regParam")
        share = self.getOrDefault("elasticNetParam") if self.hasParam("elasticNetParam") else 0.0
        return Objective(
            loss,
            strength * (1.0 - share) * l2_scale,
            strength * share,
            bool(self._value("standardization")),
            self.getOrDefault("fitIntercept"),
            totals.weight_sum,
            **coordinates,
        )

    def _problem(self, dataset: Dataset, loss: Loss, std: np.ndarray | None = None, **how: Any) -> Problem:
        """The objective over all features of ``dataset``; ``std`` (d,) takes the place of sample deviations."""
        statistics = dataset.statistics
        objective = self._objective(statistics, loss, **how)
        problem = objective.over(statistics.mean, statistics.std if std is None else std)
        constant = problem.scaling.inverse_std[:, 0] == 0
        if not objective.fit_intercept and np.any(constant & (statistics.mean != 0)):
            logger.warning("some features are constant and fitIntercept is False: their coefficients are 0")
        return problem

    def _warm_start(self, problem: Problem) -> np.ndarray:
        """Where a model of one output starts: at 0, or at the initial model."""
        model = self._initial_model
        if model is None:
            return np.zeros(problem.size)
        coefficients = model.coefficients.toArray()
        if len(coefficients) != problem.features:
            raise ValueError(
                f"the initial model has {len(coefficients)} features, but the data have {problem.features}; give a "
                "model of such data"
            )
        return problem.from_raw(coefficients[:, None], np.array([model.intercept]))

    def _cost(self, dataset: Dataset) -> tuple[int, int, float, int, float]:
        """Rows, features, non-zeros, workers and seconds of latency: what cost formulas ask for."""
        latency = self._choose(dataset).placement.latency_seconds
        nonzeros = float(dataset.statistics.nonzeros.sum())
        return dataset.rows, dataset.features, nonzeros, task_slots(dataset.context), latency
