"""Steps along the gradient, with and without momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparkdml.optim.steps.base import Slots, Step, check_share
from sparkdml.optim.steps.proximal import Proximal


@dataclass(frozen=True)
class SGD(Step):
    """``x <- prox(x - eta g, eta)``.

    Convex: converges with decreasing steps (Robbins & Monro, "A stochastic approximation method", 1951); non-convex:
    to stationary points. Not for features of very unlike scale or frequency: take an adaptive rule.
    """

    rests: ClassVar[bool] = True

    def slots(self, size: int) -> Slots:
        return ()

    def update(
        self, parameter: np.ndarray, gradient: np.ndarray, slots: Slots, step_size: float, count: int, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        return prox(parameter - step_size * gradient, step_size), ()

    def rest(
        self, parameter: np.ndarray, slots: Slots, step_size: float, count: int, missed: np.ndarray, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        return prox.repeated(parameter, step_size, missed), ()


@dataclass(frozen=True)
class Momentum(Step):
    """``u <- mu u + g``, ``x <- prox(x - eta u, eta / (1 - mu))``.

    Polyak, "Some methods of speeding up the convergence of iteration methods" (1964). Convex: as SGD with steps of
    ``eta / (1 - mu)``; not where gradients are very noisy, since the noise is carried on too.
    """

    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_share("momentum", self.momentum)

    def slots(self, size: int) -> Slots:
        return (np.zeros(size),)

    def update(
        self, parameter: np.ndarray, gradient: np.ndarray, slots: Slots, step_size: float, count: int, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        velocity = self.momentum * slots[0] + gradient
        return prox(parameter - step_size * velocity, step_size / (1.0 - self.momentum)), (velocity,)

    def rest(
        self, parameter: np.ndarray, slots: Slots, step_size: float, count: int, missed: np.ndarray, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        return prox.repeated(parameter, step_size / (1.0 - self.momentum), missed), slots


@dataclass(frozen=True)
class Nesterov(Step):
    """``u <- mu u + g``, ``x <- prox(x - eta (g + mu u), eta / (1 - mu))``: momentum that looks ahead.

    Nesterov (1983), in the form of Sutskever et al., "On the importance of initialization and momentum in deep
    learning" (2013). Convex, non-convex and when not to use it: as :class:`Momentum`; it stands larger steps.
    """

    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_share("momentum", self.momentum)

    def slots(self, size: int) -> Slots:
        return (np.zeros(size),)

    def update(
        self, parameter: np.ndarray, gradient: np.ndarray, slots: Slots, step_size: float, count: int, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        velocity = self.momentum * slots[0] + gradient
        ahead = gradient + self.momentum * velocity
        return prox(parameter - step_size * ahead, step_size / (1.0 - self.momentum)), (velocity,)

    def rest(
        self, parameter: np.ndarray, slots: Slots, step_size: float, count: int, missed: np.ndarray, prox: Proximal
    ) -> tuple[np.ndarray, Slots]:
        return prox.repeated(parameter, step_size / (1.0 - self.momentum), missed), slots
