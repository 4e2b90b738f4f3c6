"""What estimators of factorization machines share: their objective, start and solvers in Spark's terms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from pyspark.ml.linalg import DenseVector, SparseVector, Vector

from sparkdml.algorithms.factorization import FactorizationSGD, FactorizationShards
from sparkdml.algorithms.progress import Limits
from sparkdml.algorithms.starts import Drawn, Start, Whole
from sparkdml.data.statistics import WIDE_FEATURES
from sparkdml.estimator import BlockEstimator
from sparkdml.fit.prepared import Prepared
from sparkdml.fit.sharded import ShardedRun
from sparkdml.losses import Loss
from sparkdml.optim.factorization import Factorized
from sparkdml.optim.java_random import java_gaussians
from sparkdml.optim.schedules import Constant, InverseSquareRoot, Schedule
from sparkdml.optim.steps import SGDW, AdamW, Step
from sparkdml.placement import Choice
from sparkdml.problem import Objective, Problem
from sparkdml.report.fit_report import FitReport
from sparkdml.wide.inspection import collect


def _gd(strength: float, step_size: float) -> tuple[Step, Schedule]:
    return SGDW(strength), InverseSquareRoot()


def _adam_w(strength: float, step_size: float) -> tuple[Step, Schedule]:
    # Spark's decay does not depend on the step size
    return AdamW(strength / step_size), Constant()


#: From regParam and stepSize to what a step is, and how its length changes with steps.
SOLVERS: dict[str, Callable[[float, float], tuple[Step, Schedule]]] = {"adamW": _adam_w, "gd": _gd}


@dataclass(frozen=True)
class Machine:
    """What was learned: the intercept, ``linear`` of d entries, and ``factors`` (d, k)."""

    intercept: float
    linear: Vector
    factors: np.ndarray


class FactorizationEstimator(BlockEstimator):
    """An estimator of factorization machines."""

    RANGES: ClassVar = {
        "factorSize": (1, math.inf),
        "regParam": (0, math.inf),
        "miniBatchFraction": (1e-300, 1),
        "initStd": (1e-300, math.inf),
        "maxIter": (0, math.inf),
        "stepSize": (1e-300, math.inf),
        "tol": (0, math.inf),
    }

    def checkParams(self) -> None:
        super().checkParams()
        solver = self.getOrDefault("solver")
        if solver not in SOLVERS:
            raise ValueError(f"solver='{solver}' is not known; it can be {', '.join(SOLVERS)}")
        if self._column("weightCol"):
            raise ValueError(
                f"weightCol='{self._column('weightCol')}' is set, but factorization machines take no weights, as in "
                "Spark; unset it"
            )

    def _cannot_partition(self) -> str:
        return ""

    def _sharded(
        self, chosen: Choice, given: Prepared, loss: Loss, whole: Callable[[Machine, FitReport], Any], cls: Any
    ) -> Any:
        """Train by shards: a distributed model of class ``cls``, or ``whole`` where the driver may put it together."""
        objective = replace(self._objective(given, loss), scaled=False, centred=False, constant=True)
        run = ShardedRun(chosen, self._on_round, self.getOrDefault("progress"), self._keeping())
        tail = np.zeros(objective.tail().size)
        initial: Start = Drawn(self.getOrDefault("seed"), self.getOrDefault("initStd"), self.getOrDefault("factorSize"))
        if self._initial_model is not None or given.dataset.features <= WIDE_FEATURES:
            problem = objective.stored(given.dataset.features)
            start = self._start(problem)
            initial, tail = Whole(problem.split(start)[0]), start[problem.size - len(tail) :]
        algorithm = FactorizationShards(self._algorithm())
        name = f"{self.getOrDefault('solver')}: asked for"
        trained, report = run.fit(algorithm, objective, tail, given, name, initial)
        intercept = float(trained.tail[-1]) if self.getOrDefault("fitIntercept") else 0.0
        model = cls(trained.chunks, trained.bounds, [intercept], objective.loss.outputs)
        if chosen.fits_driver:
            coefficients = collect(model._shards, "fit").dense(given.dataset.features)
            trained.chunks.unpersist()
            linear: Vector = SparseVector(len(coefficients), [], [])
            if self.getOrDefault("fitLinear"):
                linear = DenseVector(coefficients[:, 0])
            return whole(Machine(intercept, linear, coefficients[:, 1:]), report)
        model._resetUid(self.uid)
        model.report = report
        self._copyValues(model)
        return model

    def _objective(self, given: Prepared, loss: Loss) -> Objective:
        value = self.getOrDefault
        factorized = Factorized(loss, value("factorSize"), value("fitIntercept"))
        return Objective(factorized, value("regParam"), 0.0, True, False, given.dataset.totals.weight_sum)

    def _machine(self, given: Prepared, loss: Loss) -> tuple[Machine, FitReport]:
        """Train on the rows, with ``loss`` of a row's margin."""
        features, value = given.dataset.features, self.getOrDefault
        objective = self._objective(given, loss)
        problem = objective.over(np.zeros(features), np.ones(features))
        algorithm = self._algorithm()
        state, report = self._run(algorithm, problem, self._start(problem), given, f"{value('solver')}: asked for")
        coefficients, _ = problem.split(state.best)
        intercept = float(state.best[-1]) if value("fitIntercept") else 0.0
        linear: Vector = DenseVector(coefficients[:, 0]) if value("fitLinear") else SparseVector(features, [], [])
        return Machine(intercept, linear, coefficients[:, 1:]), report

    def _algorithm(self) -> FactorizationSGD:
        value = self.getOrDefault
        strength, step_size = value("regParam"), value("stepSize")
        step, schedule = SOLVERS[value("solver")](strength, step_size)
        return FactorizationSGD(
            step,
            schedule,
            step_size,
            value("miniBatchFraction"),
            Limits(value("maxIter"), value("tol")),
            ridge=strength,
            fit_linear=value("fitLinear"),
            seed=value("seed"),
        )

    def _start(self, problem: Problem) -> np.ndarray:
        """Factors that Spark draws for this seed, or those of the initial model; linear terms of 0, or its."""
        size = self.getOrDefault("factorSize")
        start = np.zeros(problem.size)
        coefficients, _ = problem.split(start)
        model = self._initial_model
        if model is None:
            draws = java_gaussians(self.getOrDefault("seed"), problem.features * size)
            coefficients[:, 1:] = (self.getOrDefault("initStd") * draws).reshape(-1, size)
            return start
        factors = _array(model.factors)
        if factors.shape != (problem.features, size):
            raise ValueError(
                f"the initial model has {factors.shape[0]} features of {factors.shape[1]} factors, but there are "
                f"{problem.features} features and factorSize={size}; give a model of such data"
            )
        coefficients[:, 1:] = factors
        if self.getOrDefault("fitLinear"):
            coefficients[:, 0] = _array(model.linear)
        if self.getOrDefault("fitIntercept"):
            start[-1] = model.intercept
        return start


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.toArray(), np.float64)
