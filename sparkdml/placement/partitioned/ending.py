"""How a partitioned fit ends: the answer as chunks in Spark's cache, so that the shards' files can go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from pyspark import StorageLevel

from sparkdml.algorithms.sharded import Lead
from sparkdml.placement.partitioned import steps
from sparkdml.placement.partitioned.founding import Ground
from sparkdml.placement.partitioned.jobs import LostError, lost_among
from sparkdml.placement.partitioned.layout import Position
from sparkdml.placement.ship import Inline
from sparkdml.report.history import History

if TYPE_CHECKING:
    from pyspark import RDD

#: Rows of one chunk of a finished model.
CHUNK_ROWS = 2**18


@dataclass(frozen=True)
class TrainedShards:
    """A finished model: ``chunks`` is an RDD, cached, of one shard a partition (see :mod:`sparkdml.wide`).

    tail : the answer's intercepts (centred) and the loss's own parameters; ``intercepts`` (K,) are for rows as stored.
    """

    lead: Lead
    history: History
    bounds: np.ndarray
    chunks: RDD
    tail: np.ndarray
    intercepts: np.ndarray


def trained(
    ground: Ground, here: Position, history: History, finish: Callable[[np.ndarray], np.ndarray] | None
) -> TrainedShards:
    """The answer at ``here``; LostError if files of shards are gone."""
    objective = ground.layout.objective
    outputs = objective.loss.outputs
    shifts = ground.anchor.mapPartitions(steps.shifting(ground.shipped, here.generation, here.lead.answer)).collect()
    missing = lost_among(shifts)
    if missing:
        raise LostError(missing)
    shift = np.sum(shifts, axis=0)
    # chunks outlive the fit and what it ships: Spark serialises what they came from with all that uses them
    layout = Inline(replace(ground.layout, workers=()))
    task = steps.chunking(layout, here.generation, here.lead.answer, CHUNK_ROWS, finish)
    chunks = ground.anchor.mapPartitions(task).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        chunks.count()
    except BaseException:
        chunks.unpersist()
        raise
    tail = np.array(getattr(here.tail, here.lead.answer))
    intercepts = tail[:outputs] - shift if objective.fit_intercept else np.zeros(outputs)
    return TrainedShards(here.lead, history, ground.layout.bounds, chunks, tail, intercepts)
