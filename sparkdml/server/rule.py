"""The contract of a rule: what a push does to the values that it names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from sparkdml.optim.steps.base import Slots


@dataclass(frozen=True)
class Moment:
    """``count`` numbers the pushes to the table, from 1; ``step_size`` is that of the push, or else the rule's.

    ``worker`` pushes, and others moved the values ``delay`` times since it read them; None: all workers, together.
    """

    count: int
    step_size: float
    worker: int | None = None
    delay: int = 0


class Rule(ABC):
    """Values and updates have shape (n, c), slots float64 too; all are changed in place.

    ``lazy``: rows that a push does not name change too, and are brought up to date when next read or pushed to.
    """

    lazy: bool = False
    #: Whether it is told what each worker is given.
    reads: bool = False
    #: How many of the slots, the first ones, say nothing about single workers; None for all.
    lasting: int | None = None
    step_size: float = 1.0

    def slots(self, rows: int, width: int) -> Slots:
        """Those of new rows, each (rows, width)."""
        return ()

    def read(self, values: np.ndarray, slots: Slots, worker: int) -> None:  # noqa: B027 - most need not know
        """A worker is given these values."""

    @abstractmethod
    def apply(self, values: np.ndarray, update: np.ndarray, slots: Slots, moment: Moment) -> None: ...

    def rest(self, values: np.ndarray, slots: Slots, missed: np.ndarray, moment: Moment) -> None:
        """What ``missed`` (n,) pushes that did not name a row have done to it, the last of them ``moment.count``."""
        raise NotImplementedError("only lazy rules leave rows behind")
