"""How a partitioned fit begins: workers' features are found and dealt to shards, and these begin."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from pyspark import StorageLevel

from sparkdml.algorithms.sharded import Sharded, add_sums
from sparkdml.algorithms.starts import Start
from sparkdml.data.dataset import Dataset
from sparkdml.placement.partitioned import steps, work
from sparkdml.placement.partitioned.checkpoints import Keeper, Kept, read_states
from sparkdml.placement.partitioned.jobs import ask_shards, ask_workers, remove_files, size_of
from sparkdml.placement.partitioned.layout import Layout, Place, Position, WorkerPlace, shard_bounds
from sparkdml.placement.partitioned.mail import of_statistics, site
from sparkdml.placement.ship import Shipped, ship
from sparkdml.problem import Objective
from sparkdml.resources.slots import task_slots

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wanted:
    """What a fit is given: see :meth:`~.rounds.Partitioned.train`."""

    algorithm: Sharded
    objective: Objective
    dataset: Dataset
    start: np.ndarray
    initial: Start | None
    keeper: Keeper | None


@dataclass(frozen=True)
class Ground:
    """Where workers and shards are; ``anchor`` has a partition a shard, and ``coordinates`` are those of all shards."""

    layout: Layout
    shipped: Shipped
    anchor: RDD
    coordinates: int

    @property
    def is_here(self) -> bool:
        """Whether all workers are on the driver's host."""
        return all_here(self.layout.workers)

    @property
    def apart(self) -> bool:
        """Whether some worker and some shard are on different hosts."""
        return len({place.host for place in (*self.layout.workers, *self.layout.shards)}) > 1


def found(wanted: Wanted, kept: Kept | None, fit: str, stack: ExitStack) -> tuple[Ground, Position]:
    """Begin anew, or at the checkpoint ``kept``; ``stack`` is given what removes the files of the fit named ``fit``.

    Raises LostError where files are lost meanwhile.
    """
    dataset, shards = wanted.dataset, list[Place]()
    stack.callback(lambda: remove_files(dataset, fit, shards))
    layout = _laid_out(wanted, fit, kept)
    sc, here = dataset.context, all_here(layout.workers)
    anchor = sc.parallelize(range(layout.shard_count), layout.shard_count)
    if not here:
        # tasks of a shard then go where its first task was
        anchor.persist(StorageLevel.MEMORY_AND_DISK)
        stack.callback(anchor.unpersist)
    given = 0 if wanted.initial is None else wanted.initial.nbytes
    with ship(sc, layout, size_of(layout)) as shipped, ship(sc, wanted.initial, given) as initial:
        mail = None if here else dataset.rdd().mapPartitions(of_statistics(shipped))
        answers = ask_shards(anchor, steps.founding(shipped, initial), mail)
    shards.extend(answer.place for answer in answers)
    layout = replace(layout, shards=tuple(shards))
    coordinates = sum(answer.coordinates for answer in answers)
    ground = Ground(layout, stack.enter_context(ship(sc, layout, size_of(layout))), anchor, coordinates)
    logger.info("%d shards hold %d coordinates of features that occur", layout.shard_count, coordinates)

    shift = np.sum([answer.shift for answer in answers], axis=0)
    start = np.array(wanted.start)
    if wanted.initial is not None and wanted.objective.fit_intercept:
        start[: len(shift)] += shift
    tail, sums = wanted.algorithm.init(wanted.objective.tail(), start)
    lead = wanted.algorithm.begin(reduce(add_sums, [sums, *(answer.sums for answer in answers)]))
    position = Position(lead, tail, 0, 0, shift)
    if kept is not None:
        assert wanted.keeper is not None
        position = read_states(anchor, ground.shipped, kept, wanted.keeper.path(kept))
    return ground, position


def located(dataset: Dataset) -> tuple[WorkerPlace, ...]:
    """Where workers' files are, and which features these have."""
    workers = ask_workers(dataset, work.locating(dataset.features))
    return tuple(sorted(workers, key=lambda worker: worker.number))


def all_here(workers: tuple[WorkerPlace, ...]) -> bool:
    return {worker.host for worker in workers} == {site()}


def _laid_out(wanted: Wanted, fit: str, kept: Kept | None) -> Layout:
    """Without shards' places, which they tell."""
    dataset, objective = wanted.dataset, wanted.objective
    workers = located(dataset)
    if kept is None:
        touched = np.sum([worker.touched for worker in workers], axis=0)
        bounds = shard_bounds(touched, dataset.features, objective.loss.outputs, task_slots(dataset.context))
    else:
        bounds = kept.bounds
    return Layout(fit, wanted.algorithm, objective, bounds, workers, dataset.totals, dataset.columns.features)
