"""The contract of what a worker does alone between two rounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from sparkdml.core import Turn
from sparkdml.data.block import Block
from sparkdml.problem import Differentiable, Problem

P = TypeVar("P", bound=Differentiable)


@dataclass(frozen=True)
class Pull:
    """``strength / 2 * ||c - centre||^2``, which keeps a worker near the others."""

    strength: float
    centre: np.ndarray


@dataclass(frozen=True)
class LocalObjective(Generic[P]):
    """``F_k(c) = 1/W_k * sum_i w_i loss_i(c) + penalty(c) + pull(c)`` over the rows of one worker.

    ``W_k`` is the sum of their weights. The average of all ``F_k``, weighted by ``W_k``, is the problem's objective.
    """

    problem: P
    blocks: Sequence[Block]
    pull: Pull | None = None

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)

    @property
    def weight_sum(self) -> float:
        """``W_k``; 0 for a worker without rows."""
        return float(sum(block.weights.sum() for block in self.blocks))


class LocalSolver(ABC):
    """Improves a point by a worker's own rows."""

    @property
    def solves(self) -> type[Differentiable]:
        """The problems that it solves: :class:`~sparkdml.problem.Problem` where margins must be linear."""
        return Problem

    @abstractmethod
    def passes(self, objective: LocalObjective, steps: int) -> float:
        """How many times ``steps`` steps read all of the worker's rows."""

    @abstractmethod
    def solve(
        self, objective: LocalObjective, start: np.ndarray, memory: Any, steps: int, turn: Turn
    ) -> tuple[np.ndarray, Any]:
        """The point after ``steps`` steps from ``start``, shape (size,), and the memory for the next call.

        ``steps`` 0 stands for one pass over the rows. ``start`` is not changed. A worker without rows returns it.
        """
