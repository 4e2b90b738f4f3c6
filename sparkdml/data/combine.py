"""The one distributed primitive: the sum of what tasks return."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark import RDD

T = TypeVar("T")

#: Below this the driver takes every task's value: a shuffle would cost more than it saves.
DIRECT_BYTES = 8 * 2**20


def combine(rdd: RDD[T], merge: Callable[[T, T], T], value_bytes: int, tasks: int) -> T | None:
    """``merge`` over all elements of ``rdd``, which has at most one a partition; None if it has none.

    Large values are first merged on the executors, in groups of about ``sqrt(tasks)`` and then into one, so that
    what reaches the driver does not grow with tasks x ``value_bytes``. The order of merging is fixed by partition
    numbers when the driver merges, and by arrival inside executors.
    """
    while tasks > 1 and tasks * value_bytes > DIRECT_BYTES:
        groups = math.ceil(math.sqrt(tasks)) if tasks > 4 else 1
        keyed = rdd.mapPartitionsWithIndex(_keyed(groups))
        rdd = keyed.reduceByKey(merge, groups).values()
        tasks = groups
    values = rdd.collect()
    return reduce(merge, values) if values else None


def _keyed(groups: int) -> Callable[[int, Iterable[T]], Iterator[tuple[int, T]]]:
    def run(partition: int, values: Iterable[T]) -> Iterator[tuple[int, T]]:
        return ((partition % groups, value) for value in values)

    return run
