"""A problem over any differentiable function of named parameters."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse

from sparkdml.core import Update
from sparkdml.data.block import Block, Part
from sparkdml.problem.base import Differentiable, RowGradient
from sparkdml.resources.threads import each_of

#: Arrays by name; names of nested parts have dots in them (``layer.weights``).
Params = Mapping[str, np.ndarray]


class Examples(NamedTuple):
    """``features`` float32 (n, d), dense or compressed sparse rows; ``labels`` and ``weights`` float64 (n,)."""

    features: np.ndarray | sparse.csr_matrix
    labels: np.ndarray
    weights: np.ndarray


class Function(ABC):
    """``sum_i w_i loss_i(params)`` over rows, with its gradient. Pure and picklable: workers evaluate it.

    Whatever computes gradients can stand behind it: formulas, or a library's automatic differentiation.
    """

    #: Rows that one call is best given: enough for matrix products, few enough for the cache.
    chunk_rows: int = 1024

    @property
    @abstractmethod
    def features(self) -> int:
        """How many features a row has."""

    @property
    @abstractmethod
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of each parameter, in the order of the flat vector."""

    @cached_property
    def size(self) -> int:
        """How many numbers the parameters are."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def params(self, c: np.ndarray) -> dict[str, np.ndarray]:
        """Views of the flat vector ``c``, by name: one parameter after another, each in C order."""
        views, first = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            views[name] = c[first : first + size].reshape(shape)
            first += size
        return views

    @abstractmethod
    def loss_and_gradient(
        self, params: Params, rows: Examples, rng: np.random.Generator | None = None
    ) -> tuple[float, Params]:
        """The weighted sum of losses, and its derivative by each parameter, of any float type.

        ``params`` are float64 views: arithmetic may be in another precision. With ``rng`` the loss may be random
        (dropout), the same for the same draws; without, it is the one to report.
        """

    def loss(self, params: Params, rows: Examples) -> float:
        """The weighted sum of losses alone."""
        return self.loss_and_gradient(params, rows)[0]


@dataclass(frozen=True)
class FunctionProblem(Differentiable):
    """``F(c) = 1/W * function(params of c) + ridge / 2 * |c|^2``."""

    function: Function
    weight_sum: float
    ridge: float = 0.0
    told: float = 1.0

    @property
    def features(self) -> int:
        return self.function.features

    @property
    def outputs(self) -> int:
        return -(-self.size // max(self.features, 1))

    @property
    def size(self) -> int:
        return self.function.size

    @property
    def free(self) -> int:
        return 0

    def sums(self, blocks: Sequence[Block], c: np.ndarray) -> Update:
        value, gradient = self.loss_and_gradient(c, whole(blocks), None)
        return {"loss": value, "gradient": gradient}

    def loss_and_gradient(
        self, c: np.ndarray, parts: Iterable[Part], rng: np.random.Generator | None
    ) -> tuple[float, np.ndarray]:
        """The sum of losses over ``parts``, and its gradient (size,): both summed in float64."""
        value, gradient, params = 0.0, np.zeros(self.size), self.function.params(c)
        totals = self.function.params(gradient)
        for part in self._chunks(parts):
            loss, slopes = self.function.loss_and_gradient(params, _examples(part), rng)
            value += loss
            for name, total in totals.items():
                total += slopes[name]
        return value, gradient

    def loss_sum(self, blocks: Sequence[Block], c: np.ndarray, threads: int = 1) -> float:
        params, chunks = self.function.params(c), list(self._chunks(whole(blocks)))
        values = [0.0] * len(chunks)

        def evaluate(number: int) -> None:
            values[number] = self.function.loss(params, _examples(chunks[number]))

        each_of(range(len(chunks)), evaluate, threads)
        return float(sum(values))

    def row_gradient(self, rng: np.random.Generator) -> RowGradient:
        return _FunctionGradient(self, rng)

    def evaluate(self, c: np.ndarray, total: Update) -> tuple[float, np.ndarray]:
        value = self.objective(c, float(total["loss"]))
        return value, np.asarray(total["gradient"]) / self.weight_sum + self.ridge * c

    def penalty_at(self, c: np.ndarray) -> float:
        return 0.5 * self.ridge * float(c @ c)

    def strengths(self) -> tuple[np.ndarray, np.ndarray]:
        return np.full(self.size, self.ridge), np.zeros(self.size)

    def curvature(self) -> np.ndarray:
        return np.full(self.size, 1.0 + self.ridge)

    def split(self, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return c[:, None], c[:0]

    def _chunks(self, parts: Iterable[Part]) -> Iterator[Part]:
        step = self.function.chunk_rows
        for block, start, stop in parts:
            yield from ((block, low, min(low + step, stop)) for low in range(start, stop, step))


def _examples(part: Part) -> Examples:
    block, start, stop = part
    return Examples(block.float32(start, stop), block.labels[start:stop], block.weights[start:stop])


def whole(blocks: Sequence[Block]) -> list[Part]:
    """All rows of ``blocks``."""
    return [(block, 0, block.rows) for block in blocks]


@dataclass(frozen=True)
class _FunctionGradient(RowGradient):
    problem: FunctionProblem
    rng: np.random.Generator

    def __call__(self, point: np.ndarray, parts: Iterable[Part]) -> np.ndarray:
        return self.problem.loss_and_gradient(point, parts, self.rng)[1]
