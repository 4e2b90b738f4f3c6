"""How smooth the loss of a batch of rows is: it sets the step size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparkdml.data.block import SparseBlock
from sparkdml.losses.base import Loss
from sparkdml.optim.local_solver import LocalObjective
from sparkdml.optim.variance_reduction import kernels
from sparkdml.optim.variance_reduction.walk import Batch, add_scaled, is_lazy
from sparkdml.problem import Problem


def batch_smoothness(objective: LocalObjective, batches: Sequence[Batch]) -> float:
    """The largest Lipschitz constant among the gradients of the batches' losses.

    ``F_k`` is the mean over M batches of ``f_m = M / W_k sum_i w_i loss_i``, whose constant is the loss's curvature
    times the largest eigenvalue of ``M / W_k sum_i w_i a_i a_i'``. That is also the largest one of the rows' Gram
    matrix G, and at most ``||G^2||_F^(1/2)``, which is taken for it.
    """
    lazy, largest = is_lazy(objective), 0.0
    buffer = np.zeros(objective.problem.features)
    for batch in batches:
        gram = _sparse_gram(objective.problem, batch, buffer) if lazy else _gram(objective.problem, batch)
        roots = np.sqrt(batch.block.weights[batch.start : batch.stop])
        gram = (gram + objective.problem.fit_intercept) * roots * roots[:, None]
        largest = max(largest, float(np.linalg.norm(gram @ gram)) ** 0.5)
    share = len(batches) / objective.weight_sum
    return joint_curvature(objective.problem.loss) * share * largest


def joint_curvature(loss: Loss) -> float:
    """A bound on the second derivative in all margins of a row together.

    Softmax's, ``diag(p) - p p'``, has rows whose absolute sum is ``2 p_k (1 - p_k)``: twice that in one margin.
    """
    return min(loss.outputs, 2) * loss.curvature


def _gram(problem: Problem, batch: Batch) -> np.ndarray:
    rows = batch.stop - batch.start
    columns = np.zeros((problem.features + problem.fit_intercept, rows))
    add_scaled(problem, batch, np.eye(rows), columns)
    scaled = columns[: problem.features]
    return scaled.T @ scaled


def _sparse_gram(problem: Problem, batch: Batch, buffer: np.ndarray) -> np.ndarray:
    block, rows = batch.block, batch.stop - batch.start
    assert isinstance(block, SparseBlock)
    gram = np.empty((rows, rows))
    inverse_std = problem.scaling.inverse_std[:, 0]
    kernels.sparse_row_products(
        block.indptr, block.indices, block.values, batch.start, batch.stop, inverse_std, buffer, gram
    )
    return gram
