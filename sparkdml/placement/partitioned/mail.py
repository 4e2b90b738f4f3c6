"""What shards and workers of different hosts send one another, through Spark's shuffle.

Within a host they read one another's files, and nothing is sent.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkdml.data.handle import Handle
from sparkdml.data.routing import NAME as ROUTING
from sparkdml.data.routing import localised
from sparkdml.data.store import local_directories, open_arrays
from sparkdml.placement.partitioned.files import ShardFiles, added, open_kept, taken
from sparkdml.placement.partitioned.layout import Layout, Missing, Place, Told, WorkerPlace
from sparkdml.placement.ship import Shipped

if TYPE_CHECKING:
    from pyspark import RDD

#: What one recipient gets, by the number of who sent it.
Mail = dict[Any, Any]


def site() -> str:
    """This host; where ``SPARKDML_SITES=executor`` is set, this executor, as if each had a host of its own."""
    if os.environ.get("SPARKDML_SITES") == "executor" and "SPARK_LOCAL_DIRS" in os.environ:
        return f"{socket.gethostname()}:{local_directories()[0]}"
    return socket.gethostname()


def delivered(recipients: RDD, task: Callable[..., Iterator[Any]], mail: RDD | None) -> RDD:
    """``task`` over each partition of ``recipients`` with the mail to it; tasks go where recipients are.

    mail : pairs of a partition's number and ``(sender, content)``.
    """
    if mail is None:
        return recipients.mapPartitions(task)
    sorted_out = mail.partitionBy(recipients.getNumPartitions(), int).values().glom()

    def run(pairs: Iterable[tuple[list[Any], list[tuple[Any, Any]]]]) -> Iterator[Any]:
        for to, messages in list(pairs):
            yield from task(to, dict(messages))

    return recipients.glom().zip(sorted_out).mapPartitions(run)


def of_statistics(layout: Shipped) -> Callable[[Iterable[Handle]], Iterator[Any]]:
    """From workers to shards before the first round: the features that occur, their means and second moments."""

    def run(handles: Iterable[Handle]) -> Iterator[Any]:
        there: Layout = layout.value
        by_number = {worker.number: worker for worker in there.workers}
        for handle in list(handles):
            for number in range(there.shard_count):
                yield number, (handle.partition, moments_of(by_number[handle.partition], there, number))

    return run


def moments_of(worker: WorkerPlace, layout: Layout, shard: int) -> tuple[np.ndarray, np.ndarray, np.ndarray] | Missing:
    """The features of ``shard`` that occur in a worker's rows, from 0, with means and second moments."""
    low, high = (int(bound) for bound in layout.bounds[shard : shard + 2])
    try:
        touched = open_kept(Path(worker.directory) / ROUTING)["columns"]
        told = open_arrays(worker.statistics)
    except FileNotFoundError as error:
        return Missing("blocks", worker.number, str(error))
    cut = slice(*np.searchsorted(touched, (low, high)))
    which = cut if "columns" in told else touched[cut]
    return np.array(touched[cut]) - low, np.array(told["mean"][which]), np.array(told["m2"][which])


def of_coefficients(layout: Shipped, generation: int) -> Callable[[Iterable[int]], Iterator[Any]]:
    """From shards to workers of other hosts: the coefficients that their rows touch."""

    def run(numbers: Iterable[int]) -> Iterator[Any]:
        there: Layout = layout.value
        for number in list(numbers):
            files = ShardFiles(there.shards[number].directory)
            for worker in there.workers:
                if worker.host == there.shards[number].host:
                    continue
                try:
                    published, places = files.published(generation), files.places(worker.number)
                except FileNotFoundError as error:
                    yield worker.number, (number, Missing("shard", number, str(error)))
                    continue
                if len(places):
                    values = np.empty((len(places), published.shape[1]))
                    taken(published, places, values)
                    yield worker.number, (number, values)

    return run


def of_gradients(layout: Shipped, message: Shipped) -> Callable[[Iterable[Handle]], Iterator[Any]]:
    """From workers to shards of other hosts: gradients, added up over the workers of a host.

    The workers of a host share the shards among them; each adds up for its shards what all of them left.
    """

    def run(handles: Iterable[Handle]) -> Iterator[Any]:
        there, told = layout.value, message.value
        for handle in list(handles):
            mine = next(place for place in told.parcels if place.number == handle.partition)
            together = [place for place in told.parcels if place.host == mine.host]
            rank = [place.number for place in together].index(mine.number)
            for number in range(rank, there.shard_count, len(together)):
                if there.shards[number].host != mine.host:
                    yield number, (mine.host, _gathered(there, told, together, number))

    return run


def _gathered(layout: Layout, told: Told, workers: list[Place], shard: int) -> tuple[np.ndarray, np.ndarray] | Missing:
    """Features of ``shard``, from 0, increasing, and the sums of their gradients (n, K)."""
    columns, parts = [], []
    for worker in workers:
        try:
            parcel = open_kept(layout.parcel(worker, told.clock))
            low, high = parcel["cuts"][shard : shard + 2]
            columns.append(open_kept(Path(worker.directory) / ROUTING)["columns"][low:high] - layout.bounds[shard])
            parts.append(parcel["gradient"][low:high])
        except FileNotFoundError as error:
            return Missing("parcel", worker.number, str(error))
    if len(workers) == 1:
        return np.array(columns[0]), np.array(parts[0])
    seen, places = localised(columns, int(layout.bounds[shard + 1] - layout.bounds[shard]))
    total = np.zeros((len(seen), parts[0].shape[1]))
    for at, part in zip(places, parts, strict=True):
        added(total, at, part)
    return seen, total
