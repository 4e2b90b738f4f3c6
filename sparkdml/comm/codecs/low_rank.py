"""Matrices as products of two thin ones: ``r (m + n)`` numbers instead of ``m n``."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from sparkdml.comm.codecs.base import Codec, Packet, Parts, Seed, seed_sequence
from sparkdml.comm.codecs.identity import Identity


@dataclass(frozen=True)
class Factored(Codec):
    """``M`` (m, n) as ``P`` (m, r) times ``Q^T`` (r, n), both float64.

    Arrays that are no matrices, or for which the factors would not be smaller, are sent as they are. Factors are of
    ``M / 2^e`` with entries below 1, so that no norm overflows or underflows.
    """

    rank: int

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"the rank of {self.name} must be at least 1, and is {self.rank}")

    @abstractmethod
    def factors(self, matrix: np.ndarray, seed: Seed, right: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """``P`` (m, r) and ``Q`` (n, r) for ``matrix``; ``right`` is the ``Q`` sent last, if there is one."""

    def compress(self, array: np.ndarray, seed: Seed, previous: Packet | None) -> Parts:
        if not self.factors_are_smaller(array.shape):
            return Identity().compress(array, seed, previous)
        _, exponent = math.frexp(np.abs(array).max())
        right = None
        if previous is not None and previous.shape == array.shape:
            right = np.asarray(previous.parts["right"]).reshape(-1, self.rank)
        p, q = self.factors(np.ldexp(array, -exponent), seed, right)
        return {"exponent": exponent, "left": p.flatten(), "right": q.flatten()}

    def expand(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        if not self.factors_are_smaller(shape):
            return Identity().expand(parts, shape)
        p, q = (np.asarray(parts[side]).reshape(-1, self.rank) for side in ("left", "right"))
        limit = np.finfo(np.float64).max
        with np.errstate(over="ignore"):
            return np.clip(np.ldexp(p @ q.T, int(parts["exponent"])), -limit, limit)

    def factors_are_smaller(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == 2 and self.rank * sum(shape) < math.prod(shape)


@dataclass(frozen=True)
class LowRank(Factored):
    """The closest matrix of rank r: the r largest singular values and their vectors (Eckart & Young, 1936).

    The relative error is at most ``sqrt(1 - r / min(m, n))``. Needs the whole decomposition, ``O(m n min(m, n))``.
    """

    @property
    def name(self) -> str:
        return f"low-rank:{self.rank}"

    def factors(self, matrix: np.ndarray, seed: Seed, right: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        u, s, vt = np.linalg.svd(matrix, full_matrices=False)
        r = self.rank
        return u[:, :r] * s[:r], vt[:r].T

    def error_bound(self, array: np.ndarray) -> float:
        return math.sqrt(1.0 - self.rank / min(array.shape)) if self.factors_are_smaller(array.shape) else 0.0


@dataclass(frozen=True)
class PowerSGD(Factored):
    """``P`` = an orthonormal basis of ``M Q``, then ``Q = M^T P``: one power iteration (Vogels et al., 2019).

    ``O(m n r)``. Starts from the ``Q`` of the previous packet, so that rounds with similar matrices approach the
    singular vectors, and else from random numbers. A projection: the error is at most the norm, and 0 up to rounding
    for matrices of rank r.
    """

    warm_starts = True

    @property
    def name(self) -> str:
        return f"power-sgd:{self.rank}"

    def factors(self, matrix: np.ndarray, seed: Seed, right: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        # a column of zeros would stay one, whatever the matrix
        if right is None or not right.any(axis=0).all():
            right = np.random.default_rng(seed_sequence(seed)).standard_normal((matrix.shape[1], self.rank))
        p, _ = np.linalg.qr(matrix @ right)
        return p, matrix.T @ p

    def error_bound(self, array: np.ndarray) -> float:
        return 1.0 if self.factors_are_smaller(array.shape) else 0.0
