"""Losses, pointwise in the margin. See :class:`sparkdml.losses.base.Loss`."""

from sparkdml.losses.base import Loss
from sparkdml.losses.logistic import Logistic
from sparkdml.losses.softmax import Softmax

__all__ = ["Logistic", "Loss", "Softmax"]
