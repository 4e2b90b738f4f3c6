"""The slope of one row's loss, compiled: for kernels that step after every row."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparkdml.losses.base import Loss
from sparkdml.losses.hinge import Hinge
from sparkdml.losses.logistic import Logistic
from sparkdml.losses.softmax import Softmax
from sparkdml.losses.squared import Squared
from sparkdml.resources.compiled import compiled

_LOGISTIC, _SQUARED, _HINGE, _SOFTMAX = range(4)


@dataclass(frozen=True)
class Slope:
    """Which loss, and its scale, as :func:`to_slopes` takes them."""

    kind: int
    scale: float = 1.0


def slope_of(loss: Loss) -> Slope:
    """Raises ValueError for a loss whose slopes are not compiled here."""
    if isinstance(loss, Logistic):
        return Slope(_LOGISTIC)
    if isinstance(loss, Squared):
        return Slope(_SQUARED, loss.scale)
    if isinstance(loss, Hinge):
        return Slope(_HINGE)
    if isinstance(loss, Softmax):
        return Slope(_SOFTMAX)
    raise ValueError(
        f"steps after every row know the slopes of Logistic, Squared, Hinge and Softmax, not of {type(loss).__name__}; "
        "use one of these losses, or another solver"
    )


@compiled()
def to_slopes(kind, scale, label, weight, margins):
    """Overwrite one row's ``margins`` (K,) with ``weight * d loss / d margin``."""
    margin = margins[0]
    if kind == _LOGISTIC:
        small = math.exp(-abs(margin))
        share = 1.0 / (1.0 + small)
        margins[0] = weight * ((share if margin >= 0.0 else small * share) - label)
    elif kind == _SQUARED:
        margins[0] = weight * scale * (margin - label)
    elif kind == _HINGE:
        sign = 2.0 * label - 1.0
        margins[0] = -weight * sign if sign * margin < 1.0 else 0.0
    else:
        top = margins[0]
        for k in range(1, margins.shape[0]):
            top = max(top, margins[k])
        mass = 0.0
        for k in range(margins.shape[0]):
            margins[k] = math.exp(margins[k] - top)
            mass += margins[k]
        for k in range(margins.shape[0]):
            margins[k] *= weight / mass
        margins[int(label)] -= weight
