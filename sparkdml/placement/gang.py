"""Workers that run side by side through one barrier job, and sum their updates among themselves."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.comm.links import Address, Links, Listener, PeerError, connect
from sparkdml.comm.topologies import Gossip, choose, named, sum_updates
from sparkdml.core import Turn
from sparkdml.data.block import Block
from sparkdml.data.handle import Handle
from sparkdml.data.open_blocks import MissingBlocksError, open_handle
from sparkdml.placement.agreement import ASKED, SECONDS, Agreement, Exact, Mixed
from sparkdml.placement.reports import Reporter
from sparkdml.placement.ship import Shipped
from sparkdml.problem import Problem
from sparkdml.report.history import Round
from sparkdml.resources.worker import limit_threads, settle

if TYPE_CHECKING:
    from pyspark import SparkContext

#: The number of partitions that a worker misses.
MISSING = " missing"


#: A job of others that waits so long for slots gets them.
PATIENCE_SECONDS = 1.0

logger = logging.getLogger(__name__)


class WorkerError(RuntimeError):
    """A worker raised; the message is its traceback."""


@dataclass(frozen=True)
class Orders:
    """What every worker of a gang is told. ``there`` holds the problem and the state to start from."""

    algorithm: Algorithm
    topology: str
    there: Shipped
    handles: tuple[Handle, ...]
    workers: int
    clock: int
    every: int
    driver: Address
    secret: bytes
    fit: str
    timeout: float
    alone: bool


@dataclass(frozen=True)
class Outcome:
    """How a gang ended: lost partitions, or a lost worker, or neither."""

    state: Any = None
    missing: tuple[int, ...] = ()
    error: Exception | None = None


class Gang:
    """A barrier job in a thread of its own."""

    def __init__(self, sc: SparkContext, group: str) -> None:
        self._sc, self._group = sc, group
        self._thread: Any = None
        self._results: list[tuple[int, str, Any]] = []
        self._error: Exception | None = None
        self._gave_way = False

    def start(self, orders: Orders) -> None:
        from pyspark import InheritableThread

        def run() -> None:
            sc = self._sc
            sc.setJobGroup(self._group, "sparkdml: workers that sum among themselves", interruptOnCancel=True)
            try:
                ranks = sc.parallelize(range(orders.workers), orders.workers)
                self._results = ranks.barrier().mapPartitions(_worker(orders)).collect()
            except Exception as error:
                self._error = error

        self._thread = InheritableThread(target=run, daemon=True)
        self._thread.start()

    def ended(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Outcome:
        """How the job ended. Raises WorkerError where a worker raised."""
        self._thread.join()
        if self._gave_way:
            return Outcome()
        raised = [detail for _, kind, detail in self._results if kind == "raised"]
        if raised:
            raise WorkerError(raised[0])
        missing = sorted({p for _, kind, detail in self._results if kind == "missing" for p in detail})
        if missing:
            return Outcome(missing=tuple(missing))
        lost = [detail for _, kind, detail in self._results if kind == "lost"]
        if self._error is None and lost:
            return Outcome(error=RuntimeError(lost[0]))
        return Outcome(error=self._error)

    @contextmanager
    def giving_way(self) -> Iterator[None]:
        """While this is open, give up the slots as soon as another job of the application waits for some.

        For the time in which the driver does something else, such as calling a user's function: a job that it starts
        would wait for the gang's slots, and the gang for its end.
        """
        over = threading.Event()

        def watch() -> None:
            while not over.wait(PATIENCE_SECONDS):
                if self._others_wait():
                    logger.warning(
                        "a Spark job waits between two rounds, and the workers hold all slots: they give way to it "
                        "and start again afterwards, which takes seconds; placement='broadcast' leaves slots free"
                    )
                    self._gave_way = True
                    self.cancel()
                    return

        from pyspark import InheritableThread

        watcher = InheritableThread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _others_wait(self) -> bool:
        tracker = self._sc.statusTracker()
        own = set(tracker.getJobIdsForGroup(self._group))
        return not self.ended() and any(job not in own for job in tracker.getActiveJobsIds())

    def cancel(self) -> None:
        """End the job if it still runs, and wait until it has ended."""
        if self._thread is not None and self._thread.is_alive():
            self._sc.cancelJobGroup(self._group)
            self._thread.join(30.0)


def _worker(orders: Orders) -> Any:
    def run(ranks: Iterable[int]) -> Iterator[tuple[int, str, Any]]:
        from pyspark import BarrierTaskContext

        (rank,) = list(ranks)
        limit_threads()
        context = BarrierTaskContext.get()
        try:
            yield (rank, *_take_part(orders, rank, context))
        except PeerError as error:
            yield rank, "lost", f"rank {rank}: {error}"
        except Exception:
            # returned, not raised: the others then end by themselves, and the driver hears the cause and not an echo
            yield rank, "raised", traceback.format_exc()
        settle()

    return run


def _take_part(orders: Orders, rank: int, context: Any) -> tuple[str, Any]:
    places = {info.address.rsplit(":", 1)[0] for info in context.getTaskInfos()}
    near = orders.alone or len(places) == 1
    with ExitStack() as stack:
        own = "127.0.0.1" if near else socket.gethostbyname(socket.gethostname())
        listener = stack.enter_context(Listener(own))
        # Spark looks once a second whether all have come, so everything is told in one go
        told = json.dumps({"host": socket.gethostname(), "address": listener.address})
        everyone = [json.loads(text) for text in context.allGather(told)]
        hosts = [entry["host"] for entry in everyone]
        addresses = [(str(entry["address"][0]), int(entry["address"][1])) for entry in everyone]
        problem, state = orders.there.value
        fastest = choose(orders.workers, 8 * problem.size)
        topology = fastest if orders.topology == "auto" else named(orders.topology)
        exact = fastest if isinstance(topology, Gossip) else topology
        neighbours = topology.neighbours(rank, orders.workers) | exact.neighbours(rank, orders.workers)
        links = stack.enter_context(
            connect(rank, addresses, listener, orders.secret, orders.timeout, fit=orders.fit, neighbours=neighbours)
        )
        blocks, missing = _open(orders.handles, hosts, rank)
        if sum_updates(exact, links, {MISSING: float(len(missing))})[MISSING]:
            return "missing", missing
        agreement = Mixed(topology, exact, links) if isinstance(topology, Gossip) else Exact(topology, links)
        reporter = None
        if rank == 0:
            reporter = stack.enter_context(
                closing(Reporter(orders.driver, orders.secret, orders.timeout, orders.fit + " reports"))
            )
        _rounds(orders, rank, links, agreement, reporter, problem, state, blocks)
    return "done", None


def _open(handles: Sequence[Handle], hosts: Sequence[str], rank: int) -> tuple[list[Block], list[int]]:
    """This worker's blocks, and partitions whose files are not where they should be."""
    blocks: list[Block] = []
    missing = [handle.partition for handle in unplaced(handles, hosts)] if rank == 0 else []
    for handle in assign(handles, hosts)[rank]:
        try:
            blocks += open_handle(handle)
        except MissingBlocksError:
            missing.append(handle.partition)
    return blocks, missing


