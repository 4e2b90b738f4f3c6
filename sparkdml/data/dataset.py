"""A prepared data set: an RDD of handles on block files, and what one pass told about the rows."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from sparkdml.data import columns as column_choice
from sparkdml.data import parquet
from sparkdml.data.combine import combine
from sparkdml.data.handle import Handle, read_statistics, remove
from sparkdml.data.ingest import Refusal, arrow_ingester, decode, encode, ingest_partition
from sparkdml.data.reader import Columns
from sparkdml.data.statistics import Statistics
from sparkdml.resources import interpreter
from sparkdml.resources.slots import task_slots

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)


class InputChangedError(RuntimeError):
    """Lost blocks were built again from other rows than before."""


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
        self, records: RDD, columns: Columns, tasks: int, feature_names: tuple[str, ...] = ()
    ) -> None:
        self.context: SparkContext = records.context
        self.columns = columns
        self.feature_names = feature_names
        self._records = records.persist(StorageLevel.MEMORY_AND_DISK)
        self._handles: RDD[Handle] = records.flatMap(_handle_of)
        self._tasks = tasks
        self._closed = False
        try:
            self._take_stock()
        except BaseException:
            self.close()
            raise

    def _take_stock(self) -> None:
        started = time.perf_counter()
        found = self._inventory()
        if found.refusals:
            raise min(found.refusals, key=lambda refusal: refusal.partition).to_error()
        self.handles = tuple(sorted(found.handles, key=lambda handle: handle.partition))
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

    @property
    def digests(self) -> dict[int, int]:
        """The digest that each partition's rows had when they were first read."""
        return {handle.partition: handle.digest for handle in self.handles}

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
            master = self.context._jsc.sc().env().blockManager().master()
            for partition in lost:
                block = self.context._jvm.org.apache.spark.storage.RDDBlockId(
                    self._records.id(), partition
                )
                master.removeBlock(block)
        except Py4JError as error:
            logger.info("cannot forget single partitions (%s); forgetting all", error)
            self._records.unpersist(blocking=True)
            self._records.persist(StorageLevel.MEMORY_AND_DISK)

    def close(self) -> None:
        """Remove the block files and free what Spark keeps of them. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        handles = getattr(self, "handles", ())
        here = socket.gethostname()
        remove(handle for handle in handles if handle.host == here)
        if any(handle.host != here for handle in handles):
            self._remove_elsewhere()
        with contextlib.suppress(Py4JError):  # the context may have been stopped: nothing is left to free
            self._records.unpersist()

    def _remove_elsewhere(self) -> None:
        try:
            self._handles.foreachPartition(remove)
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


def from_dataframe(
    df: DataFrame,
    features: str | Sequence[str] = "features",
    label: str = "label",
    weight: str | None = None,
    classes: bool = True,
) -> Dataset:
    """Prepare the rows of ``df``.

    Parameters
    ----------
    features : a column of vectors (dense, sparse or mixed) or of arrays of numbers, or several numeric columns.
    label, weight : numeric columns. Rows of weight 0 are left out.
    classes : labels must be 0, 1, 2, ... (else any finite number).

    Raises
    ------
    TypeError, ValueError : before any job, if a column is absent or of the wrong type; from the only pass over the
        rows, if one holds null, NaN, an infinite value, a wrong size, a bad label or a negative weight.
    """
    picked, columns = column_choice.select(df, features, label, weight, classes)
    slots = task_slots(df.sparkSession.sparkContext)
    # More tasks than slots would cost every later round; coalescing only groups what is there, nothing is shuffled.
    picked = picked.coalesce(slots)
    ingester = UserDefinedFunction(
        arrow_ingester(_new_id(), columns),
        returnType="record binary",  # type: ignore[arg-type]
        evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    )
    # DataFrame.mapInArrow is this, and a demand for pandas that it does not use
    applied = ingester(*[picked[name] for name in picked.columns])
    frame = type(df)(picked._jdf.mapInArrow(applied._jc, False, None), df.sparkSession)
    names = () if isinstance(features, str) else tuple(features)
    return Dataset(frame.rdd, columns, slots, names)


def from_parquet(
    spark: SparkSession,
    path: str,
    features: str | Sequence[str] = "features",
    label: str = "label",
    weight: str | None = None,
    classes: bool = True,
) -> Dataset:
    """Prepare the rows of Parquet files, read by the tasks with Arrow: nothing crosses the JVM.

    ``path`` is a file or a folder that every executor can open. Otherwise as :func:`from_dataframe`.
    """
    sc = spark.sparkContext
    slots = task_slots(sc)
    files = parquet.find_files(path)
    parquet.check_schema(files[0], features, label, weight)
    plan = parquet.plan_splits(files, slots)
    if not plan:
        raise ValueError(f"the data set is empty: {path} has no rows")
    name = features if isinstance(features, str) else ", ".join(features)
    columns = Columns(name, label, weight, classes)
    records = sc.parallelize(plan, len(plan)).mapPartitionsWithIndex(
        _parquet_ingester(_new_id(), features, columns)
    )
    return Dataset(records, columns, len(plan), () if isinstance(features, str) else tuple(features))


def _parquet_ingester(dataset: str, features: str | Sequence[str], columns: Columns):  # type: ignore[no-untyped-def]
    def run(partition: int, plans: Iterable[list[parquet.Split]]) -> Iterator[bytes]:
        splits = [split for plan in plans for split in plan]
        batches = parquet.read_batches(splits, features, columns)
        outcome = ingest_partition(dataset, columns, partition, batches)
        return iter([] if outcome is None else [encode(outcome)])

    return run


def _new_id() -> str:
    return uuid.uuid4().hex[:16]


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
