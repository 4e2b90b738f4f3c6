"""The contract of a step rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from sparkdml.optim.steps.proximal import Proximal

#: Arrays that a rule keeps for each coordinate, each of shape (n,).
Slots = tuple[np.ndarray, ...]


class Step(ABC):
    """How a gradient of the loss changes the parameters; the penalty comes in as a proximal step.

    The proximal step has the rate by which the rule, at rest, moves a coordinate for each unit of its gradient. Then
    ``x = prox(x - rate * gradient(x), rate)`` where nothing moves, and that is the optimality condition of loss +
    penalty; with any other rate the rule would solve for another strength of the penalty.

    Rules are pure: arrays that are given stay as they are, and results may share them where nothing changed.
    """

    #: Whether steps along gradients of 0 do what :meth:`rest` does, to rounding: not where averages decay in them.
    rests: ClassVar[bool] = False

    @abstractmethod
    def slots(self, size: int) -> Slots:
        """The slots before the first step, for ``size`` coordinates."""

    @abstractmethod
    def update(
        self,
        parameter: np.ndarray,
        gradient: np.ndarray,
        slots: Slots,
        step_size: float,
        count: int,
        prox: Proximal,
    ) -> tuple[np.ndarray, Slots]:
        """The parameters and slots after a step; ``parameter`` and ``gradient`` have shape (n,).

        ``count`` numbers the steps since :meth:`slots`, from 1.
        """

    @abstractmethod
    def rest(
        self,
        parameter: np.ndarray,
        slots: Slots,
        step_size: float,
        count: int,
        missed: np.ndarray,
        prox: Proximal,
    ) -> tuple[np.ndarray, Slots]:
        """The same after ``missed`` (n,) steps in which a coordinate had gradient 0, the last of them step ``count``.

        Moving averages do not decay in such steps: they are over the steps in which the coordinate occurred.
        """


def adaptive_rate(step_size: float, root: np.ndarray, epsilon: float) -> np.ndarray:
    """``step_size / (root + epsilon)``; plain ``step_size`` where no gradient has come yet (``root`` is 0).

    Dividing by ``epsilon`` alone would let the penalty wipe out a coordinate before its first gradient.
    """
    return np.asarray(step_size / np.where(root > 0.0, root + epsilon, 1.0))


def check_share(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is in [0, 1)."""
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{name}={value}, but it must be at least 0 and less than 1")
