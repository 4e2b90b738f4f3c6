"""The serving end: a thread a connection, because calls spend their time in numpy and the kernel, without the GIL."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from sparkdml.server.wire.errors import DamagedMessageError, RefusedCallError
from sparkdml.server.wire.messages import TOKEN_BYTES, Header, Limits, Prefix
from sparkdml.server.wire.security import Security
from sparkdml.server.wire.stream import Stream, tune

logger = logging.getLogger(__name__)

Reply = tuple[Header, Sequence[np.ndarray]]
#: ``handler(op, header, arrays, peer)``, called from several threads; arrays are valid during the call only.
#: RefusedCallError goes to the caller; any other error too, as "internal", and to the log.
Handler = Callable[[str, Header, list[np.ndarray], str], Reply]

#: Calls under way when the server closes are answered within that time, or not.
_LAST_SECONDS = 2.0
_NO_TOKEN = bytes(TOKEN_BYTES)


class _WrongTokenError(Exception):
    """The prefix has another token than the server's."""


class Listening:
    """An open port. Use ``with``, or :meth:`close`. ``faults`` counts what was turned away, by reason."""

    def __init__(self, handler: Handler, listener: socket.socket, security: Security, limits: Limits) -> None:
        self.faults: Counter[str] = Counter()
        self._handler, self._listener, self._security, self._limits = handler, listener, security, limits
        self._tls = security.for_server()
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._accept, name="accept", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def connections(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """Close the port, answer the calls under way, and end all connections."""
        with self._lock:
            self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        self._listener.close()
        for how, seconds in ((socket.SHUT_RD, _LAST_SECONDS), (socket.SHUT_RDWR, None)):
            with self._lock:
                threads = dict(self._open)
            for sock in threads:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, how)  # that of TLS would stop speaking TLS
            self._join(threads.values(), seconds)
        self._join([self._thread], None)

    @staticmethod
    def _join(threads: Iterable[threading.Thread], seconds: float | None) -> None:
        end = None if seconds is None else time.monotonic() + seconds
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(None if end is None else max(end - time.monotonic(), 0.0))

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, where = self._listener.accept()
            except OSError:
                if self._closing:
                    return
                logger.warning("a connection could not be accepted", exc_info=True)
                self._fault("accept")
                threading.Event().wait(0.1)  # out of file descriptors: until some are closed
                continue
            peer = f"{where[0]}:{where[1]}"
            thread = threading.Thread(target=self._converse, args=(sock, peer), name=peer, daemon=True)
            with self._lock:
                full = self._closing or len(self._open) >= self._limits.connections
                if not full:
                    self._open[sock] = thread
                    thread.start()
            if full:
                self._fault("too many connections")
                sock.close()

    def _converse(self, sock: socket.socket, peer: str) -> None:
        try:
            self._serve(sock, peer)
        except TimeoutError:
            self._fault("silent connection")
        except OSError as error:
            if not self._closing:
                self._fault("broken connection")
                logger.info("the connection of %s broke: %s", peer, error)
        finally:
            with self._lock:
                self._open.pop(sock, None)
            sock.close()

    def _serve(self, sock: socket.socket, peer: str) -> None:
        tune(sock)
        sock.settimeout(self._limits.greeting_seconds)
        if self._tls is not None:
            plain = sock
            sock = self._tls.wrap_socket(plain, server_side=True)
            with self._lock:
                self._open[sock] = self._open.pop(plain)
        stream = Stream(sock, self._limits)
        try:
            while (prefix := stream.prefix(self._admit)) is not None:
                sock.settimeout(self._limits.idle_seconds)
                header, arrays = stream.rest(prefix)
                op = header.pop("op", None)
                if not isinstance(op, str):
                    raise DamagedMessageError("the header names no op")
                stream.send(_NO_TOKEN, *self._answer(op, header, arrays, peer))
                sock.settimeout(None)  # between calls workers compute for as long as they like
        except (DamagedMessageError, _WrongTokenError) as error:
            logger.info("%s is turned away: %s", peer, error)
            self._turn_away(stream, error)
        finally:
            with self._lock:
                self._open.pop(sock, None)
            stream.close()

    def _admit(self, prefix: Prefix) -> None:
        if not self._security.admits(prefix.token):
            raise _WrongTokenError("the token is not this server's")

    def _answer(self, op: str, header: Header, arrays: list[np.ndarray], peer: str) -> Reply:
        if op == "hello":
            return {}, ()
        try:
            return self._handler(op, header, arrays, peer)
        except RefusedCallError as error:
            self._fault("refused call")
            return {"error": error.kind, "message": str(error)}, ()
        except Exception as error:
            logger.exception("'%s' of %s failed", op, peer)
            self._fault("failed call")
            return {"error": "internal", "message": f"{type(error).__name__}: {error}; see the server's log"}, ()

    def _turn_away(self, stream: Stream, error: Exception) -> None:
        damaged = isinstance(error, DamagedMessageError)
        self._fault("damaged message" if damaged else "wrong token")
        with contextlib.suppress(OSError):
            stream.socket.settimeout(1.0)
            stream.send(_NO_TOKEN, {"error": "damaged" if damaged else "token", "message": str(error)}, ())
            # closing with bytes unread would reset the connection, and the answer with it
            stream.socket.shutdown(socket.SHUT_WR)
            for _ in range(64):
                if not stream.socket.recv(2**16):
                    break

    def _fault(self, reason: str) -> None:
        with self._lock:
            self.faults[reason] += 1


def serve(handler: Handler, host: str, port: int, security: Security, limits: Limits) -> Listening:
    """Answer calls at ``host`` and ``port`` (0: a free one) until closed. Raises OSError, ValueError, ssl.SSLError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=128)
    try:
        return Listening(handler, listener, security, limits)
    except BaseException:
        listener.close()
        raise
