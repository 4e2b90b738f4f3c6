"""Factorization machines over a worker's rows: margins, loss and gradient.

Kernels read stored values of float32 or float64, and compute in float64. Coefficients are one array (d, 1 + k),
feature-major: a feature's linear coefficient, then its k factors. A row's sums of factors are kept from its margin
to its gradient.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from sparkdml.data.block import Block, DenseBlock, Part, SparseBlock
from sparkdml.losses.base import Loss
from sparkdml.resources.compiled import compiled


@dataclass(frozen=True)
class Factorized(Loss):
    """``loss`` of the margins of a factorization machine.

    ``m(x) = intercept + sum_j w_j x_j + 1/2 sum_f [(sum_j v_jf x_j)^2 - sum_j v_jf^2 x_j^2]``, f from 1 to ``factors``:
    each pair of features i < j adds ``<v_i, v_j> x_i x_j`` (Rendle, "Factorization machines", 2010).

    A feature has 1 + ``factors`` coefficients, which is what ``outputs`` tells problems, though a row has one margin.
    There is one intercept whatever their number: a parameter of the loss itself. Not for methods that take margins to
    be linear in the coefficients.
    """

    loss: Loss
    factors: int
    fit_intercept: bool = True
    intercept: float = 0.0

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return 1 + self.factors

    @property
    def extras(self) -> int:  # type: ignore[override]
        return int(self.fit_intercept)

    @property
    def curvature(self) -> float:  # type: ignore[override]
        return self.loss.curvature

    def at(self, extras: np.ndarray) -> Factorized:
        return replace(self, intercept=float(extras[0])) if self.fit_intercept else self

    def evaluate(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray, slopes: np.ndarray) -> float:
        """As :meth:`Loss.evaluate`, of margins without the intercept; margins and slopes have shape (n, 1)."""
        assert margins.shape[1] == 1, "a factorization machine's margins are not its features @ coefficients"
        return self.loss.evaluate(margins + self.intercept, labels, weights, slopes)


def loss_and_gradient(loss: Factorized, point: np.ndarray, parts: Iterable[Part]) -> tuple[float, np.ndarray]:
    """The weighted loss over the rows of ``parts``, and its derivative by ``point``, float64 (size,).

    ``point`` holds the coefficients (d, 1 + k), feature-major, and the intercept if there is one.
    """
    machine = _Machine.at(loss, point)
    gradient = np.zeros(len(point))
    by_feature = gradient[: machine.coefficients.size].reshape(machine.coefficients.shape)
    total, slope_sum = 0.0, 0.0
    for block, start, stop in _chunks(parts, loss.outputs):
        sums, margins = machine.margins(block, start, stop)
        slopes = np.empty_like(margins)
        total += machine.loss.evaluate(margins, block.labels[start:stop], block.weights[start:stop], slopes)
        slope_sum += float(np.sum(slopes))
        machine.accumulate(block, start, stop, slopes[:, 0], sums, by_feature)
    gradient[machine.coefficients.size :] = slope_sum
    return total, gradient


def total_loss(loss: Factorized, point: np.ndarray, parts: Iterable[Part]) -> float:
    """The weighted loss alone; arguments as in :func:`loss_and_gradient`."""
    machine = _Machine.at(loss, point)
    total = 0.0
    for block, start, stop in _chunks(parts, loss.outputs):
        _, margins = machine.margins(block, start, stop)
        slopes = np.empty_like(margins)
        total += machine.loss.evaluate(margins, block.labels[start:stop], block.weights[start:stop], slopes)
    return total


def _chunks(parts: Iterable[Part], outputs: int) -> Iterable[Part]:
    for block, start, stop in parts:
        rows = block.chunk_rows(outputs)
        for low in range(start, stop, rows):
            yield block, low, min(low + rows, stop)


@dataclass(frozen=True)
class _Machine:
    """Coefficients (d, 1 + k), and ``squares`` (d,), each feature's sum of squared factors."""

    loss: Factorized
    coefficients: np.ndarray
    squares: np.ndarray

    @classmethod
    def at(cls, loss: Factorized, point: np.ndarray) -> _Machine:
        end = len(point) - loss.extras
        coefficients = point[:end].reshape(-1, loss.outputs)
        factors = coefficients[:, 1:]
        return cls(loss.at(point[end:]), coefficients, np.einsum("jf,jf->j", factors, factors))

    def margins(self, block: Block, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """The sums ``X[start:stop] @ coefficients``, (n, 1 + k), and the margins without the intercept, (n, 1)."""
        sums = np.empty((stop - start, self.loss.outputs))
        margins = np.empty((stop - start, 1))
        if isinstance(block, SparseBlock):
            sparse_margins(
                block.indptr, block.indices, block.values, start, stop, self.coefficients, self.squares, sums, margins
            )
        else:
            assert isinstance(block, DenseBlock)
            np.matmul(block.values[start:stop].astype(np.float64, copy=False), self.coefficients, out=sums)
            dense_margins(block.values, start, stop, self.squares, sums, margins)
        return sums, margins

    def accumulate(
        self, block: Block, start: int, stop: int, slopes: np.ndarray, sums: np.ndarray, gradient: np.ndarray
    ) -> None:
        """``gradient += sum_i slopes_i * d m_i / d coefficients``, (d, 1 + k)."""
        if isinstance(block, SparseBlock):
            stored = (block.indptr, block.indices, block.values)
            sparse_accumulate(*stored, start, stop, self.coefficients, slopes, sums, gradient)
        else:
            assert isinstance(block, DenseBlock)
            dense_accumulate(block.values, start, stop, self.coefficients, slopes, sums, gradient)


_fast = compiled(fastmath={"reassoc", "contract", "nsz", "arcp"})
#: Without liberties ``s - x v`` is exactly 0 where a row has no second feature. Rules that divide by a gradient's size
#: would make steps of what rounding leaves.
_exact = compiled()


@_fast
def sparse_margins(indptr, indices, values, start, stop, coefficients, squares, sums, margins):
    """Sums of factors and margins of rows start to stop."""
    columns = coefficients.shape[1]
    for i in range(start, stop):
        row = i - start
        own = 0.0
        for c in range(columns):
            sums[row, c] = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            x = np.float64(values[p])
            j = np.uint32(indices[p])
            own += x * x * squares[j]
            for c in range(columns):
                sums[row, c] += x * coefficients[j, c]
        margins[row, 0] = _paired(sums, row, own)


@_fast
def dense_margins(values, start, stop, squares, sums, margins):
    """Margins of rows start to stop, given their sums."""
    for i in range(start, stop):
        own = 0.0
        for j in range(values.shape[1]):
            x = np.float64(values[i, j])
            own += x * x * squares[j]
        margins[i - start, 0] = _paired(sums, i - start, own)


@_fast
def _paired(sums, row, own):
    """The margin of a row; ``own`` is ``sum_f sum_j v_jf^2 x_j^2``, of features paired with themselves."""
    squared = 0.0
    for c in range(1, sums.shape[1]):
        squared += sums[row, c] * sums[row, c]
    return sums[row, 0] + 0.5 * (squared - own)


@_exact
def sparse_accumulate(indptr, indices, values, start, stop, coefficients, slopes, sums, gradient):
    """``gradient_j0 += slope_i x_ij`` and ``gradient_jf += slope_i x_ij (sums_if - x_ij v_jf)``."""
    columns = coefficients.shape[1]
    for i in range(start, stop):
        row = i - start
        for p in range(indptr[i], indptr[i + 1]):
            x = np.float64(values[p])
            j = np.uint32(indices[p])
            slope = slopes[row] * x
            gradient[j, 0] += slope
            for c in range(1, columns):
                gradient[j, c] += slope * (sums[row, c] - x * coefficients[j, c])


@_exact
def dense_accumulate(values, start, stop, coefficients, slopes, sums, gradient):
    """The same for dense rows, four at a time."""
    columns = coefficients.shape[1]
    i = start
    while i + 4 <= stop:
        r = i - start
        for j in range(values.shape[1]):
            x0, x1 = np.float64(values[i, j]), np.float64(values[i + 1, j])
            x2, x3 = np.float64(values[i + 2, j]), np.float64(values[i + 3, j])
            a, b, c, d = slopes[r] * x0, slopes[r + 1] * x1, slopes[r + 2] * x2, slopes[r + 3] * x3
            gradient[j, 0] += (a + b) + (c + d)
            for f in range(1, columns):
                v = coefficients[j, f]
                first = a * (sums[r, f] - x0 * v) + b * (sums[r + 1, f] - x1 * v)
                second = c * (sums[r + 2, f] - x2 * v) + d * (sums[r + 3, f] - x3 * v)
                gradient[j, f] += first + second
        i += 4
    while i < stop:
        r = i - start
        for j in range(values.shape[1]):
            x = np.float64(values[i, j])
            slope = slopes[r] * x
            gradient[j, 0] += slope
            for f in range(1, columns):
                gradient[j, f] += slope * (sums[r, f] - x * coefficients[j, f])
        i += 1
