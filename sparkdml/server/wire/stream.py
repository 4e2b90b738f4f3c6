"""Messages over one connected socket, plain or TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence

import numpy as np

from sparkdml.comm.handshake import KEEP_ALIVE
from sparkdml.server.wire.messages import (
    PREFIX,
    Header,
    Layout,
    Limits,
    Prefix,
    arrays_in,
    encode,
    read_header,
    read_prefix,
)  # fmt: skip

#: Buffers of this size or less are kept from message to message: the system takes as long to hand out fresh memory as
#: the bytes take to come.
_KEPT_BYTES = 2**26
#: Up to this size buffers are sent as one: a system call or a TLS record each costs more than copying them.
_JOINED_BYTES = 2**14
#: Buffers of one system call; POSIX promises 16, Linux takes 1024.
_BUFFERS = 16

Places = Callable[[Header, Sequence[Layout]], Sequence[np.ndarray] | None]


class Stream:
    """``received`` and ``sent`` count bytes. One thread at a time."""

    def __init__(self, sock: socket.socket, limits: Limits) -> None:
        self.socket, self.limits = sock, limits
        self.received = self.sent = 0
        self._prefix = bytearray(PREFIX.size)
        self._kept = np.empty(0, np.uint8)

    def send(self, token: bytes, header: Header, arrays: Sequence[np.ndarray]) -> None:
        """Raises OSError, TimeoutError among them."""
        buffers = encode(token, header, arrays)
        total = sum(map(len, buffers))
        if total <= _JOINED_BYTES:
            self.socket.sendall(b"".join(buffers))
        elif isinstance(self.socket, ssl.SSLSocket):
            for buffer in buffers:
                self.socket.sendall(buffer)
        else:
            self._send_gathered(buffers)
        self.sent += total

    def prefix(self, check: Callable[[Prefix], None] = lambda _: None) -> Prefix | None:
        """The beginning of the next message; None if the peer closed the connection before it."""
        view = memoryview(self._prefix)
        count = self.socket.recv_into(view)
        if not count:
            return None
        self._fill(view[count:])
        self.received += PREFIX.size
        found = read_prefix(self._prefix, self.limits)
        check(found)
        return found

    def rest(self, prefix: Prefix, places: Places = lambda *_: None) -> tuple[Header, list[np.ndarray]]:
        """The message that ``prefix`` began.

        ``places`` may give arrays for it to be received in; else the arrays are valid until the next message.
        Raises DamagedMessageError, after which nothing more can be read from the connection, and OSError.
        """
        text = bytearray(prefix.header_bytes)
        self._fill(memoryview(text))
        header, layouts = read_header(text, prefix.array_bytes, self.limits)
        given = places(header, layouts)
        if given is None:
            buffer = self._buffer(prefix.array_bytes)
            self._fill(buffer[: prefix.array_bytes].data)
            arrays = arrays_in(buffer, layouts)
        else:
            arrays = list(given)
            for array, layout in zip(arrays, layouts, strict=True):
                self._fill(array.reshape(-1).view(np.uint8).data)
                self._fill(memoryview(bytearray(-layout.size % 8)))
        self.received += prefix.header_bytes + prefix.array_bytes
        return header, arrays

    def close(self) -> None:
        """Also from another thread, whose call then fails."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _fill(self, view: memoryview) -> None:
        while view:
            count = self.socket.recv_into(view)
            if not count:
                raise ConnectionResetError("the connection was closed within a message")
            view = view[count:]

    def _send_gathered(self, buffers: list[memoryview]) -> None:
        at = 0
        while at < len(buffers):
            moved = self.socket.sendmsg(buffers[at : at + _BUFFERS])
            while at < len(buffers) and moved >= len(buffers[at]):
                moved -= len(buffers[at])
                at += 1
            if moved:
                buffers[at] = buffers[at][moved:]

    def _buffer(self, size: int) -> np.ndarray:
        if size > _KEPT_BYTES:
            return np.empty(size, np.uint8)
        if len(self._kept) < size:
            self._kept = np.empty(size, np.uint8)
        return self._kept


def tune(sock: socket.socket) -> None:
    """Small messages leave at once, and a peer whose host vanished is found out."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in KEEP_ALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, seconds)
