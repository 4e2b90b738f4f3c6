"""The calling end."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Sequence

import numpy as np

from sparkdml.server.wire.errors import (
    DamagedMessageError,
    ServerError,
    ServerRefusedError,
    ServerTimeoutError,
    ServerUnreachableError,
)  # fmt: skip
from sparkdml.server.wire.messages import Header, Layout, Limits
from sparkdml.server.wire.security import Security
from sparkdml.server.wire.stream import Stream, tune


class Connection:
    """Calls to one server, one after the other; threads take turns. A connection that broke is made anew by the next
    call. ``timeout`` is in seconds, for every wait in which no byte moves.
    """

    def __init__(self, address: str, security: Security, timeout: float) -> None:
        self.address, self.timeout = address, timeout
        self._security, self._tls = security, security.for_client()
        self._lock = threading.Lock()
        self._stream: Stream | None = None

    def call(
        self,
        op: str,
        header: Header,
        arrays: Sequence[np.ndarray] = (),
        timeout: float | None = None,
        into: Sequence[np.ndarray] | None = None,
    ) -> tuple[Header, list[np.ndarray]]:
        """The server's answer; ``into`` are contiguous arrays to receive it in, if its dtypes and shapes are theirs.

        Raises ServerUnreachableError, ServerTimeoutError and ServerRefusedError.
        """
        waiting = self.timeout if timeout is None else timeout
        with self._lock:
            try:
                stream = self._connected(waiting)
                stream.socket.settimeout(waiting)
                stream.send(self._security.token, {"op": op, **header}, arrays)
                answer, results = self._answer(stream, into)
            except TypeError:
                raise  # nothing was sent
            except BaseException as error:
                self._drop()
                explained = self._explained(error, op, header, waiting)
                if explained is None:
                    raise
                raise explained from error
        if "error" in answer:
            raise self._refused(answer, op, header)
        return answer, results

    def close(self) -> None:
        """The next call would connect again."""
        with self._lock:
            self._drop()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connected(self, timeout: float) -> Stream:
        if self._stream is None:
            host, _, port = self.address.rpartition(":")
            host = host.strip("[]")
            sock = socket.create_connection((host, int(port)), timeout)
            tune(sock)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=host)
            self._stream = Stream(sock, Limits())
        return self._stream

    def _answer(self, stream: Stream, into: Sequence[np.ndarray] | None) -> tuple[Header, list[np.ndarray]]:
        def places(header: Header, layouts: Sequence[Layout]) -> Sequence[np.ndarray]:
            if into is not None and [(a.dtype, a.shape) for a in into] == [(x.dtype, x.shape) for x in layouts]:
                return into
            return [np.empty(layout.shape, layout.dtype) for layout in layouts]

        prefix = stream.prefix()
        if prefix is None:
            raise ConnectionResetError("the server closed the connection")
        return stream.rest(prefix, places)

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _explained(self, error: BaseException, op: str, header: Header, waiting: float) -> ServerError | None:
        asked = describe(op, header)
        if isinstance(error, TimeoutError):
            what = f"no byte moved for {waiting:g} s; see whether it is busy or stopped, or allow for a longer timeout"
            return ServerTimeoutError(self.address, asked, what)
        if isinstance(error, ssl.SSLCertVerificationError):
            what = f"its certificate is not accepted: {error.verify_message}; see the authority and the server's name"
            return ServerUnreachableError(self.address, asked, what)
        if isinstance(error, (OSError, DamagedMessageError)):
            what = f"{error}; see whether it still runs, and whether both sides use TLS or neither does"
            return ServerUnreachableError(self.address, asked, what)
        return None

    def _refused(self, answer: Header, op: str, header: Header) -> ServerRefusedError | ServerTimeoutError:
        kind, what, asked = str(answer["error"]), str(answer.get("message", "")), describe(op, header)
        if kind == "timeout":
            return ServerTimeoutError(self.address, asked, what)
        if kind == "token":
            what += "; give the client the token of this very session"
        return ServerRefusedError(self.address, asked, what, kind)


def describe(op: str, header: Header) -> str:
    """``pull 'w'``."""
    return f"{op} {header['table']!r}" if "table" in header else op


def connect(address: str, security: Security, timeout: float) -> Connection:
    """Calls to the server at ``address``, as in ``127.0.0.1:7000``; raises what calls raise, if it is not there."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"address={address!r}, but it must be host:port, as in 127.0.0.1:7000")
    connection = Connection(address, security, timeout)
    connection.call("hello", {})
    return connection
