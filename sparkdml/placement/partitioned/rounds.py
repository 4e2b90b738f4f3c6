"""The loop of a partitioned fit: the driver passes a few numbers between workers and shards."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from sparkdml.algorithms.sharded import Sharded, add_sums
from sparkdml.algorithms.starts import Start
from sparkdml.core import Tally, Update, payload_bytes
from sparkdml.data.dataset import MAX_REBUILDS, Dataset, FilesVanishError
from sparkdml.placement.base import OnRound
from sparkdml.placement.partitioned import steps
from sparkdml.placement.partitioned.checkpoints import Keeper, Kept, write_states
from sparkdml.placement.partitioned.crew import Crew, CrewLostError
from sparkdml.placement.partitioned.ending import TrainedShards, trained
from sparkdml.placement.partitioned.founding import Wanted, found, located
from sparkdml.placement.partitioned.jobs import Jobs, LostError, size_of
from sparkdml.placement.partitioned.layout import Missing, Position, Told
from sparkdml.placement.ship import ship
from sparkdml.problem import Objective, Problem
from sparkdml.report.history import History, Round
from sparkdml.resources.slots import task_slots

logger = logging.getLogger(__name__)

#: Rounds between two states that a fit can go back to.
KEEP_EVERY = 10


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
        with _Fit(Wanted(algorithm, objective, dataset, start, initial, keeper), history or History()) as fit:
            fit.begin()
            while True:
                fit.run(on_round)
                try:
                    return fit.result(finish)
                except LostError as lost:
                    fit.recover(lost)


class _Fit:
    """One fit's jobs, and the files that they leave."""

    def __init__(self, wanted: Wanted, history: History) -> None:
        self._wanted, self._history = wanted, history
        self._algorithm, self._objective, self._dataset = wanted.algorithm, wanted.objective, wanted.dataset
        self._tail_problem: Problem = wanted.objective.tail()
        self._stack = ExitStack()
        self._recoveries = self._farthest = self._hires = 0

    def __enter__(self) -> _Fit:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    # ---- beginning

    def begin(self) -> None:
        """Begin, whatever files are lost meanwhile."""
        for _ in range(MAX_REBUILDS):
            kept = self._latest()
            del self._history.rounds[kept.rounds if kept else 0 :]
            try:
                self._ground, self._position = found(self._wanted, kept, uuid.uuid4().hex[:16], self._stack)
                self._kept = (self._position, len(self._history.rounds))
                return
            except LostError as lost:
                self._stack.close()
                self._dataset.rebuild({m.number for m in lost.missing if m.kind == "blocks"})
        raise FilesVanishError

    # ---- rounds

    def run(self, on_round: OnRound | None) -> None:
        """Rounds until the lead says stop."""
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
        ground, sc = self._ground, self._dataset.context
        if self._hires == 0 and self._wanted.keeper is None and ground.is_here and not ground.apart:
            self._hires = 1
            members = min(task_slots(sc), max(len(ground.layout.workers), ground.layout.shard_count))
            try:
                return stack.enter_context(closing(Crew(sc, ground.shipped, self._dataset.handles, members)))
            except CrewLostError as error:
                logger.info("the fit goes by Spark jobs: %s", error)
        return self._jobs()

    def _jobs(self) -> Jobs:
        return Jobs(self._dataset, self._ground.anchor, self._ground.shipped, self._ground.apart)

    def _round(self, on_round: OnRound | None) -> None:
        """Ask workers, and let shards step until they are to be asked again."""
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
            **update["tally"].split(exchanged - began),
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
            "tally": reduce(Tally.merge, (answer.tally for answer in answers)),
            "bytes": sum(answer.pulled for answer in answers),
            "driver": sum(answer.tail.nbytes + 8 for answer in answers),
        }, told

    def _step(self, here: Position, told: Told | None, tail_gradient: np.ndarray) -> Position:
        """One step of all shards, and of the tail."""
        order, generation = here.lead.order, here.generation
        moves = self._algorithm.moves(told is not None)
        published = generation + 1 if moves else here.published
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

    # ---- losses

    def recover(self, lost: LostError) -> None:
        """Go on from the latest state of all shards that is whole: this one, the one kept, or the start."""
        self._recoveries += 1
        if self._recoveries > MAX_REBUILDS:
            raise FilesVanishError from lost
        self._find_workers()
        for position, rounds in ((self._position, len(self._history.rounds)), self._kept):
            if self._is_whole(position):
                logger.warning("files of a round were lost (%s); going on after round %d", lost, rounds - 1)
                self._position, self._history.rounds[rounds:] = position, []
                return
        latest = self._latest()
        then = "starting again" if latest is None else f"going on after round {latest.rounds - 1}, from the checkpoint"
        logger.warning("shards were lost (%s), and the state kept of them; %s", lost, then)
        self._stack.close()
        self.begin()

    def _find_workers(self) -> None:
        """Workers whose files were lost have others now, perhaps elsewhere."""
        layout = replace(self._ground.layout, workers=located(self._dataset))
        shipped = self._stack.enter_context(ship(self._dataset.context, layout, size_of(layout)))
        self._ground = replace(self._ground, layout=layout, shipped=shipped)

    def _is_whole(self, position: Position) -> bool:
        check = steps.checking(self._ground.shipped, position.generation, position.published)
        return all(answer is None for answer in self._ground.anchor.mapPartitions(check).collect())

    def _latest(self) -> Kept | None:
        return None if self._wanted.keeper is None else self._wanted.keeper.latest()

    def _keep(self, here: Position) -> None:
        """Write a checkpoint, if it is time."""
        rounds, keeper, ground = len(self._history.rounds), self._wanted.keeper, self._ground
        if keeper is None or here.lead.stop is not None or not keeper.due(rounds):
            return

        def write(path: str) -> None:
            try:
                write_states(ground.anchor, ground.shipped, here, path)
            except Exception as error:
                if self._is_whole(here):
                    raise
                raise LostError([Missing("shard", -1, "states that were to be kept")]) from error

        keeper.keep(Kept(here, rounds, ground.layout.bounds, ground.coordinates), write)

    # ---- the end

    def result(self, finish: Callable[[np.ndarray], np.ndarray] | None) -> TrainedShards:
        return trained(self._ground, self._position, self._history, finish)
