"""AdaGrad that revises what it did with gradients that others' were on their way beside."""

from __future__ import annotations

import numpy as np

from sparkdml.optim.steps import Proximal
from sparkdml.optim.steps.base import Slots, adaptive_rate
from sparkdml.server.rule import Moment, Rule

#: Slots: what AdaGrad sums up, the most that it has been, and the sum of all gradients; then, for each worker, that sum
#: when it last read.
_SQUARES, _MOST, _SUM, _READ = 0, 1, 2, 3


class AdaptiveRevision(Rule):
    """With b the sum of gradients that came since the worker read: ``z <- z + g^2 + 2 g b``, ``z' <- max(z', z)``,
    ``r = eta / (sqrt(z') + epsilon)``, ``x <- prox(x - r g + (r_before - r) b, r)``.

    So steps along b, which did not know of g, are shortened to the rate that g brings. Without delays b is 0, and it is
    AdaGrad. McMahan & Streeter, "Delay-tolerant algorithms for asynchronous distributed online learning" (2014).
    """

    reads = True
    lasting = _READ

    def __init__(
        self, step_size: float, l1: float, l2: float, divisor: float, workers: int, epsilon: float = 1e-10
    ) -> None:
        self.step_size, self.l1, self.l2, self.divisor = step_size, l1, l2, divisor
        self._workers, self._epsilon = workers, epsilon
        self.lazy = l1 > 0.0 or l2 > 0.0

    def slots(self, rows: int, width: int) -> Slots:
        # NaN: not read yet, or by a worker of a server that this one took over from
        read = tuple(np.full((rows, width), np.nan) for _ in range(self._workers))
        return (*(np.zeros((rows, width)) for _ in range(_READ)), *read)

    def read(self, values: np.ndarray, slots: Slots, worker: int) -> None:
        slots[_READ + worker][:] = slots[_SUM]

    def apply(self, values: np.ndarray, update: np.ndarray, slots: Slots, moment: Moment) -> None:
        gradient = update.astype(np.float64, copy=False) / self.divisor
        beside = np.zeros_like(gradient)
        if moment.worker is not None:
            beside = np.nan_to_num(slots[_SUM] - slots[_READ + moment.worker], copy=False, nan=0.0)
        before = self._rate(slots, moment)
        slots[_SQUARES][:] += gradient * gradient + 2.0 * gradient * beside
        np.maximum(slots[_MOST], slots[_SQUARES], out=slots[_MOST])
        slots[_SUM][:] += gradient
        rate = self._rate(slots, moment)
        moved = values - rate * gradient + (before - rate) * beside
        values[:] = self._prox(values)(moved.reshape(-1), rate.reshape(-1)).reshape(values.shape)

    def rest(self, values: np.ndarray, slots: Slots, missed: np.ndarray, moment: Moment) -> None:
        flat = values.astype(np.float64, copy=False).reshape(-1)
        times = np.repeat(missed, values.shape[1])
        rate = self._rate(slots, moment).reshape(-1)
        values[:] = self._prox(values).repeated(flat, rate, times).reshape(values.shape)

    def _rate(self, slots: Slots, moment: Moment) -> np.ndarray:
        return adaptive_rate(moment.step_size, np.sqrt(slots[_MOST]), self._epsilon)

    def _prox(self, values: np.ndarray) -> Proximal:
        size = values.size
        return Proximal(np.full(size, self.l2), np.full(size, self.l1), 0.0, np.zeros(1), 0)
