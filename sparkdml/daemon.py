"""The process that forks Python workers, with numpy and the compiled kernels already loaded.

Set ``spark.python.daemon.module=sparkdml.daemon``. Without it every worker loads them itself, which costs its first
task about a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pyspark import daemon

# None of these starts a thread when imported, which a process that forks must not have (pyarrow does).
from sparkdml.data.block import Block, DenseBlock, SparseBlock
from sparkdml.data.moments import SparseMoments, dense_statistics
from sparkdml.losses import Logistic, Softmax
from sparkdml.optim.gram import gram_matrix
from sparkdml.problem.gradient import loss_and_gradient
from sparkdml.resources.worker import hide_from_collector


def warm() -> None:
    """Load the kernels that most fits need from numba's cache, or compile them into it, by running them on two rows."""
    blocks = two_rows()
    for loss in (Logistic(), Softmax(2)):
        loss_and_gradient(loss, blocks, np.zeros((1, loss.outputs)), np.zeros(loss.outputs))
    gram_matrix(blocks, np.zeros(1))
    labels, weights = np.array([0.0, 1.0]), np.ones(2)
    dense_statistics(_frozen([[0.0], [1.0]]), labels, weights)
    SparseMoments(1).add(np.array([0, 1, 1]), _frozen([0], np.int32), _frozen([1.0]), labels, weights)


def two_rows() -> list[Block]:
    """A block of each kind, of the same two rows of one feature."""
    labels, weights = _frozen([0.0, 1.0]), _frozen([1.0, 1.0])
    indptr, indices = _frozen([0, 1, 1], np.int64), _frozen([0], np.int32)
    blocks: list[Block] = []
    for dtype in (np.float32, np.float64):
        blocks.append(DenseBlock(labels, weights, 1, _frozen([[0.0], [1.0]], dtype)))
        blocks.append(SparseBlock(labels, weights, 1, indptr, indices, _frozen([1.0], dtype)))
    return blocks


def _frozen(values: list, dtype: type = np.float64) -> np.ndarray:
    """Read-only, as arrays of mapped files and of Arrow batches are: kernels are compiled for that too."""
    array: np.ndarray = np.array(values, dtype)
    array.flags.writeable = False
    return array


def quietly(worker: Callable[..., int]) -> Callable[..., int]:
    """``worker`` as it is, but for the traceback that Spark's prints when nobody reads its last bytes.

    So it ends whenever Spark has closed its socket, for example because it was idle for a minute.
    """

    def work(*given: Any) -> int:
        try:
            return worker(*given)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return work


def main() -> None:
    warm()
    hide_from_collector()
    daemon.worker = quietly(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
