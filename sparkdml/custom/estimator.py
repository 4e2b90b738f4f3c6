"""The estimator of objectives that users write."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pyspark import keyword_only
from pyspark.ml import Estimator as SparkEstimator
from pyspark.ml.param.shared import (
    HasFeaturesCol,
    HasLabelCol,
    HasMaxIter,
    HasPredictionCol,
    HasRegParam,
    HasSolver,
    HasTol,
    HasWeightCol,
)

from sparkdml.custom.libraries import CustomFunction, function_of
from sparkdml.custom.model import ObjectiveModel
from sparkdml.custom.objective import Objective
from sparkdml.custom.trees import flattened
from sparkdml.data.dataset import Dataset
from sparkdml.fit.prepared import Prepared
from sparkdml.function import FunctionEstimator
from sparkdml.params import HasCooperation, HasValidation


class Estimator(
    FunctionEstimator,
    HasValidation,
    HasCooperation,
    HasFeaturesCol,
    HasLabelCol,
    HasPredictionCol,
    HasWeightCol,
    HasRegParam,
    HasMaxIter,
    HasTol,
    HasSolver,
    SparkEstimator[ObjectiveModel],
):
    """Trains an :class:`~sparkdml.custom.Objective`: ``F = 1/W * sum_i w_i loss_i(params) + regParam / 2 |params|^2``.

    Parameters: ``featuresCol`` (vectors, or arrays of numbers) or ``featuresCols``, ``labelCol`` (numbers of any kind),
    ``weightCol``, ``predictionCol``, ``maxIter``, ``tol``, ``regParam``, ``validationIndicatorCol``, ``patience``,
    ``checkpointDir``, ``checkpointInterval``, ``placement``, ``progress``; ``solver``: ``l-bfgs``, or a method by which
    workers cooperate, with the parameters of :class:`~sparkdml.params.HasCooperation`: ``sgd``, ``model-averaging``,
    ``one-shot-averaging``, ``bmuf``, ``easgd``. ``setInitialModel`` and ``setOnRound``.

    The objective is no parameter: it is not saved with the estimator, and is set again after loading.

    Raises
    ------
    ValueError, TypeError : a parameter or objective that cannot be honoured, rows that cannot be trained on.
    WorkerError or Spark's : what the objective raises on a worker, with its traceback.
    """

    __module__ = "sparkdml"  # where users find it, and what is saved with it

    SPARK_PARAMS: ClassVar[dict[str, str]] = {}
    CLASSES = False

    _objective: Objective | None = None
    _input_kwargs: dict[str, Any]

    @keyword_only
    def __init__(
        self,
        *,
        objective: Objective | None = None,
        featuresCol: str = "features",
        labelCol: str = "label",
        predictionCol: str = "prediction",
        weightCol: str | None = None,
        featuresCols: list[str] | None = None,
        maxIter: int = 100,
        tol: float = 1e-6,
        regParam: float = 0.0,
        solver: str = "l-bfgs",
        seed: int | None = None,
        placement: str = "auto",
        progress: bool = False,
        validationIndicatorCol: str | None = None,
        patience: int = 5,
        checkpointDir: str | None = None,
        checkpointInterval: int = 10,
        **cooperation: Any,
    ) -> None:
        super().__init__()
        self._setDefault(
            maxIter=100, tol=1e-6, regParam=0.0, solver="l-bfgs", patience=5, stepSize=0.03, predictionCol="prediction"
        )
        given = dict(self._input_kwargs)
        self.setObjective(given.pop("objective", None))
        self._set(**given)

    @keyword_only
    def setParams(self, **kwargs: Any) -> Estimator:
        """Sets any of the constructor's parameters, but the objective."""
        self._set(**kwargs)
        return self

    def setObjective(self, objective: Objective | None) -> Estimator:
        """What to train."""
        if objective is not None and not isinstance(objective, Objective):
            raise TypeError(
                f"objective is a {type(objective).__name__}; it must be a sparkdml.Objective, which holds the loss "
                "function and where its parameters start"
            )
        self._objective = objective
        return self

    def checkParams(self) -> None:
        if self._objective is None:
            raise ValueError("objective is not set; give a sparkdml.Objective by objective=... or setObjective")
        super().checkParams()

    def _function(self, dataset: Dataset) -> CustomFunction:
        assert self._objective is not None
        return function_of(self._objective, dataset.features)

    def _start(self, function: Any) -> np.ndarray:
        assert self._objective is not None
        model = self._initial_model
        if model is None:
            return self._objective.start
        arrays = flattened(model.parameters)
        shapes = {path: array.shape for path, array in arrays.items()}
        if shapes != self._objective.shapes:
            raise ValueError(
                f"the initial model has parameters of shapes {shapes}, and the objective {self._objective.shapes}; "
                "give a model of such an objective"
            )
        return np.concatenate([array.ravel() for array in arrays.values()])

    def _train(self, given: Prepared) -> ObjectiveModel:
        assert self._objective is not None
        _, point, report = self._minimised(given)
        model = ObjectiveModel(self._objective, point, given.dataset.features)
        model._resetUid(self.uid)
        model.report = report
        return self._copyValues(model)
