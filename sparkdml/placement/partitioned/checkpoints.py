"""The states of all shards in a folder that outlives executors: they write it, and fill new shards from it.

The folder has Parquet files with rows ``shard int, part int, tree string, features binary, array0 binary, ...``: a
part's feature numbers (int64), and the entries of each array of the state for these (float64); ``tree``, in the first
part alone, is what else the state holds. A shard is one file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from pyspark.sql import SparkSession

from sparkdml.algorithms.sharded import as_stored
from sparkdml.algorithms.states import describe
from sparkdml.placement.partitioned.files import ShardFiles
from sparkdml.placement.partitioned.jobs import LostError, ask_shards
from sparkdml.placement.partitioned.layout import Layout, Missing, Position, ShardAnswer
from sparkdml.placement.partitioned.mail import Mail, delivered
from sparkdml.placement.ship import Shipped
from sparkdml.resources.worker import limit_threads, settle

if TYPE_CHECKING:
    from pyspark import RDD

#: Bytes of one array in a row, of a row group, and of a shard's arrays that are read in one job.
PART_BYTES, ROW_GROUP, READ_BYTES = 2**16, 2**23, 2**26

Task = Callable[..., Iterator[Any]]


@dataclass(frozen=True)
class Kept:
    """What the driver knows of a checkpoint after so many rounds: the states of shards are in ``folder``.

    files, nbytes : how many Parquet files are there, and their bytes together. coordinates : of all shards.
    """

    position: Position
    rounds: int
    bounds: np.ndarray
    coordinates: int
    folder: str = ""
    files: int = 0
    nbytes: int = 0


class Keeper(Protocol):
    """Where a fit's checkpoints are."""

    def latest(self) -> Kept | None:
        """The newest one, if there is one and all of it is there."""

    def due(self, rounds: int) -> bool:
        """Whether there is to be one after so many rounds."""

    def keep(self, kept: Kept, write: Callable[[str], None]) -> None:
        """Let ``write`` fill a new folder; ``kept`` then tells of it, and takes the place of what was kept before."""

    def path(self, kept: Kept) -> str:
        """Where the folder of ``kept`` is."""


def write_states(anchor: RDD, layout: Shipped, position: Position, path: str) -> None:
    """Let shards write their states into the new folder ``path``."""
    names = _arrays(position)
    rows = anchor.mapPartitions(_saving(layout, position.generation))
    frame = SparkSession.active().createDataFrame(rows, _schema(names), verifySchema=False)
    # doubles do not get smaller
    options: dict[str, Any] = {
        "compression": "uncompressed",
        "parquet.enable.dictionary": "false",
        "parquet.block.size": ROW_GROUP,
    }
    frame.write.options(**options).parquet(path)


def read_states(anchor: RDD, layout: Shipped, kept: Kept, path: str) -> Position:
    """Let shards that have begun, in the ranges of ``kept``, have the states that are in the folder ``path``."""
    generation, names = kept.position.generation, _arrays(kept.position)
    rows = SparkSession.active().read.schema(_schema(names)).parquet(path)
    shard_bytes = 8 * kept.coordinates // (len(kept.bounds) - 1)
    at_once = max(READ_BYTES // max(shard_bytes, 1), 1)
    for first in range(0, len(names), at_once):
        mail = rows.select("shard", "part", "features", *names[first : first + at_once]).rdd.map(_addressed)
        lost = delivered(anchor, _bringing(layout, generation, first), mail).collect()
        if lost:
            raise LostError(lost)
    trees = rows.where("tree is not null").select("shard", "part", "tree").rdd.map(_addressed)
    answers = ask_shards(anchor, _assembling(layout, generation, len(names)), trees)
    shift = np.sum([answer.shift for answer in answers], axis=0)
    return replace(kept.position, published=generation, shift=shift)


def _arrays(position: Position) -> list[str]:
    """Names of the arrays of a shard's state, which are those of the tail's."""
    return list(describe(position.tail)[1])


def _schema(names: Sequence[str]) -> str:
    return ", ".join(["shard int", "part int", "tree string", "features binary", *(f"{name} binary" for name in names)])


def _addressed(row: Sequence[Any]) -> tuple[int, tuple[int, list[Any]]]:
    """From ``(shard, part, ...)`` to mail."""
    return row[0], (row[1], list(row[2:]))


def _saving(layout: Shipped, generation: int) -> Callable[[Iterable[int]], Iterator[Any]]:
    def save(numbers: Iterable[int]) -> Iterator[Any]:
        limit_threads()
        there: Layout = layout.value
        outputs = there.objective.loss.outputs
        step = max(PART_BYTES // (8 * outputs), 1)
        for number in list(numbers):
            files = ShardFiles(there.shards[number].directory)
            columns = files.statics()["columns"]
            tree, arrays = describe(files.load(generation))
            content = [columns, *(array.reshape(len(columns), outputs) for array in arrays.values())]
            for part, low in enumerate(range(0, max(len(columns), 1), step)):
                told = json.dumps(tree) if part == 0 else None
                yield number, part, told, *(bytearray(values[low : low + step].tobytes()) for values in content)
        settle()

    return save


def _bringing(layout: Shipped, generation: int, first: int) -> Task:
    """Leave arrays, from number ``first``, where shards keep theirs; features are found by their numbers.

    One that was not there has entries of 0: in a column of zeros, and only there, it depends on how rows are stored
    whether a feature occurs.
    """

    def bring(number: int, mail: Mail) -> Iterator[Missing]:
        there: Layout = layout.value
        files = ShardFiles(there.shards[number].directory)
        try:
            columns = files.statics()["columns"]
        except FileNotFoundError as error:
            yield Missing("shard", number, str(error))
            return
        features, *arrays = (b"".join(pieces) for pieces in zip(*(mail[part] for part in sorted(mail)), strict=True))
        known = np.frombuffer(features, np.int64)
        _, now, then = np.intersect1d(columns, known, assume_unique=True, return_indices=True)
        for offset, content in enumerate(arrays):
            array = np.zeros((len(columns), there.objective.loss.outputs))
            array[now] = np.frombuffer(content).reshape(len(known), -1)[then]
            files.bring(generation, first + offset, array.ravel())

    return _over_shards(bring)


def _assembling(layout: Shipped, generation: int, count: int) -> Task:
    """Make the state of the arrays that were brought, show it to workers, and drop what shards began with."""

    def assemble(number: int, mail: Mail) -> Iterator[ShardAnswer | Missing]:
        there: Layout = layout.value
        place = there.shards[number]
        files = ShardFiles(place.directory)
        ((tree,),) = mail.values()
        try:
            statics = files.statics()
            state = files.assemble(generation, json.loads(tree), count)
        except FileNotFoundError as error:
            yield Missing("shard", number, str(error))
            return
        problem = there.objective.shard(statics["mean"], statics["std"])
        coefficients, shift = as_stored(problem, state.coef)
        files.publish(generation, coefficients)
        files.keep([generation], [generation])
        yield ShardAnswer(place, {}, shift, problem.size)

    return _over_shards(assemble)


def _over_shards(action: Callable[[int, Mail], Iterator[Any]]) -> Task:
    def run(numbers: Iterable[int], mail: Mail) -> Iterator[Any]:
        limit_threads()
        for number in list(numbers):
            yield from action(number, mail)
        settle()

    return run
