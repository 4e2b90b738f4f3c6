"""Elastic averaging: replicas that stay on the workers, tied to a common centre."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparkdml.algorithms.local_training import LocalTraining
from sparkdml.core import Turn, Update


@dataclass(frozen=True)
class EASGD(LocalTraining):
    """Synchronous elastic averaging SGD over replicas ``x_k`` and a centre c.

    After every interval of local steps, ``x_k <- x_k - alpha (x_k - c)`` and
    ``c <- c + beta sum_k W_k (x_k - c) / sum_k W_k``, both with the old values. ``alpha`` None stands for ``beta / K``
    of K workers; with equal weights these are the paper's updates. A local solver with momentum makes it EAMSGD. A
    replica that is lost starts again at the centre.

    Zhang, Choromanska & LeCun, *Deep Learning with Elastic Averaging SGD* (2015). Convex: with one full-gradient step
    of size eta an interval, the centre rests at the minimum of the average of the workers' Moreau envelopes
    ``min_x F_k(x) + alpha / (2 eta (1 - alpha)) ||x - c||^2``. That is the optimum if workers' rows are alike, if
    alpha = 1, or in the limit of small eta; else beside it. Non-convex: no guarantee. Not for exact answers on rows
    that differ between workers.
    """

    alpha: float | None = None
    beta: float = 0.9
    compressible: ClassVar[frozenset[str]] = frozenset({"change"})

    def __post_init__(self) -> None:
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if value is not None and not 0.0 < value <= 1.0:
                raise ValueError(f"{name}={value:g}: elastic averaging needs a share above 0 and at most 1")

    def _start(self, shared: np.ndarray, own: np.ndarray | None) -> np.ndarray:
        return shared if own is None else own

    def _exchange(self, shared: np.ndarray, point: np.ndarray, weight: float, turn: Turn) -> tuple[Update, np.ndarray]:
        apart = point - shared
        return {"change": weight * apart}, point - self.share_of(turn.workers) * apart

    def _agree(self, state: Any, total: Update) -> tuple[Any, np.ndarray]:
        return state, state.point + self.beta * np.asarray(total["change"]) / float(total["weight"])

    def share_of(self, workers: int) -> float:
        """``alpha`` among so many workers."""
        return self.beta / workers if self.alpha is None else self.alpha
