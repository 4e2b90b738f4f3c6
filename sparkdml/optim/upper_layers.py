"""A network seen from its first layer's margins, which are linear in the features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sparkdml.losses.base import Loss
from sparkdml.optim.network import Network


@dataclass(frozen=True)
class UpperLayers(Loss):
    """All of ``network`` after the first layer, as a loss of that layer's margins (n, units).

    The loss's own parameters are those layers' matrices and biases, in the network's order. So whatever trains a linear
    model of so many margins trains the network. Nothing is dropped out. ``raw`` holds the parameters, None for zeros.
    """

    network: Network
    raw: np.ndarray | None = None
    curvature: float = 1.0  # of a guess: the network is not convex

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return self.network.layers[1]

    @property
    def extras(self) -> int:  # type: ignore[override]
        first, second = self.network.layers[:2]
        return self.network.size - (first + 1) * second

    def at(self, extras: np.ndarray) -> UpperLayers:
        return replace(self, raw=extras)

    def evaluate(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray, slopes: np.ndarray) -> float:
        loss, _, slopes[...] = self._above(margins, labels, weights)
        return loss

    def extra_slopes(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        _, gradient, _ = self._above(margins, labels, weights)
        return np.concatenate([np.zeros(0), *(gradient[name].ravel() for name in self._names)])

    def _above(
        self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray
    ) -> tuple[float, dict[str, np.ndarray], np.ndarray]:
        return self.network.above(self._upper, margins.astype(self.network.dtype), labels, weights)

    @property
    def _names(self) -> list[str]:
        return list(self.network.shapes)[2:]

    @cached_property
    def _upper(self) -> list[tuple[np.ndarray, np.ndarray]]:
        raw, first = np.zeros(self.extras) if self.raw is None else self.raw, 0
        arrays: list[np.ndarray] = []
        for name in self._names:
            shape = self.network.shapes[name]
            size = int(np.prod(shape))
            arrays.append(raw[first : first + size].reshape(shape).astype(self.network.dtype))
            first += size
        return list(zip(arrays[::2], arrays[1::2], strict=True))
