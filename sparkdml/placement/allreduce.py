"""Every worker holds the state; updates are summed peer to peer, and nothing waits for the driver."""

from __future__ import annotations

import logging
import secrets
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparkdml.algorithms.base import Algorithm
from sparkdml.comm.errors import PeerError
from sparkdml.comm.topologies import Gossip
from sparkdml.core import Stop
from sparkdml.data.dataset import MAX_REBUILDS, Dataset, FilesVanishError
from sparkdml.placement import memories
from sparkdml.placement.base import Exchange, OnRound, Placement, Trained
from sparkdml.placement.gang import Gang, Outcome
from sparkdml.placement.gang_worker import Orders
from sparkdml.placement.local import Local
from sparkdml.placement.reports import Desk
from sparkdml.placement.ship import ship
from sparkdml.problem import Differentiable
from sparkdml.report.history import History
from sparkdml.resources.gpus.workers import ANY, Workers
from sparkdml.resources.slots import setting

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

#: A fit goes on from its last report after so many lost workers or stages.
MAX_RESTARTS = 3
#: Rounds between two reports where nobody watches: what a lost worker costs at most.
REPORT_ROUNDS = 20
#: Seconds for all workers to start, and to answer one another. A lost peer is noticed by its connection, and a host
#: that vanishes by the connection's keep-alive, so the latter only bounds how much slower than the others one worker's
#: round (a hundred passes over its rows, for some methods), or a callback, may be.
START_SECONDS, ANSWER_SECONDS = 120.0, 4 * 3600.0


class _Turn:
    """Gangs need all their slots at once, so fits of one application take turns."""

    def __init__(self) -> None:
        self._lock, self._owner = threading.Lock(), 0

    def __enter__(self) -> None:
        if self._owner == threading.get_ident():
            raise ValueError(
                "a callback of a fit with placement='allreduce' starts another such fit, which would wait for the "
                "first one's end for ever; use placement='broadcast' for one of them"
            )
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._owner = 0
        self._lock.release()


_turn = _Turn()


class WorkerLostError(RuntimeError):
    """Workers were lost more often than a fit goes on from."""


