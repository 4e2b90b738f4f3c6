"""Which fit has a server: one at a time, and calls of any other are refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparkdml.server.wire.errors import RefusedCallError

#: A fit that has asked nothing for so long is taken for dead: its driver looks many times a second.
SILENCE_SECONDS = 60.0
#: Calls that are of no fit.
FREE = ("begin", "end", "status")


class Tenancy:
    """``fit`` is the name that its calls carry; empty where none has begun, and for calls that carry none.

    So what is left of an ended fit (a task that Spark has not stopped yet) cannot touch the tables of the next one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.fit = self._failure = ""
        self._clock, self._heard, self._under_way = clock, clock(), 0
        self._lock = threading.Lock()

    @contextmanager
    def calling(self, op: str, fit: object) -> Iterator[None]:
        """A call of ``fit`` is under way. Raises RefusedCallError if that does not have the server."""
        if op in FREE:
            yield
            return
        with self._lock:
            self.check(fit)
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                self._heard = self._clock()

    def check(self, fit: object) -> None:
        if fit != self.fit:
            has = f"fit '{self.fit}' has it" if self.fit else "no fit has it; if it was started anew, begin again"
            raise RefusedCallError("other fit", f"this server is not that of fit '{str(fit)[:80]}': {has}")
        if self._failure:
            raise RefusedCallError("failed", self._failure)

    def begin(self, fit: str, instead_of: str) -> None:
        """``fit`` has the server from now on; ``instead_of`` is a fit that gives it up.

        Raises RefusedCallError while another one is alive.
        """
        with self._lock:
            silent = self._clock() - self._heard
            alive = self._under_way > 0 or silent < SILENCE_SECONDS
            if self.fit not in ("", fit, instead_of) and alive:
                raise RefusedCallError(
                    "busy",
                    f"fit '{self.fit}' has this server, and was heard of {silent:.1f} s ago; wait until it has ended "
                    f"(or has been silent for {SILENCE_SECONDS:g} s), or use other servers",
                )
            self.fit, self._failure, self._heard = fit, "", self._clock()

    def fail(self, why: str) -> None:
        """Refuse all further calls of this fit: a part of it is lost, for which others would wait."""
        self._failure = why

    def end(self, fit: object) -> None:
        with self._lock:
            self._failure = ""
            self.check(fit)
            self.fit = ""
