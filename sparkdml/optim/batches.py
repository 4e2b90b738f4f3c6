"""Which of a worker's rows come next, and those rows gathered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sparkdml.core import Turn
from sparkdml.data.block import CHUNK_BYTES, Block, Part


class Batch(NamedTuple):
    """``rows`` rows of weights above 0, in ``parts``."""

    parts: list[Part]
    rows: int


class Order(ABC):
    """Draws rows."""

    #: Whether as many draws as there are rows are all the rows.
    exhaustive: bool

    @abstractmethod
    def draw(self, rows: int, count: int, rng: np.random.Generator) -> np.ndarray:
        """``count`` of the numbers below ``rows``, int64 (count,), in the order in which they are to be used.

        Each row has the same chance to be at each place, so any part of the draws is an unbiased sample.
        """


@dataclass(frozen=True)
class Shuffled(Order):
    """Without replacement: ``count`` (at most ``rows``) different rows; where it is ``rows``, a permutation of all."""

    exhaustive = True

    def draw(self, rows: int, count: int, rng: np.random.Generator) -> np.ndarray:
        return rng.permutation(rows) if count == rows else rng.choice(rows, count, replace=False)


@dataclass(frozen=True)
class WithReplacement(Order):
    """Independent draws, which many proofs suppose; a third of the rows are missing from each epoch."""

    exhaustive = False

    def draw(self, rows: int, count: int, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(0, rows, count)


ORDERS: dict[str, Callable[[], Order]] = {"shuffled": Shuffled, "with-replacement": WithReplacement}


def generator(seed: int, turn: Turn, epoch: int = 0) -> np.random.Generator:
    """What one worker draws from in one epoch of one round: the same when its task is repeated."""
    return np.random.default_rng([seed % 2**64, turn.worker, turn.clock, epoch])


class Rows:
    """A worker's rows, numbered through its blocks. Rows of weight 0 are left out: they have no number.

    Attributes
    ----------
    count : how many rows there are.
    mean_weight : the mean of their weights; 0 without rows.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = [block for block in blocks if block.rows]
        self._starts = np.cumsum([0, *(block.rows for block in self._blocks)])
        self._numbers: np.ndarray | None = None
        self.count = int(self._starts[-1])
        if not all(block.weights.all() for block in self._blocks):
            self._numbers = np.flatnonzero(np.concatenate([block.weights for block in self._blocks]))
            self.count = len(self._numbers)
        weight_sum = float(sum(block.weights.sum() for block in self._blocks))
        self.mean_weight = weight_sum / self.count if self.count else 0.0

    @property
    def sparse(self) -> bool:
        """Whether a batch has some of the features only. Blocks of dense rows have all, even with no row in them."""
        return all(len(block.between(0, 0).compact()[0]) == 0 for block in self._blocks)

    def whole(self) -> Batch:
        """All rows as they are stored, those of weight 0 among them: they add nothing to a sum."""
        return Batch([(block, 0, block.rows) for block in self._blocks], self.count)

    def sample(
        self, fraction: float, outputs: int, order: Order, rng: np.random.Generator
    ) -> tuple[Iterable[Part], float]:
        """``fraction`` of the rows, rounded and at least one, and by what their sums are multiplied to stand for all.

        ``outputs`` margins a row set how many are gathered at once.
        """
        if fraction == 1.0 or not self.count:
            return self.whole().parts, 1.0
        count = max(round(fraction * self.count), 1)
        # in the order in which they are stored, reading is faster
        drawn = np.sort(order.draw(self.count, count, rng))
        chunk = max(block.chunk_rows(outputs) for block in self._blocks)
        return (part for batch in self.batches(drawn, chunk) for part in batch.parts), self.count / count

    def batches(self, numbers: np.ndarray, batch_size: int) -> Iterator[Batch]:
        """The rows of these numbers, ``batch_size`` at a time; the last batch may have fewer.

        A batch has one part, or two if it has dense and sparse rows. Order within a batch is not kept.
        """
        if self._numbers is not None:
            numbers = self._numbers[numbers]
        row_bytes = sum(block.nbytes for block in self._blocks) / self._starts[-1]
        # Gathering costs Python about as much as a small batch's gradient: a stretch of batches shares it, and the
        # cache still holds its rows when their turn comes.
        stretch = batch_size * max(int(CHUNK_BYTES / max(row_bytes, 1.0)) // batch_size, 1)
        for start in range(0, len(numbers), stretch):
            yield from self._gathered(numbers[start : start + stretch], batch_size)

    def _gathered(self, numbers: np.ndarray, batch_size: int) -> Iterator[Batch]:
        """The batches of one stretch."""
        edges = [*range(0, len(numbers), batch_size), len(numbers)]
        kinds = [
            (block, np.searchsorted(places, edges).tolist()) for block, places in self._by_kind(numbers) if len(places)
        ]
        for n in range(len(edges) - 1):
            parts = [(block, cuts[n], cuts[n + 1]) for block, cuts in kinds if cuts[n] < cuts[n + 1]]
            yield Batch(parts, edges[n + 1] - edges[n])

    def _by_kind(self, numbers: np.ndarray) -> Iterator[tuple[Block, np.ndarray]]:
        """For each class of blocks its rows among these, and their places in ``numbers``, increasing."""
        if len(self._blocks) == 1:
            yield self._blocks[0].take(numbers), np.arange(len(numbers))
            return
        homes = np.searchsorted(self._starts, numbers, side="right") - 1
        kinds: dict[type[Block], list[tuple[Block, np.ndarray]]] = {}
        for home in np.unique(homes):
            places = np.flatnonzero(homes == home)
            block = self._blocks[home]
            kinds.setdefault(type(block), []).append((block.take(numbers[places] - self._starts[home]), places))
        for found in kinds.values():
            (first, _), *others = found
            places = np.concatenate([places for _, places in found])
            order = np.argsort(places)
            yield first.joined([block for block, _ in others]).take(order), places[order]
