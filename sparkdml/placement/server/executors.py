"""Servers inside long Spark tasks, each at the address of its executor."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkdml.placement.server.fleet import Fleet
from sparkdml.placement.side_job import SideJob
from sparkdml.resources.slots import setting, task_slots
from sparkdml.resources.worker import limit_threads, settle
from sparkdml.server.clocks import Ledger
from sparkdml.server.serving import Server, Settings
from sparkdml.server.wire import Header, Limits, Reply, Security, ServerError, connect, serve

if TYPE_CHECKING:
    from pyspark import SparkContext

#: For all tasks to run; slots that others hold longer are not waited for.
START_SECONDS = 60.0
LOOK_SECONDS = 0.05
#: Longer than any fit.
STAY_SECONDS = 1e7


class OnExecutors(Fleet):
    """``count`` of them. Each tells the driver where it is, and stays until the driver says that it is over.

    One that is lost is missed by its clients: what it held is gone.

    Raises ValueError where they would leave no slot for workers, RuntimeError where they do not come to run.
    """

    def __init__(self, sc: SparkContext, count: int, security: Security) -> None:
        slots = task_slots(sc)
        if slots - count < 1:
            raise ValueError(
                f"serverLaunch='executors' with numServers={count} leaves no slot for workers: Spark has {slots}; take "
                "fewer servers, more executors, or serverLaunch='local'"
            )
        super().__init__(security)
        self.slots, self.group = count, uuid.uuid4().hex
        self._there: dict[int, str] = {}
        self._over = threading.Event()
        near = _is_local(sc)
        host = "127.0.0.1" if near else setting(sc, "spark.driver.host", "127.0.0.1")
        self._desk = serve(self._answer, host, 0, security, Limits())
        tasks = _lightly(sc, sc.parallelize(range(count), count)).mapPartitions(
            serving(self._desk.address, security, near)
        )
        self._job = SideJob(sc, self.group, "sparkdml: parameter servers", lambda: list(tasks.collect()))
        try:
            self._wait(count)
        except BaseException:
            self.__exit__()
            raise

    @property
    def addresses(self) -> list[str]:
        return [self._there[rank] for rank in sorted(self._there)]

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if not self._job.ended(2.0):
            self._job.cancel()
        self._desk.close()

    def _wait(self, count: int) -> None:
        end = time.monotonic() + START_SECONDS
        while len(self._there) < count:
            if self._job.ended():
                raise RuntimeError("the tasks of parameter servers have ended") from self._job.error
            if time.monotonic() > end:
                raise RuntimeError(
                    f"{len(self._there)} of {count} parameter servers came to run on executors in {START_SECONDS:g} s: "
                    "other jobs hold the slots; wait for them, or take serverLaunch='local'"
                )
            time.sleep(LOOK_SECONDS)

    def _answer(self, op: str, header: Header, arrays: list[np.ndarray], peer: str) -> Reply:
        """``here`` from a task that serves, ``stay`` from all: answered when the fit is over."""
        if op == "here":
            self._there.setdefault(int(header["rank"]), str(header["address"]))
        else:
            self._over.wait()
        return {}, ()


def serving(desk: str, security: Security, near: bool) -> Callable[[Iterable[int]], Iterator[Any]]:
    """The task of a server. A copy of it, or a second attempt, stays too, but the desk sends nobody there.

    If a copy returned, Spark would end the one that is at work.
    """

    def run(ranks: Iterable[int]) -> Iterator[Any]:
        limit_threads()
        host = "127.0.0.1" if near else socket.gethostbyname(socket.gethostname())
        for rank in list(ranks):
            with (
                contextlib.suppress(ServerError),  # the driver is gone
                Server(Ledger(1, -1), Settings(host), security) as server,
                connect(desk, security, START_SECONDS) as driver,
            ):
                driver.call("here", {"rank": rank, "address": server.listening.address})
                driver.call("stay", {}, timeout=STAY_SECONDS)
        settle()
        yield from ()

    return run


def _lightly(sc: SparkContext, rdd: Any) -> Any:
    """With one core a task, where a task of the application has more and Spark lets stages differ."""
    dynamic = setting(sc, "spark.dynamicAllocation.enabled", "false").lower() == "true"
    if _is_local(sc) or dynamic or int(setting(sc, "spark.task.cpus", "1")) == 1:
        return rdd
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    return rdd.withResources(ResourceProfileBuilder().require(TaskResourceRequests().cpus(1)).build)


def _is_local(sc: SparkContext) -> bool:
    """Whether tasks run in the driver's own process; ``local-cluster`` has executors."""
    return str(sc.master).split("[")[0] == "local"
