"""What algorithms ask of an objective, whatever function of the rows it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np

from sparkdml.core import Update
from sparkdml.data.block import Block, Part


class RowGradient(ABC):
    """``sum_i w_i d loss_i / d c`` without the penalty; made for many small calls."""

    @property
    def by_feature(self) -> bool:
        """Whether rows say nothing of the coordinates of features that they do not have."""
        return False

    @abstractmethod
    def __call__(self, point: np.ndarray, parts: Iterable[Part]) -> np.ndarray:
        """The sum over the rows of ``parts``, float64, shape of ``point``."""


class Differentiable(ABC):
    """``F(c) = 1/W * sum_i w_i * loss_i(c) + penalty(c)`` over one flat vector ``c``, float64.

    The penalty is separable, ``sum_j l2_j / 2 c_j^2 + l1_j |c_j|``, and leaves the last :attr:`free` coordinates alone.

    Attributes
    ----------
    weight_sum : W.
    told : times F is what users are told: where labels are in another unit here than there.
    """

    weight_sum: float
    told: float

    @property
    @abstractmethod
    def features(self) -> int:
        """How many features a row has."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """About how many coordinates a feature has: what costs are estimated by."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Length of the flat vector."""

    @property
    @abstractmethod
    def free(self) -> int:
        """How many coordinates, the last ones, are never penalised."""

    @abstractmethod
    def sums(self, blocks: Sequence[Block], c: np.ndarray) -> Update:
        """What :meth:`evaluate` needs of a worker's rows; its ``loss`` is :meth:`loss_sum`."""

    @abstractmethod
    def loss_sum(self, blocks: Sequence[Block], c: np.ndarray, threads: int = 1) -> float:
        """``sum_i w_i loss_i(c)`` over a worker's rows; the same, bit by bit, for any number of threads."""

    @abstractmethod
    def row_gradient(self, rng: np.random.Generator) -> RowGradient:
        """The gradient over some rows. A loss that is itself random (dropout) draws from ``rng``."""

    @abstractmethod
    def evaluate(self, c: np.ndarray, total: Update) -> tuple[float, np.ndarray]:
        """``F(c)`` and its gradient, but for the L1 part of the penalty, from the sum of all workers' :meth:`sums`."""

    @abstractmethod
    def penalty_at(self, c: np.ndarray) -> float:
        """The penalty of ``c``, its L1 part included."""

    @abstractmethod
    def strengths(self) -> tuple[np.ndarray, np.ndarray]:
        """The penalty's ``l2`` and ``l1``, each (size,)."""

    @abstractmethod
    def curvature(self) -> np.ndarray:
        """An estimate of the Hessian's diagonal, shape (size,), all above 0: it preconditions the first steps."""

    @abstractmethod
    def split(self, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Views of ``c`` as a matrix, which codecs may alter on its way, and the rest."""

    def objective(self, c: np.ndarray, loss_sum: float) -> float:
        """``F(c)``, an L1 penalty included, from the sum of all rows' losses there."""
        return loss_sum / self.weight_sum + self.penalty_at(c)
