"""Follow the proximally regularised leader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparkdml.optim.steps.base import Slots, Step
from sparkdml.optim.steps.proximal import Proximal


@dataclass(frozen=True)
class FTRL(Step):
    """``x_t+1 = argmin_x sum_s g_s'x + t h(x) + 1/2 sum_s sigma_s (x - x_s)^2``, in closed form, for the penalty h.

    ``sigma_1 + ... + sigma_t = Q_t = (beta + sqrt(n_t)) / eta`` with n the sum of g^2. With z = sum_s g_s - sigma_s x_s
    this is ``prox(-z / Q_t, t / Q_t)``: the penalty counts once for every gradient, so that the optimum of loss +
    penalty is reached, and zeros are exact from the first step on.

    McMahan et al., "Ad click prediction: a view from the trenches" (2013), where h is counted once in all; as here in
    McMahan, "Follow-the-regularized-leader and mirror descent" (2011). Convex regret as AdaGrad's; meant for many
    sparse features. Not for objectives that change, nor without convexity.
    """

    rests: ClassVar[bool] = True

    beta: float = 1.0

    def __post_init__(self) -> None:
        if not self.beta > 0.0:
            raise ValueError(f"beta={self.beta}, but it must be more than 0: the first steps are up to eta / beta long")

    def slots(self, size: int) -> Slots:
        return np.zeros(size), np.zeros(size)

    def update(
        self, parameter: np.ndarray, gradient: np.ndarray, slots: Slots, step_size: float, count: int, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        z, squares = slots
        before = (self.beta + np.sqrt(squares)) / step_size
        z = self._anchored(parameter, z, before, count - 1, prox)
        squares = squares + gradient * gradient
        after = (self.beta + np.sqrt(squares)) / step_size
        z = z + gradient - (after - before) * parameter
        return prox(-z / after, count / after), (z, squares)

    def rest(
        self, parameter: np.ndarray, slots: Slots, step_size: float, count: int, missed: np.ndarray, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        z, squares = slots
        curvature = (self.beta + np.sqrt(squares)) / step_size
        z = self._anchored(parameter, z, curvature, count - missed, prox)
        return prox(-z / curvature, count / curvature), (z, squares)

    @staticmethod
    def _anchored(
        parameter: np.ndarray, z: np.ndarray, curvature: np.ndarray, count: np.ndarray | int, prox: Proximal
    ) -> np.ndarray:
        """The z that ``parameter`` follows from: z itself, unless others have moved the parameters since."""
        return -curvature * prox.origin(parameter, count / curvature, -z / curvature)
