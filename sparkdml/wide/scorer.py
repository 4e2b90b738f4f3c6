"""What shards and rows say about a row's margins, and how shards' answers add up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from sparkdml.data import kernels

#: Doubles of one 512-bit register; kernels of several margins a row want whole registers.
_REGISTER = 8


class Scorer(ABC):
    """From rows and a shard's coefficients to sums, and from these sums over all shards to margins.

    Objects hold plain values only: they are pickled into tasks.
    """

    @property
    @abstractmethod
    def sums(self) -> int:
        """P, how many sums a row has."""

    @abstractmethod
    def partial(
        self, indptr: np.ndarray, local_indices: np.ndarray, values: np.ndarray, coefficients: np.ndarray
    ) -> np.ndarray:
        """The sums (rows, P) of compressed sparse rows; adding them over disjoint sets of features is the row's.

        ``local_indices`` (int32) count the rows of ``coefficients`` (n, C); one may be several times in a row, and
        then its values add up.
        """

    @abstractmethod
    def margins(self, sums: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
        """Margins (rows, K) from the sums (rows, P) over all shards."""


@dataclass(frozen=True)
class Linear(Scorer):
    """``m_k = sum_j x_j coefficient_jk + intercept_k``; ``columns`` is C = P = K."""

    columns: int

    @property
    def sums(self) -> int:
        return self.columns

    def partial(
        self, indptr: np.ndarray, local_indices: np.ndarray, values: np.ndarray, coefficients: np.ndarray
    ) -> np.ndarray:
        rows = len(indptr) - 1
        out, none = np.empty((rows, self.columns)), np.zeros(self.columns)
        if self.columns == 1:
            kernels.sparse_margins(indptr, local_indices, values, 0, rows, coefficients, none, out)
            return out
        padded = coefficients
        if self.columns % _REGISTER:
            padded = np.zeros((len(coefficients), self.columns + -self.columns % _REGISTER))
            padded[:, : self.columns] = coefficients
        kernels.sparse_margins_multi(indptr, local_indices, values, 0, rows, padded, none, out)
        return out

    def margins(self, sums: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
        return sums + intercepts
