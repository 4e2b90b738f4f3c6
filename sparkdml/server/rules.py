"""Rules by name: sums, and the steps of ``sparkdml.optim.steps``."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparkdml.optim.steps import STEPS, Proximal, Step
from sparkdml.optim.steps.base import Slots
from sparkdml.server.revision import AdaptiveRevision
from sparkdml.server.rule import Moment, Rule
from sparkdml.server.stale import AS_IT_COMES, REVISION, Stale, stale_way


class Add(Rule):
    """``values += update``."""

    def apply(self, values: np.ndarray, update: np.ndarray, slots: Slots, moment: Moment) -> None:
        values += update


class Stepped(Rule):
    """A step of ``sparkdml.optim.steps`` along the update as a gradient, in float64.

    ``l2 / 2 x^2 + l1 |x|`` is the penalty of every value; with one, the rule is lazy. The gradient is the update over
    ``divisor``; ``stale`` corrects it.
    """

    def __init__(self, step: Step, step_size: float, l1: float, l2: float, divisor: float, stale: Stale) -> None:
        self.step, self.step_size, self.l1, self.l2, self.divisor = step, step_size, l1, l2, divisor
        self.stale = stale
        self.reads = stale.reads
        self._own = len(step.slots(0))
        self.lasting = self._own + stale.lasting
        self.lazy = l1 > 0.0 or l2 > 0.0

    def slots(self, rows: int, width: int) -> Slots:
        own = tuple(slot.reshape(rows, width) for slot in self.step.slots(rows * width))
        return own + self.stale.slots(rows, width)

    def read(self, values: np.ndarray, slots: Slots, worker: int) -> None:
        self.stale.read(values, slots[self._own :], worker)

    def apply(self, values: np.ndarray, update: np.ndarray, slots: Slots, moment: Moment) -> None:
        gradient, size = update.astype(np.float64, copy=False) / self.divisor, moment.step_size
        if moment.worker is not None:
            gradient = self.stale.corrected(values, gradient, slots[self._own :], moment.worker)
            size = self.stale.shortened(size, moment.count, moment.delay)
        own = slots[: self._own]
        flat, kept = self._flat(values, own)
        prox = self._prox(flat.size)
        self._store(values, own, self.step.update(flat, gradient.reshape(-1), kept, size, moment.count, prox))

    def rest(self, values: np.ndarray, slots: Slots, missed: np.ndarray, moment: Moment) -> None:
        own = slots[: self._own]
        flat, kept = self._flat(values, own)
        times = np.repeat(missed, values.shape[1])
        prox = self._prox(flat.size)
        self._store(values, own, self.step.rest(flat, kept, moment.step_size, moment.count, times, prox))

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
    name: str,
    step_size: float = 1.0,
    l1: float = 0.0,
    l2: float = 0.0,
    divisor: float = 1.0,
    stale: str = AS_IT_COMES,
    workers: int = 1,
    **options: Any,
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
    if stale == REVISION:
        if name != "adagrad":
            raise ValueError(f"stale='{stale}' is a way of 'adagrad', not of '{name}'")
        return AdaptiveRevision(float(step_size), float(l1), float(l2), float(divisor), workers, **options)
    try:
        step, way = STEPS[name](**options), stale_way(stale, workers)
        return Stepped(step, float(step_size), float(l1), float(l2), float(divisor), way)
    except TypeError as error:
        raise ValueError(f"rule '{name}' with {options}: {error}") from None
