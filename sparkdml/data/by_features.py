"""Every worker gets all rows, but only some of their columns: for methods that work on coordinates."""

from __future__ import annotations

import hashlib
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from sparkdml.data.block import Block, DenseBlock, SparseBlock
from sparkdml.data.dataset import Dataset
from sparkdml.data.handle import Handle
from sparkdml.data.open_blocks import open_handle
from sparkdml.data.statistics import Statistics
from sparkdml.data.store import local_directories
from sparkdml.data.writer import PartitionWriter
from sparkdml.resources.slots import task_slots


class Columns(NamedTuple):
    """The entries of some columns in the rows of one block; ``place`` puts blocks in order."""

    place: tuple[int, int]
    labels: np.ndarray
    weights: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray


class FeatureDataset(Dataset):
    """The rows of another data set, which must stay open, with one partition for each range of columns.

    Blocks are sparse, keep the numbers of features as they are, and hold every row in the same order; statistics are
    those of ``source``. Ranges have about the same number of non-zeros.
    """

    divisible = False

    def __init__(self, source: Dataset, parts: int | None = None) -> None:
        source.check_open()
        if all(handle.host == socket.gethostname() for handle in source.handles):
            source.open_here()  # lost files are built again before they are cut
        self._source = source
        bounds = column_bounds(source.statistics.nonzeros, parts or task_slots(source.context))
        identity = uuid.uuid4().hex[:16]
        pieces = source.rdd().flatMap(_cutter(bounds))
        grouped = pieces.groupByKey(len(bounds) - 1, lambda part: int(part))
        super().__init__(identity, grouped.map(_columns_writer(identity, source.features)), source.columns)

    def _merged_totals(self) -> Statistics:
        return self._source.totals

    def _merged_statistics(self) -> Statistics:
        return self._source.statistics


def column_bounds(nonzeros: np.ndarray, parts: int) -> np.ndarray:
    """Where ranges of columns begin and end, int64 (at most ``parts`` + 1,), none of them empty."""
    parts = min(parts, len(nonzeros))
    filled = np.cumsum(nonzeros + 1e-9)
    inner = np.searchsorted(filled, filled[-1] * np.arange(1, parts) / parts) + 1
    # a heavy column must not leave a neighbour without any
    lowest, highest = np.arange(1, parts), len(nonzeros) - np.arange(parts - 1, 0, -1)
    inner = np.minimum(np.maximum.accumulate(np.maximum(inner - lowest, 0)) + lowest, highest)
    return np.concatenate([[0], inner, [len(nonzeros)]]).astype(np.int64)


def cut(block: Block, low: int, high: int, place: tuple[int, int]) -> Columns:
    """Columns ``low`` to ``high`` of all rows of ``block``."""
    if isinstance(block, DenseBlock):
        part = block.values[:, low:high]
        row, column = np.nonzero(part)
        counts, indices, values = np.bincount(row, minlength=block.rows), column + low, part[row, column]
    else:
        assert isinstance(block, SparseBlock)
        first, last = block.indptr[0], block.indptr[-1]
        chosen = (block.indices[first:last] >= low) & (block.indices[first:last] < high)
        kept = np.concatenate([[0], np.cumsum(chosen)])
        counts = np.diff(kept[block.indptr - first])
        indices, values = block.indices[first:last][chosen], block.values[first:last][chosen]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Columns(
        place, np.array(block.labels), np.array(block.weights), indptr, indices.astype(np.int32), np.array(values)
    )


def _cutter(bounds: np.ndarray) -> Callable[[Handle], Iterator[tuple[int, Columns]]]:
    def run(handle: Handle) -> Iterator[tuple[int, Columns]]:
        for number, block in enumerate(open_handle(handle)):
            for part, (low, high) in enumerate(zip(bounds, bounds[1:], strict=False)):
                yield part, cut(block, int(low), int(high), (handle.partition, number))

    return run


def _columns_writer(dataset: str, features: int) -> Callable[[tuple[int, Iterable[Columns]]], bytes]:
    def run(entry: tuple[int, Iterable[Columns]]) -> bytes:
        part, pieces = entry
        digest = hashlib.sha256()
        with PartitionWriter(dataset, part, local_directories()) as writer:
            for piece in sorted(pieces, key=lambda piece: piece.place):
                arrays = {name: [getattr(piece, name)] for name in Columns._fields[1:]}
                for (array,) in arrays.values():
                    digest.update(array.tobytes())
                writer.add_block(features, arrays)
            blocks = writer.blocks
        number = int.from_bytes(digest.digest()[:7], "big")
        return Handle(dataset, part, socket.gethostname(), features, number, blocks).to_bytes()

    return run
