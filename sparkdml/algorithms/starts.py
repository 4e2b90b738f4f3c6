"""Coefficients that a fit by shards begins with: each shard asks for those of its features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from sparkdml.optim.hashed_random import hashed_gaussians


class Start(ABC):
    """Plain values, sent to every shard."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """What is sent."""

    @abstractmethod
    def of(self, features: np.ndarray) -> np.ndarray:
        """Coefficients (n, K), for features as stored, of these numbers, int64 (n,)."""


@dataclass(frozen=True)
class Whole(Start):
    """All of them, (d, K)."""

    coefficients: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.coefficients.nbytes

    def of(self, features: np.ndarray) -> np.ndarray:
        return self.coefficients[features]


@dataclass(frozen=True)
class Drawn(Start):
    """0, and ``factors`` normal deviates of ``deviation``, which depend on the seed and the feature alone."""

    seed: int
    deviation: float
    factors: int

    @property
    def nbytes(self) -> int:
        return 0

    def of(self, features: np.ndarray) -> np.ndarray:
        drawn = self.deviation * hashed_gaussians(self.seed, features, self.factors)
        return np.hstack([np.zeros((len(features), 1)), drawn])
