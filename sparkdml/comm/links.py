"""This worker's authenticated TCP connections to its peers, and messages that go both ways at once.

Numbers go straight from and into numpy buffers. Whoever holds the secret is trusted afterwards: messages are neither
signed nor encrypted, and nothing in them is ever executed or decides how much memory is taken.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import select
import socket
import time
from collections.abc import Iterable, Sequence

import numpy as np

from sparkdml.comm import handshake
from sparkdml.comm.errors import Address, PeerError, PeerLostError, PeerRefusedError, PeerTimeoutError
from sparkdml.comm.handshake import Identity, RefusedError, Talk, accept, dial
from sparkdml.comm.lanes import HEADER, Incoming, Lane, Outgoing, Peer, bytes_of

logger = logging.getLogger(__name__)


class Listener:
    """Where peers of higher rank find this worker: a free port of ``host``, which must be a name they can reach."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        if host in ("", "0.0.0.0", "::"):
            raise ValueError(
                f"host='{host}' is no address that peers can dial; give this machine's own name or address"
            )
        family, kind, _, _, where = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        self.socket = socket.socket(family, kind)
        try:
            self.socket.bind(where)
            self.socket.listen(1024)
            self.socket.setblocking(False)
        except BaseException:
            self.socket.close()
            raise
        self.address: Address = self.socket.getsockname()[:2]

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Links:
    """This worker's connections, made by :func:`connect`; of two workers, the one of lower rank dials.

    ``clock`` (the caller's count of rounds) and ``kind`` (what the messages belong to) travel with every message, and a
    peer that sends others is out of step. Any error closes all links, because a message cut short cannot be continued,
    and because peers that wait for this worker then hear of it at once. One thread at a time.
    """

    def __init__(self, identity: Identity, addresses: Sequence[Address], listener: Listener, timeout: float) -> None:
        self.rank, self.size, self.timeout = identity.rank, identity.size, timeout
        self.clock = 0
        self.kind = ""
        #: The last layout of updates on which all workers agreed (``topologies.sum_updates``).
        self.layout = ""
        self.bytes_sent = self.bytes_received = self.messages_sent = 0
        self.packing_seconds = 0.0
        self._identity, self._addresses, self._listener = identity, addresses, listener
        self._peers: dict[int, Peer] = {}
        self._talks: list[Talk] = []
        self._turned_away, self._last_reason = 0, ""
        self._scratch = np.empty(0)
        self._closed = ""

    @property
    def peers(self) -> frozenset[int]:
        """Ranks with which a connection stands."""
        return frozenset(self._peers)

    def descriptor(self, rank: int) -> int:
        """The file descriptor of the connection to ``rank``, which must stand: to wait until something comes."""
        return self._peers[rank].sock.fileno()

    def exchange(self, to: int | None, out: np.ndarray | None, from_: int | None, into: np.ndarray | None) -> None:
        """Send ``out`` to rank ``to`` and fill ``into`` from rank ``from_``, at the same time; None leaves one out.

        A connection that is missing is made first; as it needs both sides, so may sending. Raises PeerTimeoutError when
        no byte moved in one direction for ``timeout`` seconds, PeerLostError, and OutOfStepError.
        """
        payloads = self._payload(to, out), self._payload(from_, into)
        if from_ is not None and payloads[1].readonly:
            raise ValueError("the array to receive into is read-only")
        try:
            self.connect([rank for rank in (to, from_) if rank is not None])
            self._run(self._lanes(to, from_, *payloads))
        except BaseException as error:
            self._close(f"{type(error).__name__}: {error}")
            raise

    def send(self, to: int, out: np.ndarray) -> None:
        """One way of :meth:`exchange`."""
        self.exchange(to, out, None, None)

    def receive(self, from_: int, into: np.ndarray) -> None:
        """The other way of :meth:`exchange`."""
        self.exchange(None, None, from_, into)

    def scratch(self, size: int) -> np.ndarray:
        """(size,) doubles of whatever value, valid until the next call."""
        if len(self._scratch) < size:
            self._scratch = np.empty(size)
        return self._scratch[:size]

    def connect(self, ranks: Iterable[int]) -> None:
        """Have connections to ``ranks``, each of which must be in a call for this worker's rank too."""
        if self._closed:
            raise ValueError(f"these links are closed: {self._closed}")
        missing = {rank for rank in ranks if rank not in self._peers}
        if missing:
            try:
                self._meet(sorted(missing))
            except BaseException as error:
                self._close(f"{type(error).__name__}: {error}")
                raise

    def admit(self, seconds: float) -> None:
        """Let in peers of lower rank, whoever comes next within so many seconds."""
        began = time.monotonic()
        for talk in self._ready(seconds):
            self._hear(talk, began)
        self._drop_the_silent()

    def close(self) -> None:
        """Close all connections, not the listener; peers that wait for this worker get a PeerLostError."""
        self._close("closed by its owner")

    def __enter__(self) -> Links:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _close(self, why: str) -> None:
        self._closed = self._closed or why
        for sock in [*(peer.sock for peer in self._peers.values()), *(talk.sock for talk in self._talks)]:
            sock.close()
        self._peers.clear()
        self._talks.clear()
        self._scratch = np.empty(0)

    def _payload(self, rank: int | None, array: np.ndarray | None) -> memoryview:
        if (rank is None) != (array is None):
            raise ValueError(f"a rank and an array go together, not rank {rank} and {type(array).__name__}")
        if rank is None or array is None:
            return memoryview(b"")
        self.check_rank(rank)
        return bytes_of(array)

    def check_rank(self, rank: int) -> None:
        """Raise ValueError unless ``rank`` is that of a peer."""
        if not 0 <= rank < self.size or rank == self.rank:
            raise ValueError(f"rank {self.rank} of {self.size} has no peer of rank {rank}")

    # messages

    def _lanes(self, to: int | None, from_: int | None, out: memoryview, into: memoryview) -> list[Lane]:
        kind = self.kind.encode()
        lanes: list[Lane] = []
        if to is not None:
            peer = self._peers[to]
            lanes.append(Outgoing(peer, HEADER.pack(kind, self.clock, peer.sent, len(out)), out))
            peer.sent += 1
            self.messages_sent += 1
            self.bytes_sent += len(out)
        if from_ is not None:
            peer = self._peers[from_]
            lanes.append(Incoming(peer, HEADER.pack(kind, self.clock, peer.received, len(into)), into))
            peer.received += 1
            self.bytes_received += len(into)
        return lanes

    def _run(self, lanes: list[Lane]) -> None:
        while lanes:
            moved = [lane.move() for lane in lanes]
            lanes = [lane for lane in lanes if lane.buffers]
            if lanes:
                slowest = min(lanes, key=lambda lane: lane.since)
                left = slowest.since + self.timeout - time.monotonic()
                if left <= 0.0:
                    raise slowest.late()
                if not any(moved):
                    self._wait(lanes, left)

    def _wait(self, lanes: list[Lane], seconds: float) -> None:
        # bare poll: 2 microseconds, where a selector takes 13
        poll = select.poll()
        events: dict[int, int] = {}
        for lane in lanes:
            sock = lane.peer.sock.fileno()
            events[sock] = events.get(sock, 0) | lane.event
            poll.register(sock, events[sock])
        poll.poll(seconds * 1e3)

    # connections

    def _meet(self, wanted: list[int]) -> None:
        """Dial those above, let in those below, all side by side, so that no order of calls can block.

        Peers that come before they are wanted are let in too; a handshake that is not over stays for the next call.
        """
        began = time.monotonic()
        for rank in wanted:
            if rank > self.rank:
                self._talks.append(self._dial(rank, began))
        while missing := [rank for rank in wanted if rank not in self._peers]:
            left = began + self.timeout - time.monotonic()
            if left <= 0.0:
                raise self._absent(missing, began)
            self.admit(left)

    def _dial(self, rank: int, began: float) -> Talk:
        try:
            family, kind, _, _, where = socket.getaddrinfo(*self._addresses[rank], type=socket.SOCK_STREAM)[0]
        except OSError as error:
            raise self._failed(PeerLostError, rank, str(error), began) from error
        sock = socket.socket(family, kind)
        sock.setblocking(False)
        error_number = sock.connect_ex(where)
        if error_number not in (0, errno.EINPROGRESS):
            sock.close()
            raise self._failed(PeerLostError, rank, os.strerror(error_number), began)
        return Talk(sock, dial(self._identity, rank), rank)

    def _ready(self, seconds: float) -> list[Talk]:
        """Handshakes that can go on, those of newcomers among them; waits at most ``seconds``."""
        now = time.monotonic()
        seconds = min([seconds, *(talk.deadline - now for talk in self._talks if talk.peer is None)])
        talks = {talk.sock.fileno(): talk for talk in self._talks}
        poll = select.poll()
        for number, talk in talks.items():
            poll.register(number, talk.event)
        poll.register(self._listener.socket, select.POLLIN)
        ready = [number for number, _ in poll.poll(max(seconds, 0.0) * 1e3)]
        newcomers = self._newcomers() if self._listener.socket.fileno() in ready else []
        self._talks += newcomers
        return [talks[number] for number in ready if number in talks] + newcomers

    def _newcomers(self) -> list[Talk]:
        try:
            sock, _ = self._listener.socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return []  # gone again
        sock.setblocking(False)
        return [Talk(sock, accept(self._identity, self._peers.keys()))]

    def _hear(self, talk: Talk, began: float) -> None:
        """Go on with a handshake. Only a peer that was dialled can fail this worker, a newcomer cannot."""
        try:
            rank = talk.advance()
        except (RefusedError, OSError) as error:
            self._talks.remove(talk)
            talk.sock.close()
            if talk.peer is not None:
                refused = isinstance(error, RefusedError)
                kind = PeerRefusedError if refused else PeerLostError
                raise self._failed(kind, talk.peer, str(error), began) from error
            self._refuse(str(error))
            return
        if rank is not None:
            self._talks.remove(talk)
            self._peers[rank] = Peer(rank, self._addresses[rank], talk.sock)

    def _drop_the_silent(self) -> None:
        now = time.monotonic()
        for talk in [talk for talk in self._talks if talk.peer is None and talk.deadline <= now]:
            self._talks.remove(talk)
            talk.sock.close()
            self._refuse(f"proved nothing within {handshake.SECONDS:g} s")

    def _refuse(self, reason: str) -> None:
        logger.info("rank %d turned a connection away: it %s", self.rank, reason)
        self._turned_away, self._last_reason = self._turned_away + 1, reason

    def _absent(self, missing: list[int], began: float) -> PeerTimeoutError:
        rank = missing[0]
        doing = "did not answer" if rank > self.rank else "did not connect"
        others = f"; nor did ranks {missing[1:]}" if missing[1:] else ""
        turned = f"; of {self._turned_away} turned away, the last {self._last_reason}" if self._turned_away else ""
        message = f"{doing} within {self.timeout:g} s{others}{turned}"
        return PeerTimeoutError(message, rank, self._addresses[rank], time.monotonic() - began)

    def _failed(self, kind: type[PeerError], rank: int, why: str, began: float) -> PeerError:
        return kind(f"cannot be reached: {why}", rank, self._addresses[rank], time.monotonic() - began)


