"""Adam, with and without a weight decay of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdml.optim.steps.base import Slots, Step, adaptive_rate, check_share
from sparkdml.optim.steps.proximal import Proximal


@dataclass(frozen=True)
class Adam(Step):
    """``m`` and ``v`` average g and g^2 without bias; ``r = eta / (sqrt(v) + epsilon)``, ``x <- prox(x - r m, r)``.

    Kingma & Ba, "Adam: A method for stochastic optimization" (2015). Convex guarantees need a decreasing eta, and fail
    for some problems even then (Reddi, Kale & Kumar, 2018). Not where an exact optimum is wanted at a constant eta.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        check_share("beta1", self.beta1)
        check_share("beta2", self.beta2)

    def slots(self, size: int) -> Slots:
        return np.zeros(size), np.zeros(size)

    def update(
        self, parameter: np.ndarray, gradient: np.ndarray, slots: Slots, step_size: float, count: int, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        mean = self.beta1 * slots[0] + (1.0 - self.beta1) * gradient
        squares = self.beta2 * slots[1] + (1.0 - self.beta2) * gradient * gradient
        rate = self._rate(squares, step_size, count)
        return prox(parameter - rate * mean / (1.0 - self.beta1**count), rate), (mean, squares)

    def rest(
        self, parameter: np.ndarray, slots: Slots, step_size: float, count: int, missed: np.ndarray, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        return prox.repeated(parameter, self._rate(slots[1], step_size, max(count, 1)), missed), slots

    def _rate(self, squares: np.ndarray, step_size: float, count: int) -> np.ndarray:
        return adaptive_rate(step_size, np.sqrt(squares / (1.0 - self.beta2**count)), self.epsilon)


@dataclass(frozen=True)
class AdamW(Step):
    """:class:`Adam` from ``(1 - eta weight_decay) x``; free coordinates (intercepts) do not decay.

    Loshchilov & Hutter, "Decoupled weight decay regularization" (2019). The decay comes on top of the penalty and is no
    part of the objective: with it the optimum is missed, so not where a penalty's exact optimum is wanted.
    """

    weight_decay: float = 0.0
    adam: Adam = Adam()

    def slots(self, size: int) -> Slots:
        return self.adam.slots(size)

    def update(
        self, parameter: np.ndarray, gradient: np.ndarray, slots: Slots, step_size: float, count: int, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        decayed = prox.shrunk(parameter, step_size * self.weight_decay)
        return self.adam.update(decayed, gradient, slots, step_size, count, prox)

    def rest(
        self, parameter: np.ndarray, slots: Slots, step_size: float, count: int, missed: np.ndarray, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        """Without a gradient there is no decay either, as with the moving averages."""
        return self.adam.rest(parameter, slots, step_size, count, missed, prox)
