"""What the outputs of a network are compared with labels by."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np


class Head(ABC):
    """A loss of a row's K outputs."""

    @abstractmethod
    def evaluate(self, outputs: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
        """``sum_i w_i loss_i``; ``outputs`` (n, K) become its derivatives, in place."""


class CrossEntropy(Head):
    """``loss = log(sum_k exp(m_k)) - m_y`` for labels 0 .. K-1: softmax, and minus the log of the label's share."""

    def evaluate(self, outputs: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
        outputs -= outputs.max(axis=1, keepdims=True)
        rows, own = np.arange(len(labels)), labels.astype(np.intp)
        margins = outputs[rows, own].astype(np.float64)
        np.exp(outputs, out=outputs)
        sums = outputs.sum(axis=1, dtype=np.float64)
        outputs *= (weights / sums).astype(outputs.dtype)[:, None]
        outputs[rows, own] -= weights.astype(outputs.dtype)
        return float(weights @ (np.log(sums) - margins))


class SquaredError(Head):
    """``loss = (m - y)^2 / 2`` of one output."""

    def evaluate(self, outputs: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
        apart = outputs[:, 0] - labels
        outputs[:, 0] = weights * apart
        return 0.5 * float(weights @ (apart * apart))