def _rounds(
    orders: Orders,
    rank: int,
    links: Links,
    agreement: Agreement,
    reporter: Reporter | None,
    problem: Problem,
    state: Any,
    blocks: Sequence[Block],
) -> None:
    """All rounds of one worker; the first one reports."""
    memory, end, clock = None, False, orders.clock
    done: list[Round] = []
    while state.stop is None:
        began = time.perf_counter()
        turn = Turn(clock, rank, orders.workers)
        update, memory = orders.algorithm.work(problem, blocks, state.coef, memory, turn)
        seconds = np.zeros(orders.workers)
        seconds[rank] = time.perf_counter() - began
        links.clock = clock
        sent, received = links.bytes_sent, links.bytes_received
        total = agreement.total({**update, ASKED: float(end), SECONDS: seconds}, clock)
        slowest = float(np.max(total.pop(SECONDS)))
        summed = time.perf_counter()
        if total.pop(ASKED):
            return
        state = agreement.kept(problem, orders.algorithm.advance(problem, state, total), blocks, clock)
        if reporter is not None:
            done.append(
                Round(
                    round=clock,
                    iteration=state.iteration,
                    objective=state.objective,
                    gradient_norm=state.gradient_norm,
                    compute_seconds=slowest,
                    aggregate_seconds=summed - began - slowest,
                    driver_seconds=time.perf_counter() - summed,
                    bytes_down=(links.bytes_received - received) * orders.workers,
                    bytes_up=(links.bytes_sent - sent) * orders.workers,
                )
            )
            if state.stop is not None or len(done) >= orders.every:
                end = reporter.report(done, state)
                done = []
        clock += 1


def assign(handles: Sequence[Handle], hosts: Sequence[str]) -> list[list[Handle]]:
    """Handles for each rank, on its own host, of about the same bytes: the largest first, each to who has least."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, host in enumerate(hosts):
        ranks[host].append(rank)
    shares: list[list[Handle]] = [[] for _ in hosts]
    filled = [0] * len(hosts)
    for handle in sorted(handles, key=lambda h: (-h.stored_bytes, h.partition)):
        if handle.host in ranks:
            rank = min(ranks[handle.host], key=lambda r: (filled[r], r))
            shares[rank].append(handle)
            filled[rank] += handle.stored_bytes
    return [sorted(share, key=lambda handle: handle.partition) for share in shares]


def unplaced(handles: Sequence[Handle], hosts: Sequence[str]) -> list[Handle]:
    """Handles on hosts where no rank runs: their rows have to be read again where one does."""
    return [handle for handle in handles if handle.host not in set(hosts)]
