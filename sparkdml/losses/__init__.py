"""Losses, pointwise in the margin. See :class:`sparkdml.losses.base.Loss`."""

from sparkdml.losses.base import Loss
from sparkdml.losses.hinge import Hinge
from sparkdml.losses.huber import Huber
from sparkdml.losses.logistic import Logistic
from sparkdml.losses.softmax import Softmax
from sparkdml.losses.squared import Squared

__all__ = ["Hinge", "Huber", "Logistic", "Loss", "Softmax", "Squared"]
