"""What estimators share whose objective is any differentiable function of parameters: solvers, and their checks."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from sparkdml import cooperation
from sparkdml.algorithms import LBFGS, Algorithm
from sparkdml.cooperating import COOPERATION_RANGES, CooperatingEstimator
from sparkdml.data.dataset import Dataset
from sparkdml.fit.prepared import Prepared
from sparkdml.optim.steps import STEPS
from sparkdml.problem import Function, FunctionProblem
from sparkdml.report.fit_report import FitReport

#: Methods by which workers cooperate that need no linear margins.
METHODS = ("sgd", "model-averaging", "one-shot-averaging", "bmuf", "easgd")


class FunctionEstimator(CooperatingEstimator):
    """An estimator that minimises the mean of a :class:`~sparkdml.problem.Function` and a ridge."""

    RANGES: ClassVar = {
        **COOPERATION_RANGES,
        "maxIter": (0, math.inf),
        "tol": (0, math.inf),
        "regParam": (0, math.inf),
    }
    #: Values of ``solver`` beside :data:`METHODS`.
    OWN_SOLVERS: ClassVar[tuple[str, ...]] = ("l-bfgs",)

    def checkParams(self) -> None:
        super().checkParams()
        self._check_solver(self.getOrDefault("solver"))

    def _check_solver(self, solver: str) -> None:
        known = (*self.OWN_SOLVERS, *METHODS)
        if solver in cooperation.SOLVERS and solver not in METHODS:
            raise ValueError(
                f"solver='{solver}' is for margins that are linear in the coefficients, which these are not; use one "
                f"of {', '.join(known)}"
            )
        if solver not in known:
            raise ValueError(f"solver='{solver}' is not known; it can be {', '.join(known)}")
        self._check_used(solver)
        if solver in METHODS:
            optimizer = self.getOrDefault("optimizer")
            if optimizer in cooperation.VARIANCE_REDUCED:
                raise ValueError(
                    f"optimizer='{optimizer}' is for margins that are linear in the coefficients, which these are not; "
                    f"use one of {', '.join(STEPS)}"
                )
            self._check_method()
        elif self.getOrDefault("codec") != cooperation.EXACT:
            raise ValueError(
                f"codec='{self.getOrDefault('codec')}' needs a solver of steps, such as sgd or model-averaging, and "
                f"solver is '{solver}'; set that, or codec='{cooperation.EXACT}'"
            )

    @abstractmethod
    def _function(self, dataset: Dataset) -> Any:
        """The :class:`~sparkdml.problem.Function` over rows of ``dataset``."""

    @abstractmethod
    def _start(self, function: Any) -> np.ndarray:
        """Where its parameters start, (size,)."""

    def _check_rows(self, dataset: Dataset) -> None:
        """Raise ValueError for rows that the function cannot take."""

    def _minimised(self, given: Prepared) -> tuple[Function, np.ndarray, FitReport]:
        """The function, the flat vector of the answer, and the report."""
        for dataset in (given.dataset, given.validation):
            if dataset is not None:
                self._check_rows(dataset)
        function = self._function(given.dataset)
        problem = FunctionProblem(function, given.dataset.totals.weight_sum, self.getOrDefault("regParam"))
        name = f"{self.getOrDefault('solver')}: asked for"
        state, report = self._run(self._algorithm(), problem, self._start(function), given, name)
        return function, state.best, report

    def _algorithm(self) -> Algorithm[Any]:
        if self.getOrDefault("solver") == "l-bfgs":
            return LBFGS(self.getOrDefault("maxIter"), self.getOrDefault("tol"))
        return self._plan().algorithm()
