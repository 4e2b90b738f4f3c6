"""A prepared data set: an RDD of handles on block files, and what one pass told about the rows."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
from py4j.protocol import Py4JError
from pyspark import StorageLevel

from sparkdml.data.block import Block
from sparkdml.data.combine import combine
from sparkdml.data.handle import Handle, Home, read_statistics, read_totals
from sparkdml.data.ingest import Refusal, decode
from sparkdml.data.open_blocks import MissingBlocksError, forget_removed, open_handle
from sparkdml.data.reader import BadInputError, Columns
from sparkdml.data.statistics import WIDE_FEATURES, Statistics
from sparkdml.data.store import arrays_in, block_of, home_of, local_directories, remove_home
from sparkdml.resources import interpreter
from sparkdml.resources.slots import task_slots

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

logger = logging.getLogger(__name__)


#: Times in a row that lost block files may be built again within one round.
MAX_REBUILDS = 5


class FilesVanishError(RuntimeError):
    """Something deletes block files as fast as they are built."""

    def __init__(self) -> None:
        super().__init__(
            f"block files vanished {MAX_REBUILDS} times within one round; something deletes them while the fit runs: "
            "keep spark.local.dir out of reach of cleaning scripts"
        )


class InputChangedError(RuntimeError):
    """Lost blocks were built again from other rows than before."""


@dataclass(frozen=True)
class Sighting:
    """What a round tells of the partition that it worked on."""

    digest: int
    homes: frozenset[Home]


class Dataset:
    """Rows as blocks on the executors. Use it as a context manager, or call :meth:`close`: its files then vanish.

    Attributes
    ----------
    totals : weight sum and label histogram of all rows.
    statistics : the same, with means and variances.
    features, rows, partitions : their numbers; partitions without rows do not count.
    stored_bytes : size of the block files.
    ingest_seconds : time that preparing took.
    """

    #: Whether rows may be dealt among workers otherwise than by partition.
    divisible = True

    def __init__(self, identity: str, records: RDD, columns: Columns) -> None:
        self.id = identity
        self.context: SparkContext = records.context
        self.columns = columns
        self._records = records.persist(StorageLevel.MEMORY_AND_DISK)
        self._handles: RDD[Handle] = records.flatMap(_handle_of)
        self._closed = False
        self._homes: set[Home] = set()
        try:
            self._take_stock()
        except BaseException:
            self.close()
            raise

    def _take_stock(self) -> None:
        started = time.perf_counter()
        outcomes = self._first_pass()
        found = [outcome for outcome in outcomes if isinstance(outcome, Handle)]
        self.handles = tuple(sorted(found, key=lambda handle: handle.partition))
        for handle in self.handles:
            self._homes |= handle.homes
        refusals = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
        if refusals:
            raise min(refusals, key=lambda refusal: refusal.partition).to_error()
        self._check_widths()
        self.totals = self._merged_totals()
        if self.features <= WIDE_FEATURES:
            self._check_range(self.statistics)
        self.ingest_seconds = time.perf_counter() - started
        logger.info(
            "prepared %d rows x %d features in %d partitions: %.1f MB in %.2f s",
            self.rows, self.features, self.partitions, self.stored_bytes / 1e6, self.ingest_seconds,
        )  # fmt: skip

    def _first_pass(self) -> list[Handle | Refusal]:
        """Read all rows; what comes back is one small record a partition."""
        try:
            records = self._records.collect()
        except Exception as error:
            explained = interpreter.explain(self.context, error)
            if explained is not None:
                raise explained from error
            raise
        return [decode(_record_bytes(record)) for record in records]

    def _check_widths(self) -> None:
        """Every partition checked its own rows; here they are compared with one another."""
        if not self.handles:
            absent = "no rows of non-zero weight" if self.columns.weight else "no rows"
            raise ValueError(f"the data set is empty: it has {absent}; look at filters and joins before fit")
        first = self.handles[0]
        for handle in self.handles:
            if handle.features != first.features:
                raise BadInputError(
                    f"column '{self.columns.features}' has {first.features} features in partition {first.partition} "
                    f"and {handle.features} in partition {handle.partition}; give every row the same number"
                )

    def _check_range(self, statistics: Statistics) -> None:
        """Values whose squares overflow have no variance to scale by."""
        wrong = ~np.isfinite(statistics.m2)
        if wrong.any():
            feature = int(np.argmax(wrong))
            raise BadInputError(overflow(self.columns.features, feature, statistics.mean[feature]))

    @cached_property
    def statistics(self) -> Statistics:
        """:attr:`totals`, and mean, variance and non-zeros of every feature: arrays as long as there are features."""
        return self._merged_statistics()

    def _merged_totals(self) -> Statistics:
        return reduce(Statistics.merge, map(read_totals, self.handles))

    def _merged_statistics(self) -> Statistics:
        here = socket.gethostname()
        if all(handle.host == here for handle in self.handles):
            with contextlib.suppress(OSError):  # same name, another file system or user: ask the workers
                return reduce(Statistics.merge, map(_dense_statistics, self.handles))
        width = 24 * self.features
        merged = combine(self._handles.map(_dense_statistics), Statistics.merge, width, len(self.handles))
        assert merged is not None
        return merged

    @property
    def features(self) -> int:
        return self.handles[0].features

    @property
    def rows(self) -> int:
        return self.totals.rows

    @property
    def partitions(self) -> int:
        return len(self.handles)

    @property
    def stored_bytes(self) -> int:
        return sum(handle.stored_bytes for handle in self.handles)

    def rdd(self) -> RDD[Handle]:
        """The handles, one a partition that has rows; tasks over it go where the files are."""
        self.check_open()
        return self._handles

    def check_open(self) -> None:
        """Raise ValueError if the data set was closed."""
        if self._closed:
            raise ValueError("the data set is closed; prepare it again")

    def rebuild(self, partitions: Iterable[int]) -> None:
        """Forget the handles of ``partitions``: the next job reads their rows again, from their lineage."""
        lost = sorted(partitions)
        logger.warning("block files of partitions %s are gone; reading these rows again", lost)
        try:
            forget_partitions(self._records, lost)
        except Py4JError as error:
            logger.warning("cannot forget single partitions (%s); reading all of them again", error)
            self._records.unpersist(blocking=True)
            self._records.persist(StorageLevel.MEMORY_AND_DISK)

    def open_here(self) -> list[Sequence[Block]]:
        """The blocks of every partition, mapped into this process, which must be on their host.

        Lost files are built again by a job, from the same rows or not at all (:meth:`confirm`).
        """
        self.check_open()
        for _ in range(MAX_REBUILDS):
            opened, missing = [], []
            for handle in self.handles:
                try:
                    opened.append(open_handle(handle))
                except MissingBlocksError:
                    missing.append(handle.partition)
            if not missing:
                return opened
            self.restore(missing)
        raise FilesVanishError

    def bring_here(self) -> list[Sequence[Block]]:
        """The blocks of every partition in this process's memory, whichever hosts have the files."""
        for _ in range(MAX_REBUILDS):
            brought = self.rdd().map(_content_of).collect()
            missing = [handle.partition for handle, contents in brought if contents is None]
            if missing:
                self.restore(missing)
                continue
            self.confirm({handle.partition: Sighting(handle.digest, handle.homes) for handle, _ in brought})
            return [
                [block_of(f, arrays_in(content, f)) for f, content in zip(handle.blocks, contents or [], strict=True)]
                for handle, contents in sorted(brought, key=lambda pair: pair[0].partition)
            ]
        raise FilesVanishError

    def restore(self, partitions: Iterable[int]) -> None:
        """Build lost partitions again, now, and check that they have the rows that they had."""
        self.rebuild(partitions)
        handles = self.rdd().collect()
        self.confirm({handle.partition: Sighting(handle.digest, handle.homes) for handle in handles})
        self.handles = tuple(sorted(handles, key=lambda handle: handle.partition))

    @property
    def stored_values(self) -> float:
        """Numbers in the rows as they are stored: zeros of dense rows count."""
        shapes = [block.arrays["values"].shape for handle in self.handles for block in handle.blocks]
        return float(sum(math.prod(shape) for shape in shapes))

    @property
    def has_sparse_blocks(self) -> bool:
        """Whether some rows are stored sparse."""
        return any("indptr" in block.arrays for handle in self.handles for block in handle.blocks)

    @property
    def is_here(self) -> bool:
        """Whether the block files are on this process's host and file system (as in Spark's local mode)."""
        here = socket.gethostname()
        files = (block.path for handle in self.handles for block in handle.blocks)
        return all(handle.host == here for handle in self.handles) and all(map(os.path.exists, files))

    def confirm(self, seen: dict[int, Sighting]) -> None:
        """Check that a round met every partition with the rows that it had at first, wherever they lie by now.

        Raises InputChangedError if lost partitions came back with other rows.
        """
        for sighting in seen.values():
            self._homes |= sighting.homes
        first = {handle.partition: handle.digest for handle in self.handles}
        now = {partition: sighting.digest for partition, sighting in seen.items()}
        if first == now:
            return
        changed = sorted(p for p in first.keys() | now.keys() if first.get(p) != now.get(p))
        raise InputChangedError(
            f"partitions {changed} were lost, read again, and came back with other rows than before: the input is "
            "not deterministic (rand, a sample without seed, a source that changes). Cache it, or write it and read "
            f"it back, before fit; columns read: '{self.columns.features}', '{self.columns.label}'"
        )

    def close(self) -> None:
        """Remove the block files and free what Spark keeps of them. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        here = socket.gethostname()
        try:
            for host, home in self._homes:
                if host == here:
                    remove_home(home)
            if not self._homes or any(host != here for host, _ in self._homes):
                self._remove_elsewhere()
        finally:
            forget_removed()
            if self.context._jsc is not None:  # else the context was stopped, and nothing is left to free
                with contextlib.suppress(Py4JError):
                    self._records.unpersist()

    def _remove_elsewhere(self) -> None:
        """Ask every slot to remove what its executor has of this data set."""
        if self.context._jsc is None:
            return  # stopped: Spark has removed its local directories
        dataset = self.id

        def clean(_: object) -> None:
            for root in local_directories():
                remove_home(home_of(root, dataset))

        try:
            slots = task_slots(self.context)
            self.context.parallelize(range(slots), slots).foreach(clean)
        except Exception as error:
            logger.warning("block files stay until the application ends: %s", error)

    def __enter__(self) -> Dataset:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def forget_partitions(rdd: RDD, partitions: Iterable[int]) -> None:
    """Drop the cached blocks of some partitions; Spark itself only offers to drop all."""
    jvm = rdd.context._jvm
    assert jvm is not None
    # By reflection: py4j would look at every method of SparkEnv, some of which need classes that are not shipped.
    field = jvm.java.lang.Class.forName("org.apache.spark.SparkEnv").getDeclaredField("blockManager")
    field.setAccessible(True)
    master = field.get(rdd.context._jsc.sc().env()).master()
    for partition in partitions:
        master.removeBlock(jvm.org.apache.spark.storage.RDDBlockId(rdd.id(), partition))


def overflow(column: str, feature: int, near: float) -> str:
    """What is wrong with a feature whose variance is not finite."""
    return (
        f"column '{column}': feature {feature} has values near {abs(near):.0e} or larger, whose variance overflows; "
        "rescale it"
    )


def _dense_statistics(handle: Handle) -> Statistics:
    return read_statistics(handle).dense()


def _record_bytes(record: object) -> bytes:
    return bytes(record if isinstance(record, (bytes, bytearray)) else record[0])  # type: ignore[index]


def _content_of(handle: Handle) -> tuple[Handle, list[bytes] | None]:
    """The block files themselves; None if some are gone."""
    try:
        open_handle(handle)
        return handle, [Path(block.path).read_bytes() for block in handle.blocks]
    except (MissingBlocksError, FileNotFoundError):
        return handle, None


def _handle_of(record: object) -> list[Handle]:
    outcome = decode(_record_bytes(record))
    if isinstance(outcome, Refusal):
        # The first pass went well, so this partition is being rebuilt. Rows that are bad now have changed, which
        # `confirm` reports when it finds the partition gone; a full disk is another matter.
        if outcome.kind == "storage":
            raise outcome.to_error()
        return []
    return [outcome]
