"""What workers' tasks do: look at the coefficients that their rows touch, and leave gradients for the shards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sparkdml.core import Tally, Turn
from sparkdml.data.dataset import Sighting
from sparkdml.data.handle import Handle
from sparkdml.data.open_blocks import MissingBlocksError
from sparkdml.data.routing import Routed, open_routed
from sparkdml.data.store import write_described
from sparkdml.placement.partitioned.files import ShardFiles, let_go, taken
from sparkdml.placement.partitioned.layout import Layout, Missing, Place, WorkerAnswer, WorkerPlace, bucket_edges
from sparkdml.placement.partitioned.mail import Mail, site
from sparkdml.placement.ship import Shipped
from sparkdml.resources.worker import limit_threads, settle

Task = Callable[..., Iterator[Any]]
NOTHING: Mail = {}


def locating(features: int) -> Task:
    """Tell where each worker's files are, and which features occur; routing tables are made where there are none."""

    def locate(handle: Handle, routed: Routed, mail: Mail) -> WorkerPlace:
        counts = np.diff(np.searchsorted(routed.columns, bucket_edges(features)))
        assert handle.statistics is not None
        return WorkerPlace(
            handle.partition,
            site(),
            _directory(handle),
            tuple(counts.tolist()),
            handle.scalars["weight_sum"],
            handle.statistics,
            Sighting(handle.digest, handle.homes),
        )

    return _over_handles(locate)


def evaluating(layout: Shipped, generation: int, tail: np.ndarray, clock: int) -> Task:
    """Look at what shards published for ``generation``; ``tail`` is the rest of the point, for rows as stored."""

    def evaluate(handle: Handle, routed: Routed, mail: Mail) -> WorkerAnswer | Missing:
        began = time.perf_counter()
        there: Layout = layout.value
        outputs = there.objective.loss.outputs
        count = len(routed.columns) * outputs
        point = np.empty(count + len(tail))
        point[count:] = tail
        cuts = np.searchsorted(routed.columns, there.bounds)
        lost = _pull(there, handle, cuts, generation, mail, point[:count].reshape(-1, outputs))
        if lost is not None:
            return lost
        numbers = [worker.number for worker in there.workers]
        turn = Turn(clock, numbers.index(handle.partition), len(numbers))
        pulled = time.perf_counter()
        update = there.algorithm.work(there.objective.stored(len(routed.columns)), routed.blocks, point, turn)
        gradient = np.asarray(update["gradient"])
        computed = time.perf_counter() - pulled
        place = Place(handle.partition, site(), _directory(handle))
        parcel = {"gradient": gradient[:count].reshape(-1, outputs), "cuts": cuts}
        write_described(there.parcel(place, clock), parcel)
        there.parcel(place, clock - 2).unlink(missing_ok=True)
        return WorkerAnswer(
            place,
            gradient[count:],
            float(update["loss"]) if "loss" in update else None,
            Tally.of(computed, time.perf_counter() - began - computed),
            Sighting(handle.digest, handle.homes),
            8 * count,
        )

    return _over_handles(evaluate)


def forgetting(fit: str) -> Task:
    """Remove what a fit left beside the blocks."""

    def forget(handles: Iterable[Handle]) -> Iterator[Any]:
        for handle in list(handles):
            for path in Path(_directory(handle)).glob(f"parcel-{fit}-*"):
                path.unlink(missing_ok=True)
        let_go()
        return iter(())

    return forget


def _pull(
    layout: Layout, handle: Handle, cuts: np.ndarray, generation: int, mail: Mail, out: np.ndarray
) -> Missing | None:
    """The coefficients of the features that occur, (n, K), from the shards that have them."""
    here = site()
    for shard, low, high in zip(layout.shards, cuts, cuts[1:], strict=False):
        if low < high and shard.host != here:
            sent = mail.get(shard.number, Missing("shard", shard.number, "no message from there"))
            if isinstance(sent, Missing):
                return sent
            out[low:high] = sent
        elif low < high:
            files = ShardFiles(shard.directory)
            try:
                taken(files.published(generation), files.places(handle.partition), out[low:high])
            except FileNotFoundError as error:
                return Missing("shard", shard.number, str(error))
    return None


def _over_handles(action: Callable[[Handle, Routed, Mail], Any]) -> Task:
    """``action`` on every partition; one whose blocks are gone is told of instead."""

    def run(handles: Iterable[Handle], mail: Mail = NOTHING) -> Iterator[Any]:
        limit_threads()
        # the iterator is read to its end: Spark ends a worker whose task leaves some of it
        for handle in list(handles):
            try:
                yield action(handle, open_routed(handle), mail)
            except MissingBlocksError as error:
                yield Missing("blocks", handle.partition, str(error))
        let_go()
        settle()

    return run


def _directory(handle: Handle) -> str:
    return str(Path(handle.blocks[0].path).parent)
