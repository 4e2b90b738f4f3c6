"""What hidden units of a network make of their margins."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np


class Activation(ABC):
    """An element-wise function whose derivative follows from its value."""

    @abstractmethod
    def apply(self, margins: np.ndarray) -> None:
        """``margins`` become values, in place."""

    @abstractmethod
    def slope(self, values: np.ndarray) -> np.ndarray:
        """The derivative where the value is ``values``, same shape."""

    @abstractmethod
    def reach(self, inputs: int, outputs: int) -> float:
        """Weights of a layer start uniform between minus and plus this."""


class Sigmoid(Activation):
    """``1 / (1 + exp(-m))``. Weights start as Spark's: within ``2.4 / sqrt(inputs)``."""

    def apply(self, margins: np.ndarray) -> None:
        np.negative(margins, out=margins)
        with np.errstate(over="ignore"):  # 1 / (1 + inf) is what it should be
            np.exp(margins, out=margins)
        margins += 1.0
        np.reciprocal(margins, out=margins)

    def slope(self, values: np.ndarray) -> np.ndarray:
        return values * (1.0 - values)

    def reach(self, inputs: int, outputs: int) -> float:
        return 2.4 / math.sqrt(inputs)


class Tanh(Activation):
    """``tanh(m)``. Glorot & Bengio, "Understanding the difficulty of training deep feedforward networks" (2010)."""

    def apply(self, margins: np.ndarray) -> None:
        np.tanh(margins, out=margins)

    def slope(self, values: np.ndarray) -> np.ndarray:
        return 1.0 - values * values

    def reach(self, inputs: int, outputs: int) -> float:
        return math.sqrt(6.0 / (inputs + outputs))


class Relu(Activation):
    """``max(m, 0)``, slope 0 at 0. He, Zhang, Ren & Sun, "Delving deep into rectifiers" (2015)."""

    def apply(self, margins: np.ndarray) -> None:
        np.maximum(margins, 0.0, out=margins)

    def slope(self, values: np.ndarray) -> np.ndarray:
        return (values > 0.0).astype(values.dtype)

    def reach(self, inputs: int, outputs: int) -> float:
        return math.sqrt(6.0 / inputs)


ACTIVATIONS: dict[str, Activation] = {"sigmoid": Sigmoid(), "tanh": Tanh(), "relu": Relu()}
