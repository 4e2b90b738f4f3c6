"""How many local steps workers take between two exchanges."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from sparkdml.core import Update

#: One measurement may lengthen an interval by so much: seconds of very few steps say little about many.
MOST_GROWTH = 8.0


@dataclass(frozen=True)
class Measured:
    """Seconds that workers told, summed over workers and over the rounds since the interval last changed.

    ``compute_seconds`` are those of local steps, ``exchange_seconds`` those between two works (the exchange, and
    waiting for others), ``told`` is the number of reports. ``passes`` is how often the last round's steps read a
    worker's rows, averaged over rows.
    """

    compute_seconds: float = 0.0
    exchange_seconds: float = 0.0
    told: float = 0.0
    passes: float = 0.0

    @property
    def ratio(self) -> float:
        """Compute over exchange; NaN before anything is told. At 1, no number of workers makes a fit 2x faster."""
        return self.compute_seconds / self.exchange_seconds if self.exchange_seconds > 0.0 else math.nan

    def heard(self, total: Update) -> Measured:
        """With the sum of one more round's :func:`seconds` and ``passes``, which are weighted by ``weight``."""
        weight = float(total["weight"])
        return Measured(
            self.compute_seconds + float(total["compute_seconds"]),
            self.exchange_seconds + float(total["exchange_seconds"]),
            self.told + float(total["told"]),
            float(total["passes"]) / weight if weight > 0.0 else 0.0,
        )


def seconds(began: float, computed: float, ended_before: float | None) -> Update:
    """What a worker tells of a round's local steps, which lasted from ``began`` to ``computed`` by ``time.monotonic``.

    ``ended_before`` is when its work of the round before was over; without it, or if that is of another clock (a
    machine that was started anew), nothing is told.
    """
    if ended_before is None or began < ended_before:
        return {"compute_seconds": 0.0, "exchange_seconds": 0.0, "told": 0.0}
    return {"compute_seconds": computed - began, "exchange_seconds": began - ended_before, "told": 1.0}


class Interval(ABC):
    """Decides on the parameter side, so that all workers agree. An interval of 0 steps is one pass over the rows."""

    @abstractmethod
    def first(self) -> int:
        """Local steps of the first round."""

    @abstractmethod
    def after(self, steps: int, rounds: int, measured: Measured) -> int:
        """Local steps of the next round, when ``rounds`` rounds are over, of which the last had ``steps``."""


@dataclass(frozen=True)
class Fixed(Interval):
    """Always ``steps``; 0 is one pass."""

    steps: int = 0

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(f"an interval of {self.steps} local steps; it can be 1 or more, or 0 for one pass")

    def first(self) -> int:
        return self.steps

    def after(self, steps: int, rounds: int, measured: Measured) -> int:
        return self.steps


@dataclass(frozen=True)
class Growing(Interval):
    """``steps_0 = start``, ``steps_{t+1} = min(ceil(factor * steps_t), most)``.

    For step sizes that decay: local drift shrinks with them, so exchanges may become rarer (Haddadpour et al., *Local
    SGD with Periodic Averaging*, 2019). With a constant step size the bias of averaging grows along.
    """

    start: int = 1
    factor: float = 1.5
    most: int = 1024

    def __post_init__(self) -> None:
        if not (1 <= self.start <= self.most and self.factor >= 1.0):
            raise ValueError(
                f"start={self.start}, factor={self.factor:g}, most={self.most}: "
                "it must be 1 <= start <= most and factor >= 1"
            )

    def first(self) -> int:
        return self.start

    def after(self, steps: int, rounds: int, measured: Measured) -> int:
        return min(math.ceil(steps * self.factor), self.most)


@dataclass(frozen=True)
class Auto(Interval):
    """The fewest steps whose compute is as long as the exchange, measured in the first ``rounds`` rounds, then kept.

    By Amdahl's law, computing for as long as exchanging is within a factor 2 of no exchange at all; longer
    intervals buy little and let workers drift apart. At most ``most_passes`` passes over the rows, also where
    waiting for slower workers, which no interval shortens, counts as exchange. Intervals, and so the answer, depend on
    measured times: use :class:`Fixed` where runs must be equal bit by bit.
    """

    start: int = 1
    rounds: int = 8
    most_passes: float = 1.0

    def __post_init__(self) -> None:
        if self.start < 1 or self.most_passes <= 0.0:
            raise ValueError(
                f"start={self.start}, most_passes={self.most_passes:g}: start is at least 1, passes above 0"
            )

    def first(self) -> int:
        return self.start

    def after(self, steps: int, rounds: int, measured: Measured) -> int:
        if rounds > self.rounds or measured.told == 0.0:
            return steps
        growth = measured.exchange_seconds / max(measured.compute_seconds, 1e-12)
        bound = steps * self.most_passes / measured.passes if measured.passes > 0.0 else math.inf
        return max(1, min(math.ceil(steps * min(growth, MOST_GROWTH)), int(min(bound, 2.0**53))))
