"""One message on its way in one direction: a header that says which one it is, and the bytes of an array."""

from __future__ import annotations

import select
import socket
import struct
import time
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from sparkdml.comm.errors import Address, OutOfStepError, PeerLostError, PeerTimeoutError

#: Which message this is: kind, clock, sequence number, length. A peer that sends another one is out of step.
HEADER = struct.Struct("<24sQQQ")


def _describe(header: bytes | bytearray) -> str:
    kind, clock, sequence, length = HEADER.unpack(header)
    kind = kind.rstrip(b"\0").decode(errors="replace")
    return f"'{kind}' at clock {clock}, message {sequence} of {length} bytes"


def bytes_of(array: np.ndarray) -> memoryview:
    if not array.flags.c_contiguous:
        raise ValueError(f"only contiguous arrays can be exchanged, not one of strides {array.strides}; copy it first")
    return array.reshape(-1).view(np.uint8).data


class Peer:
    """A connection that stands, and how many messages went over it each way."""

    def __init__(self, rank: int, address: Address, sock: socket.socket) -> None:
        self.rank, self.address, self.sock = rank, address, sock
        self.sent = self.received = 0


class Lane(ABC):
    """One message on its way in one direction. ``since``: when its bytes last moved."""

    event: ClassVar[int]
    silence: ClassVar[str]

    def __init__(self, peer: Peer, buffers: list[memoryview]) -> None:
        self.peer, self.buffers, self.began = peer, buffers, time.monotonic()
        self.since = self.began

    def move(self) -> bool:
        """Move what the socket takes or has; whether anything did."""
        try:
            moved = self._transfer()
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._lost(f"({error})") from error
        self.since = time.monotonic()
        while self.buffers and moved >= len(self.buffers[0]):
            moved -= len(self.buffers.pop(0))
        if moved:
            self.buffers[0] = self.buffers[0][moved:]
        return True

    @abstractmethod
    def _transfer(self) -> int:
        """One call of the socket, which never waits; how many bytes moved."""

    def _lost(self, how: str) -> PeerLostError:
        waited = time.monotonic() - self.began
        message = f"is lost {how}, {waited:.3g} s after this worker began to wait for it"
        return PeerLostError(message, self.peer.rank, self.peer.address, waited)

    def late(self) -> PeerTimeoutError:
        waited = time.monotonic() - self.since
        message = f"{self.silence} for {waited:.3g} s; see how it fares, or allow for a longer timeout"
        return PeerTimeoutError(message, self.peer.rank, self.peer.address, waited)


class Outgoing(Lane):
    event = select.POLLOUT
    silence = "took no bytes"

    def __init__(self, peer: Peer, header: bytes, payload: memoryview) -> None:
        super().__init__(peer, [memoryview(header), payload])

    def _transfer(self) -> int:
        return self.peer.sock.sendmsg(self.buffers)


class Incoming(Lane):
    event = select.POLLIN
    silence = "sent no bytes"

    def __init__(self, peer: Peer, header: bytes, payload: memoryview) -> None:
        self.due, self.header = header, bytearray(len(header))
        super().__init__(peer, [memoryview(self.header), payload])

    def _transfer(self) -> int:
        moved = self.peer.sock.recvmsg_into(self.buffers)[0]
        if moved == 0:
            raise ConnectionResetError("it closed the connection")
        if len(self.buffers) == 2 and moved >= len(self.buffers[0]):
            self._check()
        return moved

    def _check(self) -> None:
        if self.header != self.due:
            waited = time.monotonic() - self.began
            message = f"is out of step: it sent {_describe(self.header)}, but {_describe(self.due)} is due"
            raise OutOfStepError(message, self.peer.rank, self.peer.address, waited)
