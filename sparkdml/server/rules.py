"""What a push does to the values that it names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdml.optim.steps import STEPS, Proximal, Step
from sparkdml.optim.steps.base import Slots


@dataclass(frozen=True)
class Moment:
    """``count`` numbers the pushes to the table, from 1; ``step_size`` is that of the push, or else the rule's."""

    count: int
    step_size: float


class Rule(ABC):
    """Values and updates have shape (n, c), slots float64 too; all are changed in place.

    ``lazy``: rows that a push does not name change too, and are brought up to date when next read or pushed to.
    """

    lazy: bool = False
    step_size: float = 1.0

    def slots(self, rows: int, width: int) -> Slots:
        """Those of new rows, each (rows, width)."""
        return ()

    @abstractmethod
    def apply(self, values: np.ndarray, update: np.ndarray, slots: Slots, moment: Moment) -> None: ...

    def rest(self, values: np.ndarray, slots: Slots, missed: np.ndarray, moment: Moment) -> None:
        """What ``missed`` (n,) pushes that did not name a row have done to it, the last of them ``moment.count``."""
        raise NotImplementedError("only lazy rules leave rows behind")


class Add(Rule):
    """``values += update``."""

    def apply(self, values: np.ndarray, update: np.ndarray, slots: Slots, moment: Moment) -> None:
        values += update


class Stepped(Rule):
    """A step of ``sparkdml.optim.steps`` along the update as a gradient, in float64.

    ``l2 / 2 x^2 + l1 |x|`` is the penalty of every value; with one, the rule is lazy. The gradient is the update over
    ``divisor``.
    """

    def __init__(self, step: Step, step_size: float, l1: float, l2: float, divisor: float) -> None:
        self.step, self.step_size, self.l1, self.l2, self.divisor = step, step_size, l1, l2, divisor
        self.lazy = l1 > 0.0 or l2 > 0.0

    def slots(self, rows: int, width: int) -> Slots:
        return tuple(slot.reshape(rows, width) for slot in self.step.slots(rows * width))

    def apply(self, values: np.ndarray, update: np.ndarray, slots: Slots, moment: Moment) -> None:
        gradient = update.astype(np.float64, copy=False).reshape(-1) / self.divisor
        flat, kept = self._flat(values, slots)
        prox = self._prox(flat.size)
        self._store(values, slots, self.step.update(flat, gradient, kept, moment.step_size, moment.count, prox))

    def rest(self, values: np.ndarray, slots: Slots, missed: np.ndarray, moment: Moment) -> None:
        flat, kept = self._flat(values, slots)
        times = np.repeat(missed, values.shape[1])
        prox = self._prox(flat.size)
        self._store(values, slots, self.step.rest(flat, kept, moment.step_size, moment.count, times, prox))

    def _prox(self, size: int) -> Proximal:
        return Proximal(np.full(size, self.l2), np.full(size, self.l1), 0.0, np.zeros(1), 0)

    @staticmethod
    def _flat(values: np.ndarray, slots: Slots) -> tuple[np.ndarray, Slots]:
        return values.astype(np.float64, copy=False).reshape(-1), tuple(slot.reshape(-1) for slot in slots)

    @staticmethod
    def _store(values: np.ndarray, slots: Slots, result: tuple[np.ndarray, Slots]) -> None:
        values[:] = result[0].reshape(values.shape)
        for slot, new in zip(slots, result[1], strict=True):
            slot[:] = new.reshape(slot.shape)


def rule(
    name: str, step_size: float = 1.0, l1: float = 0.0, l2: float = 0.0, divisor: float = 1.0, **options: Any
) -> Rule:
    """``add``, or one of ``sparkdml.optim.steps.STEPS`` with its options. Raises ValueError."""
    if name == "add":
        if options or l1 or l2 or step_size != 1.0:
            raise ValueError("the rule 'add' has no options, step_size, l1 or l2")
        return Add()
    if name not in STEPS:
        raise ValueError(f"rule '{name}' is not known; take one of add, {', '.join(STEPS)}")
    if not (step_size > 0.0 and divisor > 0.0 and l1 >= 0.0 and l2 >= 0.0):
        given = f"step_size={step_size}, divisor={divisor}, l1={l1}, l2={l2}"
        raise ValueError(f"{given}; the first two must be more than 0, the others not less")
    try:
        return Stepped(STEPS[name](**options), float(step_size), float(l1), float(l2), float(divisor))
    except TypeError as error:
        raise ValueError(f"rule '{name}' with {options}: {error}") from None
