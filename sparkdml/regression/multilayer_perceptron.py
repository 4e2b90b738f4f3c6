"""Feed-forward networks for numbers."""

from __future__ import annotations

from typing import Any, ClassVar

from pyspark import keyword_only
from pyspark.ml.param.shared import HasWeightCol
from pyspark.ml.regression import Regressor

from sparkdml.fit.prepared import Prepared
from sparkdml.network.estimator import NetworkEstimator
from sparkdml.optim.heads import SquaredError
from sparkdml.params import HasCooperation, HasLayers, HasNetwork, HasValidation
from sparkdml.regression.network_model import NetworkRegressionModel


class MultilayerPerceptronRegressor(
    NetworkEstimator, HasValidation, HasCooperation, HasNetwork, HasLayers, HasWeightCol, Regressor
):
    """A feed-forward network of one output: ``F = 1/W * sum_i w_i * (m_i - y_i)^2 / 2 + regParam / 2 * |weights|^2``.

    pyspark has none. Parameters, solvers and errors: as
    :class:`~sparkdml.classification.MultilayerPerceptronClassifier`, but for those of classes. The last of ``layers``
    is 1. Labels are taken as they are: where they are far from 0 or 1 in size, scale them.

    ``fit`` returns :class:`NetworkRegressionModel`.
    """

    __module__ = "sparkdml.regression"  # where users find it, and what is saved with it

    SPARK_PARAMS: ClassVar[dict[str, str]] = {}
    CLASSES = False
    HEAD = SquaredError()

    _input_kwargs: dict[str, Any]

    @keyword_only
    def __init__(
        self,
        *,
        featuresCol: str = "features",
        labelCol: str = "label",
        predictionCol: str = "prediction",
        maxIter: int = 100,
        tol: float = 1e-6,
        seed: int | None = None,
        layers: list[int] | None = None,
        blockSize: int = 128,
        stepSize: float = 0.03,
        solver: str = "l-bfgs",
        initialWeights: Any = None,
        activation: str = "sigmoid",
        dropout: float = 0.0,
        regParam: float = 0.0,
        standardization: bool = False,
        weightCol: str | None = None,
        featuresCols: list[str] | None = None,
        placement: str = "auto",
        progress: bool = False,
        validationIndicatorCol: str | None = None,
        patience: int = 5,
        checkpointDir: str | None = None,
        checkpointInterval: int = 10,
        **cooperation: Any,
    ) -> None:
        super().__init__()
        self._setDefault(patience=5, stepSize=0.03)
        self._set(**self._input_kwargs)

    @keyword_only
    def setParams(self, **kwargs: Any) -> MultilayerPerceptronRegressor:
        """Sets any of the constructor's parameters."""
        self._set(**kwargs)
        return self

    def checkParams(self) -> None:
        super().checkParams()
        layers = list(self.getOrDefault("layers"))
        if layers[-1] != 1:
            raise ValueError(f"layers={layers} ends with {layers[-1]} units; a regressor has one output: end it with 1")

    def _train(self, given: Prepared) -> NetworkRegressionModel:
        weights, report = self._trained(given)
        model = NetworkRegressionModel(self._network(), weights)
        model._resetUid(self.uid)
        model.report = report
        self._copyValues(model)
        return model
