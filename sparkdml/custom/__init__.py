"""Models of one's own: a function of parameters and rows, trained by any placement as if on one machine."""

from sparkdml.custom.estimator import Estimator
from sparkdml.custom.model import ObjectiveModel
from sparkdml.custom.objective import Batch, Objective

__all__ = ["Batch", "Estimator", "Objective", "ObjectiveModel"]
