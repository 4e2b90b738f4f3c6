"""What is done about gradients at points that others have moved on from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from sparkdml.optim.steps.base import Slots

AS_IT_COMES, REVISION = "as-it-comes", "adaptive-revision"


class Stale(ABC):
    """Values, gradients and slots have shape (n, c); slots are changed in place.

    ``workers`` are numbered from 0; a worker's gradient is at the values that it read last.
    """

    #: Whether it must be told what each worker is given.
    reads: bool = False
    #: How many of the slots, the first ones, say nothing about single workers.
    lasting: int = 0

    def slots(self, rows: int, width: int) -> Slots:
        """Those of new rows, each (rows, width)."""
        return ()

    def read(self, values: np.ndarray, slots: Slots, worker: int) -> None:  # noqa: B027 - most need not know
        """A worker is given these values."""

    @abstractmethod
    def corrected(self, values: np.ndarray, gradient: np.ndarray, slots: Slots, worker: int) -> np.ndarray:
        """The gradient to step along."""

    def shortened(self, step_size: float, count: int, delay: int) -> float:
        """The step size of push ``count``, before which others moved the values ``delay`` times since the read."""
        return step_size


class AsItComes(Stale):
    """The gradient is taken as if it were at the present values."""

    def corrected(self, values: np.ndarray, gradient: np.ndarray, slots: Slots, worker: int) -> np.ndarray:
        return gradient


class Compensated(Stale):
    """``g + lambda g * g * (w - w_read)``: the gradient at the present values to first order, with the diagonal of
    ``g g'`` for the Hessian.

    ``adaptive``: lambda is divided by the root of ``v <- decay v + (1 - decay) g^2``.

    Zheng et al., "Asynchronous stochastic gradient descent with delay compensation" (2017): DC-ASGD-c with 0.04,
    DC-ASGD-a with 2 and a decay of 0.95.
    """

    reads = True

    def __init__(self, workers: int, strength: float, adaptive: bool, decay: float = 0.95) -> None:
        if not strength > 0.0:
            raise ValueError(f"the strength of delay compensation is {strength}; it must be more than 0")
        self._workers, self._strength, self._adaptive, self._decay = workers, strength, adaptive, decay
        self.lasting = int(adaptive)

    def slots(self, rows: int, width: int) -> Slots:
        # NaN: not read yet, or by a worker of a server that this one took over from
        read = tuple(np.full((rows, width), np.nan) for _ in range(self._workers))
        return (np.zeros((rows, width)), *read) if self._adaptive else read

    def read(self, values: np.ndarray, slots: Slots, worker: int) -> None:
        slots[self.lasting + worker][:] = values

    def corrected(self, values: np.ndarray, gradient: np.ndarray, slots: Slots, worker: int) -> np.ndarray:
        squares = gradient * gradient
        strength: np.ndarray | float = self._strength
        if self._adaptive:
            average = slots[0]
            average *= self._decay
            average += (1.0 - self._decay) * squares
            strength = self._strength / (np.sqrt(average) + 1e-7)
        moved = np.nan_to_num(values - slots[self.lasting + worker], copy=False, nan=0.0)
        return np.asarray(gradient + strength * squares * moved)


class Shortened(Stale):
    """Steps of ``step_size / sqrt((t + tau) / workers)`` at push t of delay tau: the later, the shorter.

    Sra, Yu, Li & Smola, "AdaDelay: Delay adaptive distributed stochastic optimization" (2016).
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def corrected(self, values: np.ndarray, gradient: np.ndarray, slots: Slots, worker: int) -> np.ndarray:
        return gradient

    def shortened(self, step_size: float, count: int, delay: int) -> float:
        return step_size / math.sqrt(max((count + delay) / self._workers, 1.0))


def stale_way(text: str, workers: int) -> Stale:
    """``as-it-comes``, ``compensated:LAMBDA``, ``adaptively-compensated:LAMBDA`` or ``adadelay``. Raises ValueError.

    ``adaptive-revision`` is more than a correction of gradients, and a rule of its own
    (:class:`~.revision.AdaptiveRevision`).
    """
    name, colon, number = text.partition(":")
    try:
        if text in (AS_IT_COMES, "adadelay"):
            return AsItComes() if text == AS_IT_COMES else Shortened(workers)
        if name in ("compensated", "adaptively-compensated") and colon:
            return Compensated(workers, float(number), name != "compensated")
    except ValueError as error:
        raise ValueError(f"staleGradients='{text}': {error}") from None
    raise ValueError(
        f"staleGradients='{text}' is not known; it can be as-it-comes, compensated:LAMBDA, "
        f"adaptively-compensated:LAMBDA, adadelay or, with optimizer='adagrad', {REVISION}"
    )
