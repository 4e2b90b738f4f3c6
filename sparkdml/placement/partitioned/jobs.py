"""The Spark jobs of a partitioned fit: what is asked of workers and shards, and what is made of lost files."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkdml.data.dataset import MAX_REBUILDS, Dataset, FilesVanishError
from sparkdml.data.ingest import Refusal
from sparkdml.data.store import home_of, local_directories, remove_home
from sparkdml.placement.partitioned import steps, work
from sparkdml.placement.partitioned.layout import (
    Layout,
    Missing,
    Place,
    ShardAnswer,
    Staying,
    Told,
    WorkerAnswer,
    in_order,
)
from sparkdml.placement.partitioned.mail import delivered, of_coefficients, of_gradients, site
from sparkdml.placement.ship import Shipped, ship
from sparkdml.resources.slots import task_slots

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger(__name__)


class LostError(Exception):
    """Files that a step needs are gone."""

    def __init__(self, missing: list[Missing]) -> None:
        super().__init__(", ".join(f"{m.kind} {m.number} ({m.path})" for m in missing[:3]))
        self.missing = missing


def lost_among(answers: Sequence[Any]) -> list[Missing]:
    return [answer for answer in answers if isinstance(answer, Missing)]


class Jobs:
    """What is asked of workers and shards in a round, each time by a Spark job."""

    def __init__(self, dataset: Dataset, anchor: RDD, layout: Shipped, apart: bool) -> None:
        self._dataset, self._anchor, self._layout, self._apart = dataset, anchor, layout, apart

    def evaluate(self, published: int, tail: np.ndarray, clock: int) -> list[WorkerAnswer]:
        """What all workers say of the published coefficients."""
        task = work.evaluating(self._layout, published, tail, clock)
        mail = self._anchor.mapPartitions(of_coefficients(self._layout, published)) if self._apart else None
        return in_order(ask_workers(self._dataset, task, mail))

    def step(self, order: dict[str, Any], generation: int, told: Told | None, kept: Staying) -> list[ShardAnswer]:
        """A step of all shards."""
        with self._shipped(told) as there:
            task = steps.stepping(self._layout, order, generation, there, kept)
            mail = None
            if there is not None and self._apart:
                mail = self._dataset.rdd().mapPartitions(of_gradients(self._layout, there))
            return ask_shards(self._anchor, task, mail)

    @contextlib.contextmanager
    def _shipped(self, told: Told | None) -> Iterator[Shipped | None]:
        if told is None:
            yield None
            return
        with ship(self._dataset.context, told, 200 * len(told.parcels)) as shipped:
            yield shipped


def ask_workers(dataset: Dataset, task: work.Task, mail: RDD | None = None) -> list[Any]:
    """What every partition says, each counted once, whatever block files were lost meanwhile.

    Raises LostError if other files are gone.
    """
    for _ in range(MAX_REBUILDS):
        answers = delivered(dataset.rdd(), task, mail).collect()
        missing = lost_among(answers)
        blocks = [answer.number for answer in missing if answer.kind == "blocks"]
        if blocks:
            dataset.rebuild(blocks)
            continue
        if missing:
            raise LostError(missing)
        dataset.confirm({_number(answer): answer.seen for answer in answers})
        return answers
    raise FilesVanishError


def ask_shards(anchor: RDD, task: steps.Task, mail: RDD | None = None) -> list[ShardAnswer]:
    """What every shard says. Raises LostError if files are gone."""
    answers = delivered(anchor, task, mail).collect()
    missing = lost_among(answers)
    if missing:
        raise LostError(missing)
    refusals = [answer for answer in answers if isinstance(answer, Refusal)]
    if refusals:
        raise refusals[0].to_error()
    return in_order(answers)


def remove_files(dataset: Dataset, fit: str, shards: Sequence[Place]) -> None:
    """Remove what a fit left: shards' directories, wherever they are, and what lies beside the blocks."""
    sc = dataset.context
    if sc._jsc is None:
        return  # stopped: Spark has removed its local directories

    def clean(_: object) -> None:
        for root in local_directories():
            remove_home(home_of(root, fit))

    try:
        if shards and {shard.host for shard in shards} == {site()}:
            for home in {str(Path(shard.directory).parent) for shard in shards}:
                remove_home(home)
        else:
            slots = task_slots(sc)
            sc.parallelize(range(slots), slots).foreach(clean)
        with contextlib.suppress(ValueError):  # closed meanwhile
            dataset.rdd().mapPartitions(work.forgetting(fit)).foreach(lambda _: None)
    except Exception as error:
        logger.warning("files of shards stay until the application ends: %s", error)


def size_of(layout: Layout) -> int:
    """About the bytes of a layout as it is sent."""
    return 8 * len(layout.bounds) + 2600 * len(layout.workers) + 200 * len(layout.shards)


def _number(answer: Any) -> int:
    return int(answer.place.number if hasattr(answer, "place") else answer.number)
