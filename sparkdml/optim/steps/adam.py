"""Adam, with and without a weight decay of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sparkdml.optim.steps.base import Slots, Step, adaptive_rate, check_share
from sparkdml.optim.steps.proximal import Proximal
from sparkdml.resources.compiled import compiled


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
        moved, rate, mean, squares = (np.empty_like(parameter) for _ in range(4))
        _average(slots[0], gradient, 1, self.beta1, mean)
        _average(slots[1], gradient, 2, self.beta2, squares)
        debias = (1.0 - self.beta1**count, 1.0 - self.beta2**count)
        _move(parameter, mean, squares, debias, float(step_size), self.epsilon, moved, rate)
        return prox(moved, rate), (mean, squares)

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


@compiled()
def _average(old, gradient, power, share, result):
    """``share * old + (1 - share) * g^power``, power 1 or 2."""
    for i in range(old.shape[0]):
        part = (1.0 - share) * gradient[i]
        result[i] = share * old[i] + (part * gradient[i] if power == 2 else part)


@compiled()
def _move(parameter, mean, square, debias, step_size, epsilon, moved, rate):
    """One pass over memory: for wide networks, temporaries cost many times the arithmetic."""
    for i in range(parameter.shape[0]):
        root = math.sqrt(square[i] / debias[1])
        rate[i] = step_size / (root + epsilon if root > 0.0 else 1.0)
        moved[i] = parameter[i] - rate[i] * mean[i] / debias[0]
