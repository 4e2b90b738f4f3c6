"""The loop of a partitioned fit: the driver passes a few numbers between workers and shards."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pyspark import StorageLevel

from sparkdml.algorithms.sharded import Lead, Sharded, add_sums
from sparkdml.algorithms.starts import Start
from sparkdml.core import Update, payload_bytes
from sparkdml.data.dataset import MAX_REBUILDS, Dataset, FilesVanishError
from sparkdml.placement.base import OnRound
from sparkdml.placement.partitioned import steps, work
from sparkdml.placement.partitioned.checkpoints import Keeper, Kept, read_states, write_states
from sparkdml.placement.partitioned.crew import Crew, CrewLostError
from sparkdml.placement.partitioned.jobs import Jobs, LostError, ask_shards, ask_workers, remove_files, size_of
from sparkdml.placement.partitioned.layout import Layout, Missing, Place, Position, Told, shard_bounds
from sparkdml.placement.partitioned.mail import of_statistics, site
from sparkdml.placement.ship import Inline, ship
from sparkdml.problem import Objective, Problem
from sparkdml.report.history import History, Round
from sparkdml.resources.slots import task_slots

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

logger = logging.getLogger(__name__)

#: Rounds between two states that a fit can go back to.
KEEP_EVERY = 10
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


class Partitioned:
    """Two Spark jobs a round, or three: workers pull the coefficients that their rows touch and leave gradients for the
    shards; shards add these up and take a step.

    A shard is a range of features; what it has of coefficients and optimiser state are files on its executor, for the
    features that occur in some row. The driver sees sums of a few numbers, as many as the algorithm's ``lead`` needs.
    """

    name: ClassVar[str] = "partitioned"
    latency_seconds: ClassVar[float] = 0.1

    def train(
        self,
        algorithm: Sharded,
        objective: Objective,
        dataset: Dataset,
        start: np.ndarray,
        on_round: OnRound | None = None,
        history: History | None = None,
        initial: Start | None = None,
        finish: Callable[[np.ndarray], np.ndarray] | None = None,
        keeper: Keeper | None = None,
    ) -> TrainedShards:
        """Train from the tail ``start``: intercepts at the mean row, then the loss's own parameters.

        ``initial``: coefficients for features as stored to begin with instead of 0; then the intercepts of
        ``start``, too, are for features as stored.
        ``finish`` changes coefficients (n, K) of the answer, each row for itself.
        ``keeper`` : where states are kept, and where the fit goes on from; ``history`` then has those rounds already.
        """
        with _Fit(algorithm, objective, dataset, start, history or History(), initial, keeper) as fit:
            fit.begin()
            while True:
                fit.run(on_round)
                try:
                    return fit.result(finish)
                except LostError as lost:
                    fit.recover(lost)


class _Fit:
    """One fit's jobs, and the files that they leave."""

    def __init__(
        self,
        algorithm: Sharded,
        objective: Objective,
        dataset: Dataset,
        start: np.ndarray,
        history: History,
        initial: Start | None,
        keeper: Keeper | None,
    ) -> None:
        self._algorithm, self._objective, self._dataset = algorithm, objective, dataset
        self._start, self._history, self._initial, self._keeper = start, history, initial, keeper
        self._tail_problem: Problem = objective.tail()
        self._sc: SparkContext = dataset.context
        self._id = uuid.uuid4().hex[:16]
        self._stack = ExitStack()
        self._position: Position | None = None
        self._kept: tuple[Position, int] | None = None
        self._recoveries = self._farthest = self._hires = 0

    def __enter__(self) -> _Fit:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    # ---- beginning

    def begin(self) -> None:
        """Find workers' features, deal them to shards, and let these begin, whatever files are lost meanwhile."""
        for _ in range(MAX_REBUILDS):
            try:
                self._begin()
                return
            except LostError as lost:
                self._stack.close()
                self._id = uuid.uuid4().hex[:16]
                self._dataset.rebuild({m.number for m in lost.missing if m.kind == "blocks"})
        raise FilesVanishError

    def _begin(self) -> None:
        fit, shards, kept = self._id, list[Place](), self._latest()
        del self._history.rounds[kept.rounds if kept else 0 :]
        self._stack.callback(lambda: remove_files(self._dataset, fit, shards))
        workers = ask_workers(self._dataset, work.locating(self._dataset.features))
        touched = np.sum([worker.touched for worker in workers], axis=0)
        outputs = self._objective.loss.outputs
        if kept is None:
            bounds = shard_bounds(touched, self._dataset.features, outputs, task_slots(self._sc))
        else:
            bounds = kept.bounds
        layout = Layout(
            self._id,
            self._algorithm,
            self._objective,
            bounds,
            tuple(sorted(workers, key=lambda worker: worker.number)),
            self._dataset.totals,
            self._dataset.columns.features,
        )
        self._anchor = self._sc.parallelize(range(layout.shard_count), layout.shard_count)
        if not self._is_here(layout):
            # tasks of a shard then go where its first task was
            self._anchor.persist(StorageLevel.MEMORY_AND_DISK)
            self._stack.callback(self._anchor.unpersist)
        given = 0 if self._initial is None else self._initial.nbytes
        with ship(self._sc, layout, size_of(layout)) as shipped, ship(self._sc, self._initial, given) as initial:
            mail = self._dataset.rdd().mapPartitions(of_statistics(shipped)) if not self._is_here(layout) else None
            answers = ask_shards(self._anchor, steps.founding(shipped, initial), mail)
        shards.extend(answer.place for answer in answers)
        self._layout = replace(layout, shards=tuple(shards))
        self._shipped = self._stack.enter_context(ship(self._sc, self._layout, size_of(self._layout)))
        shift = np.sum([answer.shift for answer in answers], axis=0)
        start = np.array(self._start)
        if self._initial is not None and self._objective.fit_intercept:
            start[:outputs] += shift
        tail, sums = self._algorithm.init(self._tail_problem, start)
        lead = self._algorithm.begin(reduce(add_sums, [sums, *(answer.sums for answer in answers)]))
        self._position = Position(lead, tail, 0, 0, shift)
        if kept is not None:
            assert self._keeper is not None
            self._position = read_states(self._anchor, self._shipped, kept, self._keeper.path(kept))
        self._kept = (self._position, len(self._history.rounds))
        self._coordinates = sum(answer.coordinates for answer in answers)
        logger.info("%d shards hold %d coordinates of features that occur", layout.shard_count, self._coordinates)

    def _is_here(self, layout: Layout) -> bool:
        return {worker.host for worker in layout.workers} == {site()}

    # ---- rounds

    def run(self, on_round: OnRound | None) -> None:
        """Rounds until the lead says stop."""
        assert self._position is not None
        with ExitStack() as crews:
            self._hands = self._hired(crews)
            while self._position.lead.stop is None:
                try:
                    self._round(on_round)
                except LostError as lost:
                    crews.close()
                    self.recover(lost)
                    self._hands = self._jobs()
                except CrewLostError as lost:
                    logger.warning("the fit goes on by Spark jobs, which takes longer: %s", lost)
                    crews.close()
                    self._hands = self._jobs()

    def _hired(self, stack: ExitStack) -> Crew | Jobs:
        """A crew where all is on the driver's host, once a fit, if none needs its slots; ``stack`` ends it."""
        if self._hires == 0 and self._keeper is None and self._is_here(self._layout) and not self._apart:
            self._hires = 1
            members = min(task_slots(self._sc), max(len(self._layout.workers), self._layout.shard_count))
            try:
                return stack.enter_context(closing(Crew(self._sc, self._shipped, self._dataset.handles, members)))
            except CrewLostError as error:
                logger.info("the fit goes by Spark jobs: %s", error)
        return self._jobs()

    def _jobs(self) -> Jobs:
        return Jobs(self._dataset, self._anchor, self._shipped, self._apart)

    def _round(self, on_round: OnRound | None) -> None:
        """Ask workers, and let shards step until they are to be asked again."""
        assert self._position is not None
        here, clock = self._position, len(self._history.rounds)
        began = time.perf_counter()
        update, told = self._evaluate(here, clock)
        exchanged = time.perf_counter()
        here = self._step(here, told, update["tail"])
        while here.lead.stop is None and not here.lead.evaluate:
            here = self._step(here, None, np.zeros(0))
        done = Round(
            round=clock,
            iteration=here.lead.iteration,
            objective=self._objective.told * here.lead.objective,
            gradient_norm=here.lead.gradient_norm,
            compute_seconds=update["seconds"],
            aggregate_seconds=exchanged - began - update["seconds"],
            driver_seconds=time.perf_counter() - exchanged,
            bytes_down=update["bytes"],
            bytes_up=update["bytes"],
            bytes_driver=update["driver"] + self._shard_bytes,
        )
        self._position = here
        self._history.rounds.append(done)
        if (clock + 1) % KEEP_EVERY == 0:
            self._kept = (here, clock + 1)
            if clock + 1 > self._farthest:  # losses that let a fit get on are not counted for ever
                self._farthest, self._recoveries = clock + 1, 0
        if on_round is not None:
            asked = on_round(done, here.lead)
            if asked is not None and here.lead.stop is None:
                self._position = replace(here, lead=replace(here.lead, stop=asked))
        self._keep(self._position)

    def _evaluate(self, here: Position, clock: int) -> tuple[dict[str, Any], Told]:
        """One look of all workers at what is published."""
        outputs = self._objective.loss.outputs
        tail = np.array(here.tail.coef)
        if self._objective.fit_intercept:
            tail[:outputs] -= here.shift
        answers = self._hands.evaluate(here.published, tail, clock)
        sums = np.sum([answer.tail for answer in answers], axis=0)
        losses = [answer.loss for answer in answers if answer.loss is not None]
        told = Told(
            clock,
            tuple(answer.place for answer in answers),
            sums[:outputs] if self._objective.fit_intercept else np.zeros(outputs),
            sum(losses) if losses else None,
        )
        return {
            "tail": sums,
            "seconds": max(answer.tally.compute_seconds for answer in answers),
            "bytes": sum(answer.pulled for answer in answers),
            "driver": sum(answer.tail.nbytes + 8 for answer in answers),
        }, told

    def _step(self, here: Position, told: Told | None, tail_gradient: np.ndarray) -> Position:
        """One step of all shards, and of the tail."""
        order, generation = here.lead.order, here.generation
        moves = self._algorithm.moves(told is not None)
        published = generation + 1 if moves else here.published
        assert self._kept is not None
        kept = (
            (generation, generation + 1, self._kept[0].generation),
            (here.published, published, self._kept[0].published),
        )
        answers = self._hands.step(order, generation, told, kept)
        total: Update = {}
        if told is not None:
            total = {"gradient": tail_gradient} if told.loss is None else {"gradient": tail_gradient, "loss": told.loss}
        tail, sums = self._algorithm.step(self._tail_problem, here.tail, order, total)
        sums = reduce(add_sums, [sums, *(answer.sums for answer in answers)])
        self._shard_bytes = sum(payload_bytes(answer.sums) + answer.shift.nbytes for answer in answers)
        loss = None if told is None or told.loss is None else told.loss / self._objective.weight_sum
        lead = self._algorithm.lead(here.lead, sums, loss, tail)
        shift = np.sum([answer.shift for answer in answers], axis=0) if moves else here.shift
        return Position(lead, tail, generation + 1, published, shift)

    @property
    def _apart(self) -> bool:
        """Whether some worker and some shard are on different hosts."""
        return len({place.host for place in (*self._layout.workers, *self._layout.shards)}) > 1

    # ---- losses

    def recover(self, lost: LostError) -> None:
        """Go on from the latest state of all shards that is whole: this one, the one kept, or the start."""
        self._recoveries += 1
        if self._recoveries > MAX_REBUILDS:
            raise FilesVanishError from lost
        self._find_workers()
        assert self._position is not None
        assert self._kept is not None
        for position, rounds in ((self._position, len(self._history.rounds)), self._kept):
            if self._is_whole(position):
                logger.warning("files of a round were lost (%s); going on after round %d", lost, rounds - 1)
                self._position, self._history.rounds[rounds:] = position, []
                return
        latest = self._latest()
        then = "starting again" if latest is None else f"going on after round {latest.rounds - 1}, from the checkpoint"
        logger.warning("shards were lost (%s), and the state kept of them; %s", lost, then)
        self._stack.close()
        self._id = uuid.uuid4().hex[:16]
        self.begin()

    def _find_workers(self) -> None:
        """Workers whose files were lost have others now, perhaps elsewhere."""
        workers = ask_workers(self._dataset, work.locating(self._dataset.features))
        self._layout = replace(self._layout, workers=tuple(sorted(workers, key=lambda worker: worker.number)))
        self._shipped = self._stack.enter_context(ship(self._sc, self._layout, size_of(self._layout)))

    def _is_whole(self, position: Position) -> bool:
        check = steps.checking(self._shipped, position.generation, position.published)
        return all(answer is None for answer in self._anchor.mapPartitions(check).collect())

    def _latest(self) -> Kept | None:
        return None if self._keeper is None else self._keeper.latest()

    def _keep(self, here: Position) -> None:
        """Write a checkpoint, if it is time."""
        rounds, keeper = len(self._history.rounds), self._keeper
        if keeper is None or here.lead.stop is not None or not keeper.due(rounds):
            return

        def write(path: str) -> None:
            try:
                write_states(self._anchor, self._shipped, here, path)
            except Exception as error:
                if self._is_whole(here):
                    raise
                raise LostError([Missing("shard", -1, "states that were to be kept")]) from error

        keeper.keep(Kept(here, rounds, self._layout.bounds, self._coordinates), write)

    # ---- the end

    def result(self, finish: Callable[[np.ndarray], np.ndarray] | None) -> TrainedShards:
        """The answer as chunks in Spark's cache, so that the shards' files can go."""
        assert self._position is not None
        here = self._position
        outputs = self._objective.loss.outputs
        shifting = steps.shifting(self._shipped, here.generation, here.lead.answer)
        shifts = self._anchor.mapPartitions(shifting).collect()
        missing = [answer for answer in shifts if isinstance(answer, Missing)]
        if missing:
            raise LostError(missing)
        shift = np.sum(shifts, axis=0)
        # chunks outlive the fit and what it ships: Spark serialises what they came from with all that uses them
        layout = Inline(replace(self._layout, workers=()))
        task = steps.chunking(layout, here.generation, here.lead.answer, CHUNK_ROWS, finish)
        chunks = self._anchor.mapPartitions(task).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            chunks.count()
        except BaseException:
            chunks.unpersist()
            raise
        tail = np.array(getattr(here.tail, here.lead.answer))
        intercepts = tail[:outputs] - shift if self._objective.fit_intercept else np.zeros(outputs)
        return TrainedShards(here.lead, self._history, self._layout.bounds, chunks, tail, intercepts)
