"""How two workers prove to each other that they hold the secret, for this fit and these two ranks."""

from __future__ import annotations

import hmac
import os
import secrets
import select
import socket
import struct
import time
from collections.abc import Generator, Iterable
from typing import NamedTuple

#: A connection that has not proved itself by then is dropped; peers themselves answer within milliseconds.
SECONDS = 5.0
#: Where the system has these: after so much silence ask whether the peer is there, so often, so many times.
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}

#   acceptor -> dialer    protocol, nonce
#   dialer -> acceptor    protocol, nonce, fit, both ranks, HMAC over role, both nonces, fit, ranks
#   acceptor -> dialer    HMAC over its own role and the same; or zeros: refused

_PROTOCOL = b"sparkdml links 1"
_HELLO = struct.Struct("<16s32s")
_CLAIM = struct.Struct("<16s32s32sII32s")
_NO = bytes(32)

#: Yields what to send and how many bytes to read next; returns the peer's rank.
_Steps = Generator[tuple[bytes, int], bytes, int]


class RefusedError(Exception):
    """The other side of a handshake is not whom it should be."""


class Identity(NamedTuple):
    """Whom this worker claims to be; ``fit`` is a digest."""

    rank: int
    size: int
    fit: bytes
    secret: bytes

    def proof(self, role: bytes, nonces: bytes, dialer: int, acceptor: int) -> bytes:
        text = _PROTOCOL + role + nonces + self.fit + struct.pack("<II", dialer, acceptor)
        return hmac.digest(self.secret, text, "sha256")


def dial(me: Identity, peer: int) -> _Steps:
    protocol, theirs = _HELLO.unpack((yield b"", _HELLO.size))
    if protocol != _PROTOCOL:
        raise RefusedError("speaks another protocol")
    mine = secrets.token_bytes(32)
    proof = me.proof(b"dial", theirs + mine, me.rank, peer)
    answer = yield _CLAIM.pack(_PROTOCOL, mine, me.fit, me.rank, peer, proof), 32
    if answer == _NO:
        raise RefusedError("refused this worker: it has another secret, is in another fit, or has this rank already")
    if not hmac.compare_digest(answer, me.proof(b"accept", theirs + mine, me.rank, peer)):
        raise RefusedError("could not prove that it knows the secret")
    return peer


def accept(me: Identity, taken: Iterable[int]) -> _Steps:
    mine = secrets.token_bytes(32)
    claim = yield _HELLO.pack(_PROTOCOL, mine), _CLAIM.size
    protocol, theirs, fit, dialer, acceptor, proof = _CLAIM.unpack(claim)
    if protocol != _PROTOCOL:
        raise RefusedError("speaks another protocol")
    if fit != me.fit:
        reason = "is in another fit"
    elif not hmac.compare_digest(proof, me.proof(b"dial", mine + theirs, dialer, acceptor)):
        reason = "does not know the secret"
    elif acceptor != me.rank or not dialer < me.rank or dialer in taken:
        reason = f"says that rank {dialer} dials rank {acceptor}, which is not due at rank {me.rank}"
    else:
        yield me.proof(b"accept", mine + theirs, dialer, acceptor), 0
        return dialer
    yield _NO, 0
    raise RefusedError(reason)


class Talk:
    """A handshake under way. ``peer`` is the rank that was dialled, None for whoever came."""

    def __init__(self, sock: socket.socket, steps: _Steps, peer: int | None = None) -> None:
        self.sock, self.peer, self.deadline = sock, peer, time.monotonic() + SECONDS
        self._steps, self._answer, self._wanted = steps, bytearray(), -1
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # so that a peer whose host vanished is found out, however long it may take to answer
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, seconds in KEEP_ALIVE.items():
            option = getattr(socket, name, None)
            if option is not None:
                sock.setsockopt(socket.IPPROTO_TCP, option, seconds)

    @property
    def event(self) -> int:
        """What to wait for; a connection under way becomes writable when it stands, or has failed."""
        return select.POLLOUT if self.peer is not None and self._wanted < 0 else select.POLLIN

    def advance(self) -> int | None:
        """Do what can be done without waiting. The peer's rank, once it has proved it."""
        if self._wanted < 0:
            error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self._take(next(self._steps))
        try:
            while True:
                while len(self._answer) < self._wanted:
                    piece = self.sock.recv(self._wanted - len(self._answer))
                    if not piece:
                        raise ConnectionResetError("closed the connection during the handshake")
                    self._answer += piece
                self._take(self._steps.send(bytes(self._answer)))
        except BlockingIOError:
            return None
        except StopIteration as end:
            return end.value

    def _take(self, step: tuple[bytes, int]) -> None:
        text, self._wanted = step
        self._answer.clear()
        if text:
            self.sock.send(text)  # so few bytes fit the buffer of any new connection
