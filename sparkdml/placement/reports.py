"""What the first worker of a long job tells the driver while it runs, and what the driver answers."""

from __future__ import annotations

import dataclasses
import math
import select
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparkdml.algorithms.states import pack, unpack
from sparkdml.comm.links import Address, Links, Listener, connect
from sparkdml.report.history import Round

#: Ranks of the two ends: the worker dials.
WORKER, DRIVER = 0, 1
#: How often the driver looks whether the job has ended.
LOOK_SECONDS = 0.2


class Report(NamedTuple):
    """Rounds since the last report, and the state after the latest of them."""

    rounds: list[Round]
    state: Any


class Reporter:
    """The worker's end: reports, and learns whether the fit shall end."""

    def __init__(self, driver: Address, secret: bytes, timeout: float, fit: str) -> None:
        self._listener = Listener()
        addresses = [self._listener.address, driver]
        self._links = connect(WORKER, addresses, self._listener, secret, timeout, fit=fit, neighbours=[DRIVER])

    def report(self, rounds: list[Round], state: Any) -> bool:
        """Tell the driver; whether it asks to end the fit."""
        content = pack({"rounds": [dataclasses.astuple(entry) for entry in rounds], "state": state})
        self._links.send(DRIVER, np.array([len(content)], np.int64))
        self._links.send(DRIVER, np.frombuffer(content, np.uint8))
        answer = np.zeros(1, np.int64)
        self._links.receive(DRIVER, answer)
        return bool(answer[0])

    def close(self) -> None:
        self._links.close()
        self._listener.close()


class Desk:
    """The driver's end. ``ended`` tells whether the job is over, so that nobody is waited for in vain."""

    def __init__(self, host: str, secret: bytes, timeout: float, fit: str, ended: Callable[[], bool]) -> None:
        self.listener = Listener(host)
        addresses = [self.listener.address, self.listener.address]
        self._links: Links = connect(DRIVER, addresses, self.listener, secret, timeout, fit=fit)
        self._ended = ended

    def hear(self, start_seconds: float) -> Report | None:
        """The next report, or None once the job has ended without one.

        Raises TimeoutError if the first one is not under way within ``start_seconds``.
        """
        if not self._links.peers:
            if not self._comes(self.listener.socket.fileno(), start_seconds):
                return None
            self._links.connect([WORKER])
        if not self._comes(self._links.descriptor(WORKER), math.inf):
            return None
        length = np.zeros(1, np.int64)
        self._links.receive(WORKER, length)
        content = np.empty(int(length[0]), np.uint8)
        self._links.receive(WORKER, content)
        told = unpack(content.tobytes())
        return Report([Round(*entry) for entry in told["rounds"]], told["state"])

    def answer(self, end: bool) -> None:
        self._links.send(WORKER, np.array([end], np.int64))

    def _comes(self, descriptor: int, seconds: float) -> bool:
        """Wait until something can be read, or the job has ended."""
        deadline = time.monotonic() + seconds
        while True:
            if select.select([descriptor], [], [], LOOK_SECONDS)[0]:
                return True
            if self._ended():
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(f"no worker reported within {seconds:g} s")

    def close(self) -> None:
        self._links.close()
        self.listener.close()
