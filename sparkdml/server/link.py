"""A client's calls to one shard: keys by digest, changes once, and the backup when the primary is gone."""

from __future__ import annotations

import errno
import math
import ssl
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparkdml.server.keys import Keys, KnownDigests
from sparkdml.server.wire import Connection, Header, Security, ServerRefusedError, ServerUnreachableError

#: What a part says, its keys, its update.
Told = tuple[Header, Keys | None, np.ndarray | None]
Answer = tuple[Header, list[np.ndarray]]

#: Between attempts to reach a server whose connection broke.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Link:
    """Threads take turns. ``addresses``: the shard's server, then its backup."""

    def __init__(
        self, addresses: Sequence[str], security: Security, timeout: float, client: str, fit: str = ""
    ) -> None:
        self._timeout = timeout
        self._connections = [Connection(address, security, timeout) for address in addresses]
        self._client, self._number = client, 0
        self._fit = {"fit": fit} if fit else {}
        self._known = KnownDigests()
        self._lock = threading.Lock()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def ask(self, op: str, header: Header, **options: Any) -> Answer:
        """A call that changes nothing."""
        with self._lock:
            return self._call(op, header, (), **options)

    def change(self, op: str, header: Header, arrays: Sequence[np.ndarray] = ()) -> Answer:
        """A call that is carried out once, however often it is sent."""
        with self._lock:
            return self._call(op, self._numbered(header), arrays)

    def compute(self, function: str, tables: Sequence[str], numbers: dict[str, Any], changes: bool) -> Answer:
        header = {"function": function, "tables": list(tables), "numbers": numbers}
        return self.change("compute", header) if changes else self.ask("compute", header)

    def parts(self, op: str, *messages: tuple[Header, Sequence[Told]], **options: Any) -> Answer:
        """A call about rows of tables: what to push, what to pull, or both (``exchange``).

        Keys that the server does not remember, or no more, are sent along.
        """
        with self._lock:
            if op != "pull":
                messages = ((self._numbered(messages[0][0]), messages[0][1]), *messages[1:])
            try:
                return self._call(op, *self._message(messages), **options)
            except ServerRefusedError as error:
                if error.kind != "unknown keys":
                    raise
            self._known.forget()
            return self._call(op, *self._message(messages), **options)

    def _message(self, messages: Sequence[tuple[Header, Sequence[Told]]]) -> tuple[Header, list[np.ndarray]]:
        # the server reads what is pulled first: keys of both are spelled out there
        *pulled, (header, arrays) = [self._spelled(*message) for message in reversed(messages)]
        for reading, keys in pulled:
            header, arrays = {**header, "pushed": len(arrays), "pull": reading}, [*arrays, *keys]
        return header, arrays

    def _numbered(self, header: Header) -> Header:
        self._number += 1
        return {**header, "client": self._client, "number": self._number}

    def _spelled(self, header: Header, told: Sequence[Told]) -> tuple[Header, list[np.ndarray]]:
        parts, arrays = [], []
        for one, keys, update in told:
            if keys is not None:
                if keys.digest in self._known:
                    one = {**one, "digest": keys.digest}
                else:
                    one = {**one, "keys": True}
                    arrays.append(keys.array)
                    self._known.add(keys.digest)
            parts.append(one)
            if update is not None:
                arrays.append(update)
        return {**header, "parts": parts}, arrays

    def _call(self, op: str, header: Header, arrays: Sequence[np.ndarray], **options: Any) -> Answer:
        """Connections that broke are made anew, once where there is a backup, else for the time of ``timeout``.

        Changes are numbered, so that they may be sent again.
        """
        header = {**header, **self._fit}
        end, pause, broke = math.inf, _FIRST_PAUSE, False
        while True:
            backup = len(self._connections) > 1
            try:
                return self._connections[0].call(op, header, arrays, **options)
            except ServerRefusedError as error:
                if not backup or error.kind != "superseded":
                    raise
            except ServerUnreachableError as error:
                end = min(end, time.monotonic() + self._timeout)
                if _may_heal(error) and not (broke and backup) and time.monotonic() + pause < end:
                    time.sleep(pause)
                    pause, broke = min(2.0 * pause, _LONGEST_PAUSE), True
                    continue
                if not backup:
                    raise
            self._connections.pop(0).close()
            end, broke = math.inf, False


def _may_heal(error: ServerUnreachableError) -> bool:
    """Whether a connection broke or found no way; where it was refused nobody listens any more."""
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN):
        return True
    return isinstance(cause, (ConnectionError, ssl.SSLEOFError)) and not isinstance(cause, ConnectionRefusedError)
