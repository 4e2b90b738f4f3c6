"""What one worker of a gang does: meets the others, runs all rounds, reports if it is the first."""

from __future__ import annotations

import socket
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.comm.errors import Address, PeerError
from sparkdml.comm.links import Links, Listener, connect
from sparkdml.comm.topologies import Gossip, choose, named, sum_updates
from sparkdml.core import Tally, Turn
from sparkdml.data.block import Block
from sparkdml.data.handle import Handle
from sparkdml.data.open_blocks import MissingBlocksError, open_handle
from sparkdml.placement import memories
from sparkdml.placement.agreement import ASKED, SECONDS, Agreement, Exact, Mixed
from sparkdml.placement.on_gpus import on_gpus
from sparkdml.placement.reports import FIRST, Reporter
from sparkdml.placement.ship import Shipped
from sparkdml.problem import Differentiable
from sparkdml.report.history import Round
from sparkdml.resources.worker import limit_threads, settle, task_threads

#: The number of partitions that a worker misses.
MISSING = " missing"


@dataclass(frozen=True)
class Orders:
    """What every worker of a gang is told. ``there`` holds the problem and the state to start from.

    ``memories`` names what workers leave beside their blocks for a gang that goes on where this one ended.
    """

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
    memories: str
    timeout: float
    alone: bool
    gpus: bool


def worker(orders: Orders) -> Any:
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
        # Spark's own allGather looks once a second whether all have come
        desk = Reporter(
            rank, orders.workers, listener, orders.driver, orders.secret, orders.timeout, orders.fit + " reports"
        )
        stack.callback(desk.close)
        everyone = desk.meet({"host": socket.gethostname(), "address": listener.address})
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
        own_handles = assign(orders.handles, hosts)[rank]
        blocks, missing = _open(own_handles)
        if rank == 0:
            missing += [handle.partition for handle in unplaced(orders.handles, hosts)]
        if sum_updates(exact, links, {MISSING: float(len(missing))})[MISSING]:
            return "missing", missing
        devices = ""
        if orders.gpus:
            blocks, devices = on_gpus(blocks)
        agreement = Mixed(topology, exact, links) if isinstance(topology, Gossip) else Exact(topology, links)
        reporter = desk if rank == FIRST else None
        kept = Kept(own_handles, f"{orders.memories}-{rank}of{orders.workers}")
        _rounds(orders, rank, links, agreement, reporter, problem, state, blocks, kept)
    return "done", devices


class Kept:
    """What this worker remembers, beside its blocks: for the next gang, if that deals the same rows alike."""

    def __init__(self, handles: Sequence[Handle], fit: str) -> None:
        partitions = ".".join(str(handle.partition) for handle in handles)
        self._place, self._fit = (handles[0] if handles else None), f"{fit}-{partitions}"[:200]

    def keep(self, clock: int, memory: Any) -> None:
        if self._place is not None and memory is not None:
            memories.keep(self._place, self._fit, clock, memory)

    def recall(self, clock: int) -> Any:
        return memories.recall(self._place, self._fit, clock) if self._place is not None and clock else None


def _open(handles: Sequence[Handle]) -> tuple[list[Block], list[int]]:
    """The blocks of ``handles``, and partitions whose files are not where they should be."""
    blocks: list[Block] = []
    missing: list[int] = []
    for handle in handles:
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
    problem: Differentiable,
    state: Any,
    blocks: Sequence[Block],
    kept: Kept,
) -> None:
    """All rounds of one worker; the first one reports."""
    memory, end, clock = kept.recall(orders.clock), False, orders.clock
    done: list[Round] = []
    while state.stop is None:
        began = time.perf_counter()
        turn = Turn(clock, rank, orders.workers, task_threads())
        update, memory = orders.algorithm.work(problem, blocks, state.coef, memory, turn)
        if orders.every == 1:  # the driver may break off after any round, for a job that a watcher starts
            kept.keep(clock, memory)
        seconds = np.zeros(orders.workers)
        seconds[rank] = time.perf_counter() - began
        links.clock = clock
        sent, received, packed = links.bytes_sent, links.bytes_received, links.packing_seconds
        total = agreement.total({**update, ASKED: float(end), SECONDS: seconds}, clock)
        # under gossip a worker is told of its own seconds alone
        told = [Tally.of(float(spent), links.packing_seconds - packed) for spent in total.pop(SECONDS) if spent]
        tally = reduce(Tally.merge, told, Tally())
        summed = time.perf_counter()
        if total.pop(ASKED):
            return
        state = agreement.kept(problem, orders.algorithm.advance(problem, state, total), blocks, clock)
        if reporter is not None:
            done.append(
                Round(
                    round=clock,
                    iteration=state.iteration,
                    objective=problem.told * state.objective,
                    gradient_norm=state.gradient_norm,
                    **tally.split(summed - began),
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
