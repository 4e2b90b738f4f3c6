"""The contract of a placement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.problem import Problem
from sparkdml.data.dataset import Dataset
from sparkdml.report.history import History, Round

#: Called after every round.
OnRound = Callable[[Round], None]


@dataclass(frozen=True)
class Trained:
    """The algorithm's final state and what the rounds cost."""

    state: Any
    history: History


class Placement(ABC):
    """Drives any algorithm; knows where coefficients live and nothing of what the algorithm does."""

    @abstractmethod
    def train(
        self,
        algorithm: Algorithm,
        problem: Problem,
        start: np.ndarray,
        dataset: Dataset,
        on_round: OnRound | None = None,
    ) -> Trained:
        """Run rounds from ``start`` until the algorithm's state says stop."""
