"""Passes by threads that share one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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
