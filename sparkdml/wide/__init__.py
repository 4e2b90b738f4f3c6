"""Models too wide for one machine: their coefficients stay in shards, and rows travel to them."""

from sparkdml.wide.factorization_models import DistributedFMClassificationModel, DistributedFMRegressionModel
from sparkdml.wide.linear_models import (
    DistributedLinearRegressionModel,
    DistributedLinearSVCModel,
    DistributedLogisticRegressionModel,
)
from sparkdml.wide.model import DistributedModel

__all__ = [
    "DistributedFMClassificationModel",
    "DistributedFMRegressionModel",
    "DistributedLinearRegressionModel",
    "DistributedLinearSVCModel",
    "DistributedLogisticRegressionModel",
    "DistributedModel",
]
