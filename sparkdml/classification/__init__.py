"""Classifiers with the names and parameters of ``pyspark.ml.classification``.

Names that are not ours come from there, so that one changed import is enough.
"""

from typing import Any

from pyspark.ml import classification as _spark

from sparkdml.classification.ensemble import LogisticRegressionEnsembleModel
from sparkdml.classification.fm_classifier import FMClassificationModel, FMClassifier
from sparkdml.classification.linear_svc import LinearSVC, LinearSVCModel
from sparkdml.classification.logistic_regression import LogisticRegression, LogisticRegressionModel
from sparkdml.classification.multilayer_perceptron import (
    MultilayerPerceptronClassificationModel,
    MultilayerPerceptronClassifier,
)
from sparkdml.classification.network_model import NetworkClassificationModel
from sparkdml.wide import (
    DistributedFMClassificationModel,
    DistributedLinearSVCModel,
    DistributedLogisticRegressionModel,
)

__all__ = [
    "DistributedFMClassificationModel",
    "DistributedLinearSVCModel",
    "DistributedLogisticRegressionModel",
    "FMClassificationModel",
    "FMClassifier",
    "LinearSVC",
    "LinearSVCModel",
    "LogisticRegression",
    "LogisticRegressionEnsembleModel",
    "LogisticRegressionModel",
    "MultilayerPerceptronClassificationModel",
    "MultilayerPerceptronClassifier",
    "NetworkClassificationModel",
]


def __getattr__(name: str) -> Any:
    return getattr(_spark, name)
