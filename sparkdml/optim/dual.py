"""The dual of a regularised problem of one margin, and ascent along its coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparkdml.data.block import Block, DenseBlock, SparseBlock
from sparkdml.losses.conjugates import Conjugate, conjugate_of
from sparkdml.optim import dual_kernels
from sparkdml.optim.local_solver import Pull
from sparkdml.problem import Problem
from sparkdml.problem.gradient import total_loss

#: A worker's dual variables, (rows,) for each block.
Duals = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Dual:
    """``max_u -1/W sum_i w_i loss*(-u_i) - sum_j soft(v_j + linear_j, l1_j)^2 / (2 ridge_j)``.

    Here ``v = 1/W sum_i w_i u_i a_i``, with the rows a_i in the problem's coordinates. It is the dual of
    ``1/W sum_i w_i loss_i(c) + sum_j (ridge_j / 2 c_j^2 + l1_j |c_j| - linear_j c_j)``, whose point for v is
    ``c_j = soft(v_j + linear_j, l1_j) / ridge_j`` with ``soft(x, l) = sign(x) max(|x| - l, 0)``.

    A free intercept has no such dual. Here it is held near ``centre`` by ``kappa / 2 (c_D - centre)^2``: with
    centres that follow the intercept, that is the proximal point method (Rockafellar, 1976), whose limit is exact.
    """

    problem: Problem
    conjugate: Conjugate
    weight_sum: float
    ridge: np.ndarray
    l1: np.ndarray
    linear: np.ndarray

    @property
    def inverse_ridge(self) -> np.ndarray:
        """0 for constant features, whose coefficients stay 0."""
        return np.divide(1.0, self.ridge, out=np.zeros_like(self.ridge), where=self.ridge > 0.0)

    def point(self, v: np.ndarray) -> np.ndarray:
        """The primal point of ``v``, both of shape (size,)."""
        moved = v + self.linear
        return np.copysign(np.maximum(np.abs(moved) - self.l1, 0.0), moved) * self.inverse_ridge

    def zero(self, blocks: Sequence[Block]) -> Duals:
        return tuple(np.zeros(block.rows) for block in blocks)

    def vector(self, blocks: Sequence[Block], duals: Duals) -> np.ndarray:
        """What these rows add to v, shape (size,)."""
        raw, total = np.zeros((self.problem.features, 1)), 0.0
        for block, own in zip(blocks, duals, strict=True):
            weighted = (own * block.weights)[:, None]
            block.accumulate(0, block.rows, weighted, raw)
            total += float(weighted.sum())
        scaling = self.problem.scaling
        scaled = (raw[:, 0] - self.problem.centre * total) * scaling.inverse_std[:, 0]
        return np.append(scaled, [total] if self.problem.fit_intercept else []) / self.weight_sum

    def totals(self, blocks: Sequence[Block], duals: Duals, c: np.ndarray) -> tuple[float, float]:
        """``sum_i w_i loss_i(c)`` and ``sum_i w_i loss*(-u_i)`` over these rows."""
        loss = total_loss(self.problem.loss, blocks, *self.problem.to_raw(c))
        pairs = zip(blocks, duals, strict=True)
        return loss, sum(self.conjugate.total(own, block.labels, block.weights) for block, own in pairs)

    def gap(self, v: np.ndarray, loss: float, conjugate: float) -> float:
        """Primal less dual objective at ``v`` and its point, from the totals of all rows; at least 0 up to rounding."""
        return (loss + conjugate) / self.weight_sum + float(v @ self.point(v))

    def ascend(
        self, blocks: Sequence[Block], duals: Duals, v: np.ndarray, sigma: float, rows: int, rng: np.random.Generator
    ) -> Duals:
        """Dual variables after ``rows`` steps, in a new random order for each pass.

        ``v`` is of all workers, and sigma how many of them add what they find: each foresees sigma times its own
        change of v.
        """
        found = tuple(own.copy() for own in duals)
        moved = v + self.linear
        c = self.point(v)
        while rows > 0:
            for number in rng.permutation(len(blocks)):
                order = rng.permutation(blocks[number].rows)[: max(rows, 0)]
                self._ascend_block(blocks[number], order, sigma / self.weight_sum, moved, c, found[number])
                rows -= len(order)
        return found

    def _ascend_block(
        self, block: Block, order: np.ndarray, step: float, v: np.ndarray, c: np.ndarray, duals: np.ndarray
    ) -> None:
        inverse_std, centre = self.problem.scaling.inverse_std[:, 0], self.problem.centre
        rows = (block.labels, block.weights, order)
        shape = (self.conjugate.kind, self.conjugate.scale, step, self.l1, self.inverse_ridge, v, c, duals)
        if isinstance(block, SparseBlock):
            assert not centre.any(), "sparse rows are not centred"
            dual_kernels.ascend_sparse(block.indptr, block.indices, block.values, *rows, inverse_std, *shape)
        else:
            assert isinstance(block, DenseBlock)
            dual_kernels.ascend_dense(block.values, *rows, centre, inverse_std, *shape)


def dual_of(problem: Problem, weight_sum: float, centre: float = 0.0, pull: Pull | None = None) -> Dual:
    """The dual with the intercept held near ``centre``, or by the pull.

    Raises ValueError for a loss whose conjugate is not known, and where a coefficient has no ridge part.
    """
    conjugate = conjugate_of(problem.loss)
    ridge = problem.penalty.curvature()[:, 0] + (0.0 if pull is None else pull.strength)
    varies = problem.scaling.inverse_std[:, 0] > 0.0
    if not (ridge[varies] > 0.0).all():
        raise ValueError(
            "dual methods need an L2 part, which this penalty has not for every coefficient: set regParam > 0 and "
            "elasticNetParam < 1, or use a primal solver"
        )
    ridge = np.where(varies, ridge, 0.0)
    strengths = problem.penalty.l1()
    l1 = np.zeros_like(ridge) if strengths is None else strengths[:, 0]
    linear = np.zeros(problem.size) if pull is None else pull.strength * pull.centre
    if problem.fit_intercept:
        held = holds_intercept(pull)
        kappa = pull.strength if pull is not None and held else _hold(problem, ridge[varies])
        ridge, l1 = np.append(ridge, kappa), np.append(l1, 0.0)
        linear[-1] = linear[-1] if held else kappa * centre
    return Dual(problem, conjugate, weight_sum, ridge, l1, linear)


def holds_intercept(pull: Pull | None) -> bool:
    """Whether a pull gives the intercept a ridge part, so that it needs no other."""
    return pull is not None and pull.strength > 0.0


def _hold(problem: Problem, ridge: np.ndarray) -> float:
    """kappa: at most a feature's ridge, and weak beside the loss, so that few centres do.

    A weaker one would make more rounds of workers that add their updates: they grow like the curvature over kappa.
    """
    weakest = 0.2 * problem.loss.curvature
    return min(weakest, float(1.0 / np.mean(1.0 / ridge))) if len(ridge) else weakest


def next_centre(dual: Dual, centre: float, intercept: float, gap: float) -> float:
    """The intercept once it is known well enough, else the old centre.

    The distance of the intercept from the exact proximal point is at most ``sqrt(2 gap / kappa)``; it may be half
    that of the centre (Solodov & Svaiter, *A Hybrid Approximate Extragradient-Proximal Point Algorithm*, 1999).
    """
    known = gap <= dual.ridge[-1] / 8.0 * (intercept - centre) ** 2
    return intercept if known else centre
