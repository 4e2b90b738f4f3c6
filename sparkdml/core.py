"""Small values that every layer shares: why a fit stopped, and what a round cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

#: What workers send: named arrays, scalars and packets (``comm.codecs``) that add up (a commutative monoid).
Update = dict[str, Any]


@dataclass(frozen=True)
class Stop:
    """Why a fit ended. ``remedy`` says what to change, and is empty where nothing is wrong."""

    reason: str  # converged | max_iterations | diverged | stalled
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class Turn:
    """Which round of which worker it is: ``clock`` counts rounds from 0, and ``worker`` is one of ``workers``.

    What is random is drawn from these numbers and a seed, so that a repeated task makes the same draws.
    ``threads`` of its process are the worker's to use.
    """

    clock: int
    worker: int = 0
    workers: int = 1
    threads: int = 1


@dataclass(frozen=True)
class Tally:
    """What workers that run side by side spent in one round; :meth:`of` one of them.

    ``computed`` : seconds of them all together, ``slowest`` of one of them. ``serialised`` : the most that one of them
    took to put what it sent into a message, and to take out what it got.
    """

    workers: int = 0
    computed: float = 0.0
    slowest: float = 0.0
    serialised: float = 0.0

    @staticmethod
    def of(computed: float, serialised: float = 0.0) -> Tally:
        return Tally(1, computed, computed, serialised)

    def merge(self, other: Tally) -> Tally:
        return Tally(
            self.workers + other.workers,
            self.computed + other.computed,
            max(self.slowest, other.slowest),
            max(self.serialised, other.serialised),
        )

    def serialising(self, seconds: float) -> Tally:
        """With so many more for messages."""
        return replace(self, serialised=self.serialised + seconds)

    def split(self, seconds: float) -> dict[str, Any]:
        """What ``seconds`` of an exchange went to, as :class:`~sparkdml.report.history.Round` names it."""
        mean = self.computed / max(self.workers, 1)
        return {
            "compute_seconds": mean,
            "wait_seconds": self.slowest - mean,
            "serialise_seconds": self.serialised,
            "aggregate_seconds": max(seconds - self.slowest - self.serialised, 0.0),
        }


def add_updates(into: Update, other: Update) -> Update:
    """``into + other``; arrays of ``into`` are reused."""
    assert into.keys() == other.keys()
    for name, value in other.items():
        if isinstance(value, np.ndarray):
            into[name] += value
        else:
            into[name] = into[name] + value
    return into


def payload_bytes(values: Mapping[str, Any]) -> int:
    """Bytes of the numbers themselves, without the envelope they travel in."""
    return sum(8 if isinstance(v, (float, int)) else v.nbytes for v in values.values())