def connect(
    rank: int,
    addresses: Sequence[Address],
    listener: Listener,
    secret: bytes,
    timeout: float,
    *,
    fit: str = "",
    neighbours: Iterable[int] = (),
) -> Links:
    """Links of worker ``rank`` to those at ``addresses`` (one a rank; ``listener`` is this worker's own).

    Connections to ``neighbours`` are made now, and each of those must name this worker as well; others are made when
    first used. Whoever does not prove that it knows ``secret`` (16 bytes or more) and works on ``fit`` is turned away.
    ``timeout`` is in seconds, for every wait. Raises what :meth:`Links.exchange` raises, and PeerRefusedError.
    """
    if not 0 <= rank < len(addresses):
        raise ValueError(f"rank={rank} is not among the {len(addresses)} addresses")
    if len(secret) < 16:
        raise ValueError(f"the secret has {len(secret)} bytes; take 16 or more, as of secrets.token_bytes(32)")
    if not timeout > 0.0:
        raise ValueError(f"timeout={timeout} must be positive")
    identity = Identity(rank, len(addresses), hashlib.sha256(fit.encode()).digest(), secret)
    links = Links(identity, tuple(addresses), listener, timeout)
    neighbours = sorted(neighbours)
    for neighbour in neighbours:
        links.check_rank(neighbour)
    links.connect(neighbours)
    return links
