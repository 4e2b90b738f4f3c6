"""What one pass over the rows tells: weights, labels, and the moments of every feature."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

#: The arrays of :class:`Statistics`, in the order in which they are stored.
FEATURE_ARRAYS = ("mean", "m2", "nonzeros")
#: Above so many features, nothing in a task is as long as they are: arrays are about the features that occur.
WIDE_FEATURES = 2**20
#: And its numbers.
SCALARS = ("rows", "weight_sum", "weight_square_sum", "label_mean", "label_m2", "label_min", "label_max")


@dataclass
class Statistics:
    """Mergeable statistics of weighted rows.

    Attributes
    ----------
    rows : rows of non-zero weight.
    weight_sum, weight_square_sum : ``sum w``, ``sum w^2``.
    mean, m2 : float64 (features,): weighted mean, and ``sum w (x - mean)^2``.
    nonzeros : float64 (features,): stored values other than 0.
    label_mean, label_m2 : the same for the labels; ``label_min``, ``label_max``: their range.
    histogram : float64 (classes,): weight of each label 0, 1, ... (empty unless labels are classes).
    digest : a hash of the rows' values, weights and labels that does not depend on their order.
    columns : int64, increasing: the features that the arrays are about, where all others are 0 in every row; None where
        the arrays are about all features.
    """

    features: int
    rows: int = 0
    weight_sum: float = 0.0
    weight_square_sum: float = 0.0
    mean: np.ndarray = field(default_factory=lambda: np.zeros(0))
    m2: np.ndarray = field(default_factory=lambda: np.zeros(0))
    nonzeros: np.ndarray = field(default_factory=lambda: np.zeros(0))
    histogram: np.ndarray = field(default_factory=lambda: np.zeros(0))
    digest: int = 0
    label_mean: float = 0.0
    label_m2: float = 0.0
    label_min: float = math.inf
    label_max: float = -math.inf
    columns: np.ndarray | None = None

    def __post_init__(self) -> None:
        width = self.features if self.columns is None else len(self.columns)
        for name in FEATURE_ARRAYS:
            if len(getattr(self, name)) != width:
                setattr(self, name, np.zeros(width))

    def dense(self) -> Statistics:
        """The same with arrays about all features."""
        if self.columns is None:
            return self
        spread: dict[str, Any] = {name: np.zeros(self.features) for name in FEATURE_ARRAYS}
        for name, array in spread.items():
            array[self.columns] = getattr(self, name)
        return replace(self, columns=None, **spread)

    def merge(self, other: Statistics) -> Statistics:
        """Both sets of rows together, by the pairwise update of Chan, Golub & LeVeque (1983).

        A column that is constant over all rows keeps a variance of exactly 0.
        """
        if other.rows == 0:
            return self
        if self.rows == 0:
            return other
        assert self.features == other.features
        assert self.columns is None
        assert other.columns is None
        total = self.weight_sum + other.weight_sum
        delta = other.mean - self.mean
        self.mean = self.mean + delta * (other.weight_sum / total)
        self.m2 = self.m2 + other.m2 + delta * delta * (self.weight_sum * other.weight_sum / total)
        self.nonzeros = self.nonzeros + other.nonzeros
        label_delta = other.label_mean - self.label_mean
        self.label_mean += label_delta * (other.weight_sum / total)
        self.label_m2 += other.label_m2 + label_delta * label_delta * (self.weight_sum * other.weight_sum / total)
        self.histogram = add_ragged(self.histogram, other.histogram)
        self.label_min = min(self.label_min, other.label_min)
        self.label_max = max(self.label_max, other.label_max)
        self.rows += other.rows
        self.weight_sum = total
        self.weight_square_sum += other.weight_square_sum
        self.digest = (self.digest + other.digest) % 2**64
        return self

    @property
    def std(self) -> np.ndarray:
        """Unbiased standard deviation, by Spark's formula for weights that measure reliability.

        ``sqrt(m2 / (W - sum w^2 / W))``; 0 where that denominator is not positive.
        """
        freedom = self._freedom
        return np.sqrt(np.maximum(self.m2, 0.0) / freedom) if freedom > 0.0 else np.zeros(self.features)

    @property
    def label_std(self) -> float:
        """The labels' standard deviation, by the same formula."""
        freedom = self._freedom
        return float(np.sqrt(max(self.label_m2, 0.0) / freedom)) if freedom > 0.0 else 0.0

    @property
    def population_std(self) -> np.ndarray:
        """``sqrt(m2 / W)``."""
        return np.sqrt(np.maximum(self.m2, 0.0) / self.weight_sum)

    @property
    def population_label_std(self) -> float:
        """The same for the labels."""
        return math.sqrt(max(self.label_m2, 0.0) / self.weight_sum)

    @property
    def _freedom(self) -> float:
        return self.weight_sum - self.weight_square_sum / self.weight_sum if self.weight_sum > 0.0 else 0.0


def add_ragged(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a + b``, the shorter one padded with zeros."""
    if len(a) < len(b):
        a, b = b, a
    result = a.copy()
    result[: len(b)] += b
    return result
