"""Tasks that stay for many rounds and do, one after another, what the driver asks of workers and shards.

A Spark job takes 40 ms, however little it does; a message and its answer take less than one.
"""

from __future__ import annotations

import logging
import secrets
import select
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkdml.algorithms.states import pack, unpack
from sparkdml.comm.errors import Address, PeerError, PeerRefusedError
from sparkdml.comm.letters import receive_bytes, send_bytes
from sparkdml.comm.links import Links, Listener, connect
from sparkdml.data.handle import Handle
from sparkdml.placement.gang import WorkerError
from sparkdml.placement.partitioned import steps, work
from sparkdml.placement.partitioned.jobs import LostError, lost_among
from sparkdml.placement.partitioned.layout import Layout, ShardAnswer, Staying, Told, WorkerAnswer, in_order
from sparkdml.placement.ship import Inline, Shipped
from sparkdml.placement.side_job import SideJob
from sparkdml.resources.worker import settle

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Seconds for all members to come; slots that others hold longer are not waited for.
START_SECONDS = 5.0
#: For a byte to move once a message is under way.
MOVE_SECONDS = 600.0
LOOK_SECONDS = 0.2

_GIVES_WAY = (
    "a Spark job waits while the tasks of a partitioned fit hold all slots: these end, and the fit goes on slower"
)

logger = logging.getLogger(__name__)


class CrewLostError(RuntimeError):
    """A member is gone, or all are; what they were asked is to be done otherwise."""


@dataclass(frozen=True)
class Orders:
    """What every member is told at first: where things are, and which workers and shards are whose."""

    layout: Shipped
    handles: tuple[Handle, ...]
    members: int
    driver: Address
    secret: bytes
    fit: str


class Crew:
    """The driver's end. All members are on the driver's host, and find each other's files there.

    Raises CrewLostError, from :meth:`evaluate` and :meth:`step` too, if the members are not all there, because slots
    are taken, because Spark jobs of others have waited for a second for those that members hold, or because one died.
    """

    def __init__(self, sc: SparkContext, layout: Shipped, handles: Sequence[Handle], members: int) -> None:
        secret, fit = secrets.token_bytes(32), uuid.uuid4().hex
        self._members = members
        with ExitStack() as stack:
            listener = stack.enter_context(Listener())
            addresses = [listener.address] * (members + 1)
            self._links = stack.enter_context(connect(members, addresses, listener, secret, START_SECONDS, fit=fit))
            orders = Orders(layout, tuple(handles), members, listener.address, secret, fit)

            def run() -> list[Any]:
                return list(sc.parallelize(range(members), members).mapPartitions(member(orders)).collect())

            self._job = SideJob(sc, fit, "sparkdml: workers and shards of a partitioned fit", run)
            stack.callback(self._dismiss)
            stack.enter_context(self._job.giving_way(_GIVES_WAY))
            self._gather()
            self._stack = stack.pop_all()

    def _gather(self) -> None:
        try:
            self._links.connect(range(self._members))
        except PeerError as error:
            raise CrewLostError(f"not all {self._members} tasks came to run at once: {error}") from error
        self._links.timeout = MOVE_SECONDS

    def evaluate(self, published: int, tail: np.ndarray, clock: int) -> list[WorkerAnswer]:
        """What all workers say of the published coefficients."""
        return in_order(self._ask({"do": "evaluate", "published": published, "tail": tail, "clock": clock}))

    def step(self, order: dict[str, Any], generation: int, told: Told | None, kept: Staying) -> list[ShardAnswer]:
        """A step of all shards."""
        sums = None if told is None else {"clock": told.clock, "slope_sum": told.slope_sum, "loss": told.loss}
        message = {"do": "step", "order": order, "generation": generation, "told": sums, "kept": kept}
        return in_order(self._ask(message))

    def _ask(self, message: dict[str, Any]) -> list[Any]:
        content = pack(message)
        try:
            for rank in range(self._members):
                send_bytes(self._links, rank, content)
            answers = [answer for rank in range(self._members) for answer in self._hear(rank)]
        except PeerError as error:
            raise CrewLostError(str(error)) from error
        missing = lost_among(answers)
        if missing:
            raise LostError(missing)
        return answers

    def _hear(self, rank: int) -> list[Any]:
        while not select.select([self._links.descriptor(rank)], [], [], LOOK_SECONDS)[0]:
            if self._job.ended():
                raise CrewLostError("their job has ended" if self._job.error is None else str(self._job.error))
        told = unpack(receive_bytes(self._links, rank))
        if "raised" in told:
            raise WorkerError(told["raised"])
        return list(told["answers"])

    def close(self) -> None:
        """Send all members home."""
        self._stack.close()

    def _dismiss(self) -> None:
        self._links.close()
        # members notice at once, or as soon as they are done with what they do
        if not self._job.ended(2.0):
            self._job.cancel()


def member(orders: Orders) -> Callable[[Iterable[int]], Iterator[Any]]:
    """The task of a member: it works until the driver closes the connection."""

    def run(ranks: Iterable[int]) -> Iterator[Any]:
        for rank in list(ranks):
            with ExitStack() as stack:
                listener = stack.enter_context(Listener())
                links = _meet(orders, rank, listener)
                if links is not None:
                    stack.callback(links.close)
                    _serve(orders, rank, links)
        settle()
        yield from ()

    return run


def _meet(orders: Orders, rank: int, listener: Listener) -> Links | None:
    """The connection to the driver; None if it has none to give any more."""
    addresses = [*[listener.address] * orders.members, orders.driver]
    while True:
        try:
            return connect(
                rank, addresses, listener, orders.secret, MOVE_SECONDS, fit=orders.fit, neighbours=[orders.members]
            )
        except PeerRefusedError:
            time.sleep(LOOK_SECONDS)  # this is a copy of a task that is at work: if it returned, Spark would end that
        except PeerError:
            return None


def _serve(orders: Orders, rank: int, links: Links) -> None:
    layout: Layout = orders.layout.value
    handles = orders.handles[rank :: orders.members]
    shards = range(rank, layout.shard_count, orders.members)
    there = Inline(layout)
    while True:
        try:
            select.select([links.descriptor(orders.members)], [], [])
            message = unpack(receive_bytes(links, orders.members))
        except PeerError:
            return
        try:
            answer: dict[str, Any] = {"answers": _answers(message, there, handles, shards)}
        except Exception:
            answer = {"raised": traceback.format_exc()}
        try:
            send_bytes(links, orders.members, pack(answer))
        except PeerError:
            return


def _answers(message: dict[str, Any], there: Inline, handles: Iterable[Handle], shards: Iterable[int]) -> list[Any]:
    if message["do"] == "evaluate":
        task = work.evaluating(there, message["published"], message["tail"], message["clock"])
        # what was seen of the input was confirmed before: no lineage runs here
        return [replace(a, seen=None) if isinstance(a, WorkerAnswer) else a for a in task(handles)]
    told = None
    if message["told"] is not None:
        told = Inline(Told(parcels=there.value.workers, **message["told"]))
    return list(steps.stepping(there, message["order"], message["generation"], told, message["kept"])(shards))
