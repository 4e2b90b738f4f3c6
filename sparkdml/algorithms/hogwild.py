"""Passes by threads that share one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparkdml.algorithms.intervals import Interval, Measured
from sparkdml.algorithms.model_averaging import ModelAveraging


@dataclass(frozen=True)
class HogwildAveraging(ModelAveraging):
    """Each worker's threads share its model (:class:`~sparkdml.optim.hogwild.Hogwild`); workers' models are averaged.

    Under the placement ``local`` there is one worker, which has all rows, and so nothing to average. Elsewhere a worker
    has the CPUs of its task; what is said of :class:`ModelAveraging` holds among workers then.
    """

    threaded: ClassVar[bool] = True
    compressible: ClassVar[frozenset[str]] = frozenset()
    mixes: ClassVar[bool] = False


@dataclass(frozen=True)
class Passes(Interval):
    """``most`` rounds of a pass each, then one that asks for the loss alone: a pass more would be thrown away."""

    most: int

    def first(self) -> int:
        return self._of(0)

    def after(self, steps: int, rounds: int, measured: Measured) -> int:
        return self._of(rounds)

    def _of(self, rounds: int) -> int:
        return 0 if rounds < self.most else -1
