"""Steps that each coordinate's own gradients scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparkdml.optim.steps.base import Slots, Step, adaptive_rate, check_share
from sparkdml.optim.steps.proximal import Proximal


@dataclass(frozen=True)
class AdaGrad(Step):
    """``v <- v + g^2``, ``r = eta / (sqrt(v) + epsilon)``, ``x <- prox(x - r g, r)``.

    Duchi, Hazan & Singer, "Adaptive subgradient methods" (2011): convex regret of the best fixed scaling; rare features
    keep long steps. Not for long runs on objectives that change: steps only ever shrink.
    """

    rests: ClassVar[bool] = True

    epsilon: float = 1e-10

    def slots(self, size: int) -> Slots:
        return (np.zeros(size),)

    def update(
        self, parameter: np.ndarray, gradient: np.ndarray, slots: Slots, step_size: float, count: int, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        squares = slots[0] + gradient * gradient
        rate = adaptive_rate(step_size, np.sqrt(squares), self.epsilon)
        return prox(parameter - rate * gradient, rate), (squares,)

    def rest(
        self, parameter: np.ndarray, slots: Slots, step_size: float, count: int, missed: np.ndarray, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        rate = adaptive_rate(step_size, np.sqrt(slots[0]), self.epsilon)
        return prox.repeated(parameter, rate, missed), slots


@dataclass(frozen=True)
class RMSProp(Step):
    """``v <- decay v + (1 - decay) g^2``, ``r = eta / (sqrt(v) + epsilon)``, ``x <- prox(x - r g, r)``.

    Tieleman & Hinton, *Neural networks for machine learning*, lecture 6.5 (2012). No guarantee even for convex losses
    unless eta decreases. Not with a constant eta where an exact optimum is wanted: steps stay about eta long.
    """

    decay: float = 0.9
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        check_share("decay", self.decay)

    def slots(self, size: int) -> Slots:
        return (np.zeros(size),)

    def update(
        self, parameter: np.ndarray, gradient: np.ndarray, slots: Slots, step_size: float, count: int, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        squares = self.decay * slots[0] + (1.0 - self.decay) * gradient * gradient
        rate = adaptive_rate(step_size, np.sqrt(squares), self.epsilon)
        return prox(parameter - rate * gradient, rate), (squares,)

    def rest(
        self, parameter: np.ndarray, slots: Slots, step_size: float, count: int, missed: np.ndarray, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        rate = adaptive_rate(step_size, np.sqrt(slots[0]), self.epsilon)
        return prox.repeated(parameter, rate, missed), slots


@dataclass(frozen=True)
class AdaDelta(Step):
    """``r = eta sqrt(D + epsilon) / sqrt(v + epsilon)``, ``x <- prox(x - r g, r)``; v averages g^2, D changes of x^2.

    Zeiler, "ADADELTA: An adaptive learning rate method" (2012); eta is 1 there, and D is of what the parameters did,
    the proximal step included. No guarantee. Not where the first steps matter: they are about ``sqrt(epsilon)`` long.
    """

    decay: float = 0.95
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        check_share("decay", self.decay)

    def slots(self, size: int) -> Slots:
        return np.zeros(size), np.zeros(size)

    def update(
        self, parameter: np.ndarray, gradient: np.ndarray, slots: Slots, step_size: float, count: int, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        squares = self.decay * slots[0] + (1.0 - self.decay) * gradient * gradient
        rate = self._rate(squares, slots[1], step_size)
        moved = prox(parameter - rate * gradient, rate)
        change = moved - parameter
        return moved, (squares, self.decay * slots[1] + (1.0 - self.decay) * change * change)

    def rest(
        self, parameter: np.ndarray, slots: Slots, step_size: float, count: int, missed: np.ndarray, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        return prox.repeated(parameter, self._rate(slots[0], slots[1], step_size), missed), slots

    def _rate(self, squares: np.ndarray, changes: np.ndarray, step_size: float) -> np.ndarray:
        return np.asarray(step_size * np.sqrt((changes + self.epsilon) / (squares + self.epsilon)))
