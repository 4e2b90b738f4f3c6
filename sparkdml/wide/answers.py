"""From margins to the columns that a model adds."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa


class Answer(ABC):
    """Plain values, pickled into tasks: which columns a model adds, and how they follow from margins (rows, K)."""

    @abstractmethod
    def __call__(self, margins: np.ndarray) -> list[np.ndarray]:
        """One array a column: (rows,) numbers, or (rows, n) vectors."""


@dataclass(frozen=True)
class Margin(Answer):
    """The margin is the prediction."""

    def __call__(self, margins: np.ndarray) -> list[np.ndarray]:
        return [margins[:, 0]]


@dataclass(frozen=True)
class Side(Answer):
    """Raw predictions ``[-m, m]``; the prediction is 1 where ``m > threshold``."""

    threshold: float
    raw: bool = True
    prediction: bool = True

    def __call__(self, margins: np.ndarray) -> list[np.ndarray]:
        columns = [_both_sides(margins)] if self.raw else []
        return columns + ([(margins[:, 0] > self.threshold).astype(np.float64)] if self.prediction else [])


@dataclass(frozen=True)
class Logistic(Answer):
    """Raw predictions, probabilities (logistic, or softmax of K margins), and the class.

    ``threshold`` is for two classes of one margin; with ``thresholds`` t the class has the largest ``p / t``.
    """

    multinomial: bool
    threshold: float = 0.5
    thresholds: tuple[float, ...] | None = None
    raw: bool = True
    probability: bool = True
    prediction: bool = True

    def __call__(self, margins: np.ndarray) -> list[np.ndarray]:
        raw = margins if self.multinomial else _both_sides(margins)
        probability = softmax(raw) if self.multinomial else _logistic(raw)
        columns = [raw] if self.raw else []
        if self.probability:
            columns.append(probability)
        if self.prediction:
            columns.append(self._classes(raw, probability))
        return columns

    def _classes(self, raw: np.ndarray, probability: np.ndarray) -> np.ndarray:
        if self.multinomial:
            return first_largest(raw if self.thresholds is None else _scaled(probability, self.thresholds))
        if not self.raw:
            return (probability[:, 1] > self.threshold).astype(np.float64)
        t = self.threshold
        bound = math.log(t / (1 - t)) if 0 < t < 1 else math.copysign(math.inf, t - 0.5)
        return (raw[:, 1] > bound).astype(np.float64)


def softmax(raw: np.ndarray) -> np.ndarray:
    """Of each row; a row with an infinite margin has all probability there."""
    with np.errstate(invalid="ignore", over="ignore"):
        largest = raw.max(axis=1, keepdims=True)
        shifted = np.exp(raw - largest)
        infinite = np.isposinf(largest[:, 0])
        shifted[infinite] = np.isposinf(raw[infinite])
        return shifted / shifted.sum(axis=1, keepdims=True)


def first_largest(scores: np.ndarray) -> np.ndarray:
    """The first column with the largest number; unlike numpy's, NaN is larger than nothing."""
    best, found = scores[:, 0].copy(), np.zeros(len(scores))
    for column in range(1, scores.shape[1]):
        better = scores[:, column] > best
        found[better], best[better] = column, scores[better, column]
    return found


def _scaled(probability: np.ndarray, thresholds: Sequence[float]) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = probability / np.asarray(thresholds)
    scaled[np.isnan(scaled)] = -math.inf  # 0 / 0
    return scaled


def _logistic(raw: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        zero = 1.0 / (1.0 + np.exp(-raw[:, 0]))
    return np.column_stack([zero, 1.0 - zero])


def _both_sides(margins: np.ndarray) -> np.ndarray:
    return np.column_stack([-margins[:, 0], margins[:, 0]])


def beside(batch: pa.RecordBatch, columns: Sequence[np.ndarray], names: list[str]) -> pa.RecordBatch:
    """The columns of ``batch`` as they are, then ``columns``; vectors as Spark's vector type stores them."""
    width = len(names) - len(columns)
    arrays = [*batch.columns[:width], *[_vectors(c) if c.ndim == 2 else pa.array(c) for c in columns]]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _vectors(values: np.ndarray) -> pa.Array:
    rows, size = values.shape
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * size)
    children = [
        pa.array(np.ones(rows, np.int8)),
        pa.nulls(rows, pa.int32()),
        pa.nulls(rows, pa.list_(pa.int32())),
        pa.ListArray.from_arrays(offsets, flat),
    ]
    return pa.StructArray.from_arrays(children, ["type", "size", "indices", "values"])
