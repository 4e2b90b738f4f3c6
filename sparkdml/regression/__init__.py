"""Regressors with the names and parameters of ``pyspark.ml.regression``.

Names that are not ours come from there, so that one changed import is enough.
"""

from typing import Any

from pyspark.ml import regression as _spark

from sparkdml.regression.fm_regressor import FMRegressionModel, FMRegressor
from sparkdml.regression.generalized_linear_regression import (
    GeneralizedLinearRegression,
    GeneralizedLinearRegressionModel,
)
from sparkdml.regression.linear_regression import LinearRegression, LinearRegressionModel
from sparkdml.regression.multilayer_perceptron import MultilayerPerceptronRegressor
from sparkdml.regression.network_model import NetworkRegressionModel
from sparkdml.wide import DistributedFMRegressionModel, DistributedLinearRegressionModel

__all__ = [
    "FMRegressionModel",
    "FMRegressor",
    "DistributedFMRegressionModel",
    "DistributedLinearRegressionModel",
    "GeneralizedLinearRegression",
    "GeneralizedLinearRegressionModel",
    "LinearRegression",
    "LinearRegressionModel",
    "MultilayerPerceptronRegressor",
    "NetworkRegressionModel",
]


def __getattr__(name: str) -> Any:
    return getattr(_spark, name)
