"""A network between a client and a server that delays, cuts and swallows."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable

#: ``fault(upwards, number)`` of the number-th piece of bytes on its way to the server, or from it (``upwards`` False):
#: seconds by which it comes late, or what becomes of it.
PASS, CUT, SWALLOW = 0.0, -1.0, -2.0
Fault = Callable[[bool, int], float]


def sound(upwards: bool, number: int) -> float:
    return PASS


class Proxy:
    """Relays connections to ``target``. Use ``with``."""

    def __init__(self, target: str, fault: Fault = sound) -> None:
        host, _, port = target.rpartition(":")
        self._target, self.fault = (host, int(port)), fault
        self.cuts = 0
        self._counts, self._lock = {True: 0, False: 0}, threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._begin(self._accept)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in self._pairs:
            self._end(pair)
        for thread in self._threads:
            thread.join(5.0)
            assert not thread.is_alive()

    def _begin(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, 5.0)
            except OSError:
                near.close()  # as a network does where the host is gone
                continue
            for one in (near, far):
                one.settimeout(None)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = near, far
            self._pairs.append(pair)
            self._begin(self._relay, pair, True)
            self._begin(self._relay, pair, False)

    def _relay(self, pair: tuple[socket.socket, socket.socket], upwards: bool) -> None:
        source, sink = pair if upwards else pair[::-1]
        try:
            while data := source.recv(2**16):
                with self._lock:
                    number = self._counts[upwards]
                    self._counts[upwards] += 1
                fate = self.fault(upwards, number)
                if fate == CUT:
                    self.cuts += 1
                    break
                if fate == SWALLOW:
                    continue
                time.sleep(fate)
                sink.sendall(data)
        except OSError:
            pass
        self._end(pair)

    @staticmethod
    def _end(pair: tuple[socket.socket, socket.socket]) -> None:
        for one in pair:
            with contextlib.suppress(OSError):
                # a reset, not an orderly end
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.shutdown(socket.SHUT_RDWR)
            one.close()
