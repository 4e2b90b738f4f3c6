"""What a network is made of."""

from __future__ import annotations

from typing import Any

from pyspark.ml.linalg import Vector
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasBlockSize, HasMaxIter, HasRegParam, HasSolver, HasStandardization, HasTol


class HasNetwork(HasRegParam, HasStandardization):
    """Beyond pyspark's parameters of its multilayer perceptron."""

    activation: Param[str] = Param(
        Params._dummy(),
        "activation",
        "what hidden units make of their margins: sigmoid (Spark's), tanh or relu",
        typeConverter=TypeConverters.toString,
    )
    dropout: Param[float] = Param(
        Params._dummy(),
        "dropout",
        "probability with which a hidden value counts as 0 in a step; solvers of steps only",
        typeConverter=TypeConverters.toFloat,
    )

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(activation="sigmoid", dropout=0.0, regParam=0.0, standardization=False)


class HasLayers(HasMaxIter, HasTol, HasSolver, HasBlockSize):
    """pyspark's parameters of its multilayer perceptron, but for those of classifiers."""

    layers: Param[list[int]] = Param(
        Params._dummy(),
        "layers",
        "how many units each layer has, from the features to the outputs",
        typeConverter=TypeConverters.toListInt,
    )
    initialWeights: Param[Vector] = Param(
        Params._dummy(),
        "initialWeights",
        "the weights to start from",
        typeConverter=TypeConverters.toVector,
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(maxIter=100, tol=1e-6, blockSize=128, stepSize=0.03, solver="l-bfgs")
