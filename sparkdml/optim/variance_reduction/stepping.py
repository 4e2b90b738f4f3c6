"""What solvers with reduced variance share: batches, step sizes and what they remember."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparkdml.core import Turn
from sparkdml.optim.local_solver import LocalObjective, LocalSolver
from sparkdml.optim.variance_reduction.smoothness import batch_smoothness
from sparkdml.optim.variance_reduction.walk import Batch, add_scaled, batches_of, grid, margins_of, slopes_of
from sparkdml.problem import Problem


def all_slopes(objective: LocalObjective, point: np.ndarray) -> np.ndarray:
    """The weighted slopes of all of a worker's rows, shape (rows, K)."""
    slopes = np.empty((objective.rows, objective.problem.loss.outputs))
    for chunk in _chunks(objective):
        slopes[chunk.places] = slopes_of(objective.problem, chunk, margins_of(objective.problem, chunk, point))
    return slopes


def mean_gradient(objective: LocalObjective, slopes: np.ndarray) -> np.ndarray:
    """``1/W_k sum_i slopes_i a_i``, shape (size,)."""
    gradient = np.zeros(objective.problem.size)
    for chunk in _chunks(objective):
        add_scaled(objective.problem, chunk, slopes[chunk.places], grid(objective.problem, gradient))
    return gradient / objective.weight_sum


def _chunks(objective: LocalObjective) -> list[Batch]:
    return batches_of(objective.blocks, min(b.chunk_rows(objective.problem.loss.outputs) for b in objective.blocks))


@dataclass(frozen=True)
class BatchSolver(LocalSolver):
    """A step is of one batch of at most ``batch_rows`` neighbouring rows, drawn uniformly with replacement.

    ``step_size`` None is ``share / L``, where L is the largest Lipschitz constant of a batch's gradient
    (:func:`~.smoothness.batch_smoothness`); the penalty needs no share of it, for its step is a proximal one.
    """

    step_size: float | None = None
    batch_rows: int = 16
    seed: int = 0
    share: ClassVar[float] = 1.0 / 3.0

    def __post_init__(self) -> None:
        if self.batch_rows < 1:
            raise ValueError(f"batch_rows={self.batch_rows}: a step takes at least 1 row")
        if self.step_size is not None and not self.step_size > 0.0:
            raise ValueError(f"step_size={self.step_size} is not positive; leave it out to have it set by the data")

    def passes(self, objective: LocalObjective, steps: int) -> float:
        """Apart from the gradients over all rows."""
        count = self._count(objective)
        return steps / count if steps and count else float(count > 0)

    def _count(self, objective: LocalObjective) -> int:
        return sum(-(-block.rows // self.batch_rows) for block in objective.blocks)

    def batches(self, objective: LocalObjective) -> list[Batch]:
        require_plain(objective.problem, type(self).__name__)
        return batches_of(objective.blocks, self.batch_rows)

    def smoothness(self, objective: LocalObjective) -> float:
        """What the step size is set by; NaN if it is given."""
        return np.nan if self.step_size is not None else batch_smoothness(objective, self.batches(objective))

    def rate(self, smoothness: float) -> float:
        if self.step_size is not None:
            return self.step_size
        return self.share / smoothness if smoothness > 0.0 else 1.0

    def order(self, count: int, steps: int, turn: Turn) -> np.ndarray:
        """The batches of the next steps; 0 steps are a pass."""
        rng = np.random.default_rng([self.seed, turn.worker, turn.clock])
        return rng.integers(count, size=steps or count)


def require_plain(problem: Problem, solver: str) -> None:
    """Refuse a loss with parameters of its own: their slopes are not known for each row."""
    if problem.loss.extras:
        raise ValueError(
            f"{solver} cannot train the {problem.loss.extras} parameter of {type(problem.loss).__name__} itself; use a "
            "solver of full gradients, such as L-BFGS"
        )
