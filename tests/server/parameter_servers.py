"""Servers in threads of the test's own process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from sparkdml.server.client import Client
from sparkdml.server.clocks import Ledger
from sparkdml.server.serving import Server, Settings
from sparkdml.server.wire import Security

SECURITY = Security.fresh()


@contextmanager
def servers(count: int = 1, workers: int = 1, staleness: int = -1, **settings: Any) -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(Server(Ledger(workers, staleness), Settings(**settings), SECURITY))
            for _ in range(count)
        ]


def client(of: Sequence[Server], timeout: float = 10.0) -> Client:
    return Client([server.listening.address for server in of], SECURITY, timeout)
