"""A prepared data set: an RDD of handles on block files, and what one pass told about the rows."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import StorageLevel

from sparkdml.data.combine import combine
from sparkdml.data.handle import Handle, Home, read_statistics
from sparkdml.data.ingest import Refusal, decode
from sparkdml.data.reader import Columns
from sparkdml.data.statistics import Statistics
from sparkdml.data.store import home_of, local_directories, remove_home
from sparkdml.resources import interpreter
from sparkdml.resources.slots import task_slots

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

logger = logging.getLogger(__name__)


class InputChangedError(RuntimeError):
    """Lost blocks were built again from other rows than before."""


@dataclass(frozen=True)
class Sighting:
    """What a round tells of the partition that it worked on."""

    digest: int
    homes: frozenset[Home]


@dataclass(frozen=True)
class Inventory:
    """What the tasks of the first pass report; merged over partitions."""

    statistics: Statistics | None = None
    handles: tuple[Handle, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    def merge(self, other: Inventory) -> Inventory:
        mine, yours = self.statistics, other.statistics
        refusals = self.refusals + other.refusals
        if mine and yours and mine.features != yours.features:
            sizes = sorted({mine.features, yours.features})
            where = sorted(h.partition for h in other.handles)[0]
            text = (
                f"rows have {sizes[0]} features in some partitions and {sizes[1]} in others "
                f"(one of them is partition {where}); give every row the same number of features"
            )
            refusals, yours = (*refusals, Refusal("input", where, text)), None
        merged = mine.merge(yours) if mine and yours else mine or yours
        return Inventory(merged, self.handles + other.handles, refusals)


class Dataset:
    """Rows as blocks on the executors. Use it as a context manager, or call :meth:`close`: its files then vanish.

    Attributes
    ----------
    statistics : weight sum, means, variances, label histogram of all rows.
    features, rows, partitions : their numbers; partitions without rows do not count.
    stored_bytes : size of the block files.
    ingest_seconds : time that preparing took.
    """

    def __init__(
        self, identity: str, records: RDD, columns: Columns, tasks: int, feature_names: tuple[str, ...] = ()
    ) -> None:
        self.id = identity
        self.context: SparkContext = records.context
        self.columns = columns
        self.feature_names = feature_names
        self._records = records.persist(StorageLevel.MEMORY_AND_DISK)
        self._handles: RDD[Handle] = records.flatMap(_handle_of)
        self._tasks = tasks
        self._closed = False
        self._homes: set[Home] = set()
        try:
            self._take_stock()
        except BaseException:
            self.close()
            raise

    def _take_stock(self) -> None:
        started = time.perf_counter()
        found = self._inventory()
        self.handles = tuple(sorted(found.handles, key=lambda handle: handle.partition))
        for handle in self.handles:
            self._homes |= handle.homes
        if found.refusals:
            raise min(found.refusals, key=lambda refusal: refusal.partition).to_error()
        self.ingest_seconds = time.perf_counter() - started
        if found.statistics is None:
            raise ValueError(
                "the data set is empty: it has no rows"
                + (" of non-zero weight" if self.columns.weight else "")
                + "; look at filters and joins before fit"
            )
        self.statistics = found.statistics
        logger.info(
            "prepared %d rows x %d features in %d partitions: %.1f MB in %.2f s",
            self.rows, self.features, self.partitions, self.stored_bytes / 1e6, self.ingest_seconds,
        )  # fmt: skip

    def _inventory(self) -> Inventory:
        records: RDD[Inventory] = self._records.mapPartitions(_take_inventory)
        # the width is not known yet; metadata may tell, else values are taken to be small
        width = (self.columns.expected or 0) * 24
        try:
            found = combine(records, Inventory.merge, width, self._tasks)
        except Exception as error:
            explained = interpreter.explain(self.context, error)
            if explained is not None:
                raise explained from error
            raise
        return found or Inventory()

    @property
    def features(self) -> int:
        return self.statistics.features

    @property
    def rows(self) -> int:
        return self.statistics.rows

    @property
    def partitions(self) -> int:
        return len(self.handles)

    @property
    def stored_bytes(self) -> int:
        return sum(handle.stored_bytes for handle in self.handles)

    def rdd(self) -> RDD[Handle]:
        """The handles, one a partition that has rows; tasks over it go where the files are."""
        if self._closed:
            raise ValueError("the data set is closed; prepare it again")
        return self._handles

    def rebuild(self, partitions: Iterable[int]) -> None:
        """Forget the handles of ``partitions``: the next job reads their rows again, from their lineage."""
        lost = sorted(partitions)
        logger.warning("block files of partitions %s are gone; reading these rows again", lost)
        try:
            assert self.context._jvm is not None
            master = self.context._jsc.sc().env().blockManager().master()
            for partition in lost:
                block = self.context._jvm.org.apache.spark.storage.RDDBlockId(self._records.id(), partition)
                master.removeBlock(block)
        except Py4JError as error:
            logger.info("cannot forget single partitions (%s); forgetting all", error)
            self._records.unpersist(blocking=True)
            self._records.persist(StorageLevel.MEMORY_AND_DISK)

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
        for host, home in self._homes:
            if host == here:
                remove_home(home)
        if not self._homes or any(host != here for host, _ in self._homes):
            self._remove_elsewhere()
        with contextlib.suppress(Py4JError):  # the context may have been stopped: nothing is left to free
            self._records.unpersist()

    def _remove_elsewhere(self) -> None:
        """Ask every slot to remove what its executor has of this data set."""
        slots, dataset = task_slots(self.context), self.id

        def clean(_: object) -> None:
            for root in local_directories():
                remove_home(home_of(root, dataset))

        try:
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


def _record_bytes(record: object) -> bytes:
    return bytes(record if isinstance(record, (bytes, bytearray)) else record[0])  # type: ignore[index]


def _handle_of(record: object) -> list[Handle]:
    outcome = decode(_record_bytes(record))
    return [outcome] if isinstance(outcome, Handle) else []


def _take_inventory(records: Iterable[object]) -> Iterator[Inventory]:
    for outcome in [decode(_record_bytes(record)) for record in records]:
        if isinstance(outcome, Refusal):
            yield Inventory(refusals=(outcome,))
        else:
            yield Inventory(read_statistics(outcome), (outcome,))
