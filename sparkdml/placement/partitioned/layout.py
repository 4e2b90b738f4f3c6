"""Which features each shard has, and what the driver knows of shards and workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparkdml.algorithms.sharded import Lead, Sharded
from sparkdml.core import Tally, Update
from sparkdml.data.dataset import Sighting
from sparkdml.data.statistics import Statistics
from sparkdml.data.store import FileSpec
from sparkdml.problem import Objective

#: Ranges in which the features that occur are counted, to give shards about the same work.
BUCKETS = 256
#: The generations whose files stay: of states, and of what was published.
Staying = tuple[tuple[int, ...], tuple[int, ...]]
#: Coefficients of one shard, where they are so many that there are more shards than slots.
SHARD_SIZE = 2**24


@dataclass(frozen=True)
class Place:
    """Where the files of a worker or of a shard are; ``host`` is by :func:`~.mail.site`."""

    number: int
    host: str
    directory: str


@dataclass(frozen=True)
class WorkerPlace(Place):
    """A worker's, and what is known of its rows before the first round.

    touched : how many of the features in each bucket occur. weight : the rows' sum of weights.
    """

    touched: tuple[int, ...]
    weight: float
    statistics: FileSpec
    seen: Sighting


@dataclass(frozen=True)
class WorkerAnswer:
    """What a worker tells the driver in a round: all but what it left for the shards.

    tail : the gradient by intercepts and the loss's own parameters. pulled : bytes of coefficients that it looked at.
    """

    place: Place
    tail: np.ndarray
    loss: float | None
    tally: Tally
    seen: Sighting | None
    pulled: int


@dataclass(frozen=True)
class Told:
    """What all workers said in a round, as far as the driver hears it: who left parcels, and sums of a few numbers."""

    clock: int
    parcels: tuple[Place, ...]
    slope_sum: np.ndarray
    loss: float | None


@dataclass(frozen=True)
class ShardAnswer:
    """What a shard tells after a step: its part of the sums, and ``shift`` (K,), of ``mean' coefficients``."""

    place: Place
    sums: Update
    shift: np.ndarray
    coordinates: int


@dataclass(frozen=True)
class Missing:
    """What a task did not find: ``blocks``, ``shard`` or ``parcel``, and of which partition or shard."""

    kind: str
    number: int
    path: str


@dataclass(frozen=True)
class Layout:
    """What does not change while a fit runs undisturbed; as long as there are workers and shards, not features."""

    fit: str
    algorithm: Sharded
    objective: Objective
    bounds: np.ndarray
    workers: tuple[WorkerPlace, ...]
    totals: Statistics
    column: str
    shards: tuple[Place, ...] = ()

    @property
    def shard_count(self) -> int:
        return len(self.bounds) - 1

    def parcel(self, worker: Place, clock: int) -> Path:
        """What a worker leaves for the shards in the round ``clock``."""
        return Path(worker.directory) / f"parcel-{self.fit}-{clock}"


@dataclass(frozen=True)
class Position:
    """Where a fit is: all that the driver must know to go on from there.

    generation : of the shards' states. published : of what workers see. shift : (K,), ``mean' coefficients`` there.
    """

    lead: Lead
    tail: Any
    generation: int
    published: int
    shift: np.ndarray


def bucket_edges(features: int) -> np.ndarray:
    """Where buckets begin and end, int64 (BUCKETS + 1,)."""
    return np.array([features * n // BUCKETS for n in range(BUCKETS + 1)], np.int64)


def shard_bounds(touched: np.ndarray, features: int, outputs: int, slots: int) -> np.ndarray:
    """Where shards' ranges of features begin and end, int64 (S + 1,).

    ``touched`` counts for each bucket the features that occur, once for each worker; shards get about the same of
    them. There is a shard for each slot, and more where they would have more than :data:`SHARD_SIZE` coefficients.
    """
    total = float(touched.sum())
    count = int(min(max(slots, np.ceil(total * outputs / SHARD_SIZE)), features))
    filled = np.concatenate([[0.0], np.cumsum(touched + 1e-9 * (total + 1.0))])
    wanted = filled[-1] * np.arange(1, count) / count
    inner = np.interp(wanted, filled, bucket_edges(features)).astype(np.int64)
    return np.concatenate([[0], inner, [features]]).astype(np.int64)


def in_order(answers: Sequence[Any]) -> list[Any]:
    """By the number of worker or shard, so that sums do not depend on which task ended first."""
    return sorted(answers, key=lambda answer: answer.place.number)