class AllReduce(Placement):
    """One barrier job for all rounds: each worker keeps the state, sums updates with its peers, and advances by itself.

    The choice where rounds are many and short: a round costs its arithmetic and one exchange among workers (0.1 ms for
    a thousand numbers on one host), without the 40 ms of a Spark job. Every worker holds the whole state, so the model
    must fit each of them. ``advance`` runs alike on all of them, which takes processors of one kind.

    The first worker reports to the driver: in every round if somebody watches, else every 20. After a lost worker the
    job is run again from the latest report, three times at most. A callback that starts a Spark job gets its slots: the
    workers end, and start again after it, which takes seconds each time.
    """

    name = "allreduce"
    latency_seconds = 0.001

    def __init__(self, topology: str = "auto", workers: Workers = ANY) -> None:
        super().__init__(workers)
        self.topology = topology

    @contextmanager
    def exchange(self, algorithm: Algorithm, problem: Differentiable, dataset: Dataset) -> Iterator[Exchange]:
        """Single questions, such as a validation loss, are answered in the driver.

        A gang holds every slot, so a Spark job would wait for it, and it for the job's answer: where the blocks are out
        of the driver's reach, that is refused.
        """
        if not dataset.is_here:
            raise ValueError(
                "placement='allreduce' holds all slots, so validation rows on other hosts cannot be asked meanwhile; "
                "use placement='broadcast' with validationIndicatorCol"
            )
        with Local().exchange(algorithm, problem, dataset) as ask:
            yield ask

    def train(
        self,
        algorithm: Algorithm,
        problem: Differentiable,
        state: Any,
        dataset: Dataset,
        on_round: OnRound | None = None,
        history: History | None = None,
    ) -> Trained:
        history = History() if history is None else history
        dataset.check_open()
        self._check_mixing(algorithm)
        key = uuid.uuid4().hex[:12]
        try:
            return self._attempts(algorithm, problem, state, dataset, on_round, history, key)
        finally:
            if on_round is not None:
                memories.forget_all(dataset, key)

    def _attempts(
        self,
        algorithm: Algorithm,
        problem: Differentiable,
        state: Any,
        dataset: Dataset,
        on_round: OnRound | None,
        history: History,
        key: str,
    ) -> Trained:
        """One gang after another, until a state says stop; ``key`` names what their workers leave to the next."""
        lost, vanished = 0, 0
        while state.stop is None:
            with _turn:
                workers = self._workers(dataset)  # a lost executor may have taken slots along
                outcome = self._attempt(algorithm, problem, state, dataset, workers, on_round, history, key)
            state = outcome.state
            history.devices = list(outcome.devices)
            if outcome.missing:
                vanished += 1
                if vanished > MAX_REBUILDS:
                    raise FilesVanishError
                dataset.restore(outcome.missing)
            elif outcome.error is not None:
                lost += 1
                if lost > MAX_RESTARTS:
                    raise WorkerLostError(
                        f"workers were lost {lost} times; the last time: {outcome.error}"
                    ) from outcome.error
                logger.warning(
                    "a worker was lost (%s); going on after round %d", outcome.error, len(history.rounds) - 1
                )
        return Trained(state, history)

    def _check_mixing(self, algorithm: Algorithm) -> None:
        if self.topology == Gossip.name and not algorithm.mixes:
            raise ValueError(
                f"topology='gossip' averages among neighbours, and {type(algorithm).__name__} needs exact sums; use "
                "solver='model-averaging' without a codec, or another topology"
            )

    def _workers(self, dataset: Dataset) -> int:
        sc = dataset.context
        if setting(sc, "spark.dynamicAllocation.enabled", "false").lower() == "true":
            raise ValueError(
                "placement='allreduce' needs all its workers at once, which Spark refuses under dynamic allocation; "
                "set spark.dynamicAllocation.enabled=false, or use placement='broadcast'"
            )
        slots = self.workers.slots(sc)
        if slots < dataset.partitions:
            logger.warning("%d partitions share %d slots: so many workers it will be", dataset.partitions, slots)
        return min(slots, dataset.partitions)

    def _attempt(
        self,
        algorithm: Algorithm,
        problem: Differentiable,
        state: Any,
        dataset: Dataset,
        workers: int,
        on_round: OnRound | None,
        history: History,
        key: str,
    ) -> Outcome:
        """Rounds from ``state`` until a stop, lost files or a lost worker; ``history`` grows by what was reported."""
        sc = dataset.context
        secret, fit = secrets.token_bytes(32), uuid.uuid4().hex
        with ship(sc, (problem, state), 24 * problem.features + 8 * problem.size) as there:
            gang = Gang(sc, fit, self.workers)
            desk = Desk(_driver_host(sc), workers, secret, ANSWER_SECONDS, fit + " reports", gang.ended)
            try:
                orders = Orders(
                    algorithm=algorithm,
                    topology=self.topology,
                    there=there,
                    handles=dataset.handles,
                    workers=workers,
                    clock=len(history.rounds),
                    every=1 if on_round is not None else REPORT_ROUNDS,
                    driver=desk.listener.address,
                    secret=secret,
                    fit=fit,
                    memories=key,
                    timeout=ANSWER_SECONDS,
                    alone=str(sc.master).startswith("local"),
                    gpus=self.workers.gpus > 0.0,
                )
                gang.start(orders)
                asked = self._listen(desk, gang, workers, on_round, history)
                outcome = gang.result()
            finally:
                gang.cancel()
                desk.close()
        return self._settle(outcome, asked, state)

    def _listen(
        self, desk: Desk, gang: Gang, workers: int, on_round: OnRound | None, history: History
    ) -> tuple[Any, Stop | None]:
        """Hear reports until the job ends: the latest state, and the stop that a watcher asked for."""
        state, asked = None, None
        try:
            met = desk.meet(START_SECONDS)
        except TimeoutError as error:
            raise TimeoutError(
                f"placement='allreduce': {error}; they need {workers} slots at the same time, which other jobs may "
                "hold: wait for those, or use placement='broadcast'"
            ) from error
        except PeerError:
            met = False
        while met:
            try:
                report = desk.hear()
            except PeerError:  # the first worker is gone; the job's end will tell
                break
            if report is None:
                break
            history.rounds.extend(report.rounds)
            state = report.state
            if on_round is not None and asked is None:
                with gang.giving_way():
                    asked = on_round(report.rounds[-1], state)
            try:
                desk.answer(asked is not None)
            except PeerError:  # lost while the watchers were told; the job's end will tell
                break
        return state, asked

    def _settle(self, outcome: Outcome, heard: tuple[Any, Stop | None], start: Any) -> Outcome:
        state, asked = heard
        latest = outcome.state or state or start
        if asked is not None and outcome.error is None:
            latest = replace(latest, stop=asked)
        return replace(outcome, state=latest)


def _driver_host(sc: SparkContext) -> str:
    if str(sc.master).startswith("local"):
        return "127.0.0.1"
    return setting(sc, "spark.driver.host", "127.0.0.1")
