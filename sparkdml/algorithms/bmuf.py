"""Model averaging with momentum across rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparkdml.algorithms.local_training import LocalState
from sparkdml.algorithms.model_averaging import ModelAveraging, average
from sparkdml.core import Update
from sparkdml.problem import Differentiable


@dataclass(frozen=True)
class BMUFState(LocalState):
    """With the last change Delta of the global model; the round started ``ahead`` of that model."""

    velocity: np.ndarray | None = None
    ahead: np.ndarray | None = None


@dataclass(frozen=True)
class BMUF(ModelAveraging):
    """Blockwise model-update filtering: ``Delta_t = momentum * Delta_{t-1} + rate * G_t``, ``w_t = w_{t-1} + Delta_t``.

    ``G_t`` is the average of the workers' models less the point they started from: that is ``w_{t-1}``, or with
    ``nesterov`` ``w_{t-1} + momentum * Delta_{t-1}``. ``momentum`` None stands for ``1 - 1 / K``, K workers with rows,
    which makes up for averaging K models that each saw 1 / K of the rows.

    Chen & Huo, *Scalable Training of Deep Learning Machines by Incremental Block Training with Intra-Block Parallel
    Optimization and Blockwise Model-Update Filtering* (2016). No proof in the paper; as :class:`ModelAveraging` it
    rests where averaging does. Not for local steps that are already as long as they may be: it lengthens them.
    """

    momentum: float | None = None
    rate: float = 1.0
    nesterov: bool = True
    mixes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.momentum is not None and not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"momentum={self.momentum:g}: block momentum is at least 0 and below 1")
        if self.rate <= 0.0:
            raise ValueError(f"rate={self.rate:g}: the block learning rate must be above 0 (1 is plain averaging)")

    def init(self, problem: Differentiable, coef: np.ndarray) -> BMUFState:
        start = super().init(problem, coef)
        return BMUFState(start.coef, start.best, velocity=np.zeros_like(coef), ahead=np.zeros_like(coef))

    def _agree(self, state: Any, total: Update) -> tuple[Any, np.ndarray]:
        momentum = 1.0 - 1.0 / float(total["workers"]) if self.momentum is None else self.momentum
        velocity = momentum * state.velocity + self.rate * (average(state.point, total) - state.point)
        ahead = momentum * velocity if self.nesterov else np.zeros_like(velocity)
        point = state.point - state.ahead + velocity + ahead
        return replace(state, velocity=velocity, ahead=ahead), point
