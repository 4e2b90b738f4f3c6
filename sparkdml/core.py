"""Small values that every layer shares: why a fit stopped, and what a round cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    """What one worker spent in one round."""

    compute_seconds: float = 0.0

    def merge(self, other: Tally) -> Tally:
        """Workers run side by side: the slowest one sets the time."""
        return Tally(max(self.compute_seconds, other.compute_seconds))


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
