"""How the workers of a long job meet at the driver, and what the first of them tells it while the job runs."""

from __future__ import annotations

import dataclasses
import json
import select
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparkdml.algorithms.states import pack, unpack
from sparkdml.comm.errors import Address
from sparkdml.comm.letters import receive_bytes, send_bytes
from sparkdml.comm.links import Links, Listener, connect
from sparkdml.report.history import Round

#: The rank that reports. The driver's is the one after the last worker's.
FIRST = 0
#: How often the driver looks whether the job has ended.
LOOK_SECONDS = 0.2


class Report(NamedTuple):
    """Rounds since the last report, and the state after the latest of them."""

    rounds: list[Round]
    state: Any


class Reporter:
    """The end of worker ``rank`` of ``workers``, which has ``listener``. Raises PeerError if the driver is gone."""

    def __init__(
        self, rank: int, workers: int, listener: Listener, driver: Address, secret: bytes, timeout: float, fit: str
    ) -> None:
        self._driver = workers
        addresses = [*[listener.address] * workers, driver]
        self._links = connect(rank, addresses, listener, secret, timeout, fit=fit, neighbours=[self._driver])

    def meet(self, told: Any) -> list[Any]:
        """What all workers tell, by rank, once all are there."""
        send_bytes(self._links, self._driver, json.dumps(told).encode())
        return list(json.loads(receive_bytes(self._links, self._driver)))

    def report(self, rounds: list[Round], state: Any) -> bool:
        """Tell the driver; whether it asks to end the fit."""
        content = pack({"rounds": [dataclasses.astuple(entry) for entry in rounds], "state": state})
        send_bytes(self._links, self._driver, content)
        answer = np.zeros(1, np.int64)
        self._links.receive(self._driver, answer)
        return bool(answer[0])

    def close(self) -> None:
        self._links.close()


class Desk:
    """The driver's end. ``ended`` tells whether the job is over, so that nobody is waited for in vain."""

    def __init__(
        self, host: str, workers: int, secret: bytes, timeout: float, fit: str, ended: Callable[[], bool]
    ) -> None:
        self.listener = Listener(host)
        self._workers = range(workers)
        addresses = [self.listener.address] * (workers + 1)
        self._links: Links = connect(workers, addresses, self.listener, secret, timeout, fit=fit)
        self._ended = ended

    def meet(self, seconds: float) -> bool:
        """Tell each worker what all tell, once all are there; False if the job has ended before.

        Raises TimeoutError if not all are there within so many seconds.
        """
        deadline = time.monotonic() + seconds
        while len(self._links.peers) < len(self._workers):
            if self._ended():
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{len(self._links.peers)} of {len(self._workers)} workers have come within {seconds:g} s"
                )
            self._links.admit(LOOK_SECONDS)
        told = [json.loads(receive_bytes(self._links, rank)) for rank in self._workers]
        for rank in self._workers:
            send_bytes(self._links, rank, json.dumps(told).encode())
        return True

    def hear(self) -> Report | None:
        """The next report, or None once the job has ended without one."""
        while not select.select([self._links.descriptor(FIRST)], [], [], LOOK_SECONDS)[0]:
            if self._ended():
                return None
        told = unpack(receive_bytes(self._links, FIRST))
        return Report([Round(*entry) for entry in told["rounds"]], told["state"])

    def answer(self, end: bool) -> None:
        self._links.send(FIRST, np.array([end], np.int64))

    def close(self) -> None:
        self._links.close()
        self.listener.close()
