"""Every implementation, listed once: a law runs over all of a list, so a new entry is tested by being named here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from sparkdml.algorithms import LBFGS, OWLQN, Algorithm
from sparkdml.data.block import Block, DenseBlock, SparseBlock
from sparkdml.losses import Logistic, Loss, Softmax
from sparkdml.penalties import L2, ElasticNet, Penalty

LOSSES: dict[str, Loss] = {
    "logistic": Logistic(),
    "softmax-2": Softmax(2),
    "softmax-5": Softmax(5),
}

#: From (features,) factors to a penalty.
PENALTIES: dict[str, Callable[[np.ndarray], Penalty]] = {
    "l2": lambda factors: L2(0.7, factors[:, None]),
    "l2-of-strength-0": lambda factors: L2(0.0, factors[:, None]),
    "elastic-net": lambda factors: ElasticNet(0.7, factors[:, None], 0.3, factors[:, None]),
}


def _dense(dtype: type) -> Callable[..., Block]:
    def build(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Block:
        return DenseBlock(y, weights, X.shape[1], np.ascontiguousarray(X, dtype))

    return build


def _sparse(dtype: type) -> Callable[..., Block]:
    def build(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Block:
        rows = sparse.csr_array(X)
        indptr, indices = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
        return SparseBlock(y, weights, X.shape[1], indptr, indices, rows.data.astype(dtype))

    return build


#: From (X, y, weights) to a block.
BLOCK_FORMATS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Block]] = {
    "dense-float32": _dense(np.float32),
    "dense-float64": _dense(np.float64),
    "sparse-float32": _sparse(np.float32),
    "sparse-float64": _sparse(np.float64),
}

#: From (max_iterations, tolerance) to an algorithm.
ALGORITHMS: dict[str, Callable[[int, float], Algorithm]] = {"lbfgs": LBFGS, "owlqn": OWLQN}

#: Kinds of feature columns that ``make_frame`` makes and a DataFrame may have.
COLUMN_KINDS = ("dense", "sparse", "mixed", "doubles", "floats", "scalars")


def __getattr__(name: str) -> Any:
    # PLACEMENTS needs Spark, which the laws of kernels and algorithms do without
    if name == "PLACEMENTS":
        from sparkdml.placement import PLACEMENTS

        return PLACEMENTS
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
