"""Feed-forward networks: their arithmetic, by matrix products over chunks of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from sparkdml.optim.activations import ACTIVATIONS, Activation
from sparkdml.optim.heads import CrossEntropy, Head
from sparkdml.optim.java_random import xor_shift_uniforms
from sparkdml.problem import Examples, Function, Params

#: Features (n, d), dense or compressed sparse rows.
Features = Any


@dataclass(frozen=True)
class Standard:
    """Features are taken as ``(x - shift) * scale``, without one being changed; both (d,), scale 0 for constant ones.

    What a first layer (W, b) says of such features, ``scale W`` and ``b - (shift scale) W`` say of those as given.
    """

    shift: np.ndarray
    scale: np.ndarray

    def to_raw(self, weights: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For features as given."""
        raw = self.scale[:, None] * weights
        return raw, bias - self.shift @ raw

    def from_raw(self, weights: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inverse; weights of constant features are dropped."""
        inverse = np.divide(1.0, self.scale, out=np.zeros_like(self.scale), where=self.scale > 0)
        return inverse[:, None] * weights, bias + self.shift @ weights

    def slopes(self, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """The derivative by W, given those by weights and bias for features as given."""
        centred = weights - np.outer(self.shift, bias) if self.shift.any() else weights
        return np.asarray(self.scale[:, None] * centred)


@dataclass(frozen=True)
class Network(Function):
    """``a_0 = x``, ``a_l = activation(a_{l-1} W_l + b_l)``, and ``head`` of the last layer's margins.

    ``layers`` are how many units each has, features first. Parameters are ``W_1`` (in, out), ``b_1``, ``W_2``, ...: one
    after another they are Spark's weights. With ``dropout`` p, and draws, every hidden value is 0 with probability p
    and else divided by 1 - p (Srivastava et al., "Dropout", 2014). Margins, values and slopes are of type ``dtype``.
    """

    layers: tuple[int, ...]
    activation: str = "sigmoid"
    head: Head = field(default_factory=CrossEntropy)
    dropout: float = 0.0
    standard: Standard | None = None
    dtype: type = np.float32

    @property
    def features(self) -> int:
        return self.layers[0]

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for number, (inputs, outputs) in enumerate(zip(self.layers[:-1], self.layers[1:], strict=True), 1):
            found[f"W_{number}"], found[f"b_{number}"] = (inputs, outputs), (outputs,)
        return found

    def loss_and_gradient(
        self, params: Params, rows: Examples, rng: np.random.Generator | None = None
    ) -> tuple[float, Params]:
        first, *upper = self._weights(params)
        loss, gradient, delta = self.above(upper, _affine(rows.features, *first), rows.labels, rows.weights, rng)
        gradient["W_1"] = np.asarray(rows.features.T @ delta)
        gradient["b_1"] = delta.sum(axis=0, dtype=np.float64)
        if self.standard is not None:
            gradient["W_1"] = self.standard.slopes(gradient["W_1"], gradient["b_1"])
        return loss, gradient

    def above(
        self,
        upper: Sequence[tuple[np.ndarray, np.ndarray]],
        margins: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
        rng: np.random.Generator | None = None,
    ) -> tuple[float, dict[str, np.ndarray], np.ndarray]:
        """What the first layer's ``margins`` (n, units) lead to, which are overwritten.

        ``upper`` has matrix and bias of every layer after the first. The weighted loss, its derivatives by theirs, and
        by the margins.
        """
        values: list[np.ndarray] = []
        slopes: list[np.ndarray] = []
        for matrix, bias in upper:
            self._activation.apply(margins)
            slopes.append(self._activation.slope(margins))
            if rng is not None and self.dropout:
                kept = (rng.random(margins.shape, np.float32) >= self.dropout) / self.dtype(1.0 - self.dropout)
                margins *= kept
                slopes[-1] *= kept
            values.append(margins)
            margins = _affine(margins, matrix, bias)
        loss, delta = self.head.evaluate(margins, labels, weights), margins
        gradient: dict[str, np.ndarray] = {}
        for number in range(len(upper) - 1, -1, -1):
            gradient[f"W_{number + 2}"] = np.asarray(values[number].T @ delta)
            gradient[f"b_{number + 2}"] = delta.sum(axis=0, dtype=np.float64)
            delta = delta @ upper[number][0].T
            delta *= slopes[number]
        return loss, gradient, delta

    def loss(self, params: Params, rows: Examples) -> float:
        return self.head.evaluate(self.margins(params, rows.features), rows.labels, rows.weights)

    def margins(self, params: Params, features: Features) -> np.ndarray:
        """The last layer's (n, K), without dropout."""
        values, weights = features, self._weights(params)
        for matrix, bias in weights[:-1]:
            values = _affine(values, matrix, bias)
            self._activation.apply(values)
        return _affine(values, *weights[-1])

    def to_raw(self, c: np.ndarray) -> np.ndarray:
        """Weights for features as given, in Spark's order, (size,)."""
        return c if self.standard is None else self._with_first(c, *self.standard.to_raw(*self._first(c)))

    def from_raw(self, weights: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`to_raw`; weights of constant features are dropped."""
        if self.standard is None:
            return weights
        return self._with_first(weights, *self.standard.from_raw(*self._first(weights)))

    def start(self, seed: int) -> np.ndarray:
        """Weights and biases uniform within the activation's reach, (size,); sigmoid: Spark's, for ``seed``.

        Biases of other activations start at 0.
        """
        drawn = 2.0 * xor_shift_uniforms(seed, self.size) - 1.0
        first = 0
        for inputs, outputs in zip(self.layers[:-1], self.layers[1:], strict=True):
            reach = self._activation.reach(inputs, outputs)
            drawn[first : first + inputs * outputs] *= reach
            first += inputs * outputs
            drawn[first : first + outputs] *= reach if self.activation == "sigmoid" else 0.0
            first += outputs
        return drawn

    @property
    def _activation(self) -> Activation:
        return ACTIVATIONS[self.activation]

    def _first(self, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        params = self.params(c)
        return params["W_1"], params["b_1"]

    def _with_first(self, c: np.ndarray, matrix: np.ndarray, bias: np.ndarray) -> np.ndarray:
        return np.concatenate([matrix.ravel(), bias, c[matrix.size + bias.size :]])

    def _weights(self, params: Params) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of every layer, for features as given, as ``dtype``."""
        layers = [(params[f"W_{number}"], params[f"b_{number}"]) for number in range(1, len(self.layers))]
        if self.standard is not None:
            layers[0] = self.standard.to_raw(*layers[0])
        return [(matrix.astype(self.dtype), bias.astype(self.dtype)) for matrix, bias in layers]


def _affine(values: Features, matrix: np.ndarray, bias: np.ndarray) -> np.ndarray:
    margins = np.asarray(values @ matrix)
    margins += bias
    return margins
