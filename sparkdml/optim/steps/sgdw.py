"""Steps along the gradient, with a weight decay of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdml.optim.steps.base import Slots, Step
from sparkdml.optim.steps.proximal import Proximal


@dataclass(frozen=True)
class SGDW(Step):
    """``x <- prox((1 - eta weight_decay) x - eta g, eta)``; free coordinates (intercepts) do not decay.

    Loshchilov & Hutter, "Decoupled weight decay regularization" (2019). A gradient step on loss +
    ``weight_decay / 2 |x|^2``: ``eta weight_decay`` above 2 diverges, where a proximal step never does.
    """

    weight_decay: float = 0.0

    def slots(self, size: int) -> Slots:
        return ()

    def update(
        self, parameter: np.ndarray, gradient: np.ndarray, slots: Slots, step_size: float, count: int, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        decayed = prox.shrunk(parameter, step_size * self.weight_decay)
        return prox(decayed - step_size * gradient, step_size), ()

    def rest(
        self, parameter: np.ndarray, slots: Slots, step_size: float, count: int, missed: np.ndarray, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        """Without a gradient there is no decay either."""
        return prox.repeated(parameter, step_size, missed), ()
