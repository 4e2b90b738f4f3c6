"""A backup of a shard: it does what the primary does, in the same order, before the primary answers.

    client -> primary   a change; carried out, sent to the backup, answered when that has answered
    backup -> primary   join: the primary copies its state, sends it, then what changed meanwhile, then every change
    client -> backup    anything: the primary is gone; from now on this is the primary, and takes no other's changes

A primary whose backup cannot be reached goes on alone; one whose backup was promoted answers nobody any more. So what
was acknowledged is never lost while one of both lives, and clients send again what was not. Changes carry the client's
number, which both know: none is carried out twice. What is not covered: a network that parts the two, and clients on
both sides of it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from sparkdml.server import snapshot
from sparkdml.server.shard import Shard
from sparkdml.server.wire import (
    Connection,
    Header,
    Reply,
    Security,
    ServerError,
    ServerRefusedError,
    ServerUnreachableError,
    connect,
)  # fmt: skip
from sparkdml.server.wire.errors import RefusedCallError

logger = logging.getLogger(__name__)

Change = tuple[str, Header, list[np.ndarray]]

#: So few changes are sent while others wait.
_FEW = 4


class Primary:
    """The shard's log: sends changes on to a backup, once one has joined."""

    def __init__(self, shard: Shard, security: Security, timeout: float) -> None:
        self._shard, self._security, self._timeout = shard, security, timeout
        self._backup: Connection | None = None
        self._behind: list[Change] | None = None
        self.superseded = False
        shard.log = self._follow

    @property
    def has_backup(self) -> bool:
        """Whether one has caught up."""
        return self._backup is not None and self._behind is None

    def join(self, address: str) -> None:
        """Bring the server at ``address`` up to date, and keep it so; it takes the place of any other."""
        backup = connect(address, self._security, self._timeout)
        with self._shard.changed:
            state = snapshot.taken(self._shard)
            self._backup, self._behind = backup, []
        try:
            for name, array in state.items():
                backup.call("load", {"name": name}, [array])
            backup.call("loaded", {})
            while self._behind is not None:
                self._catch_up(backup)
        except BaseException:
            with self._shard.changed:
                self._backup, self._behind = None, None
            raise

    def _catch_up(self, backup: Connection) -> None:
        with self._shard.changed:
            changes, self._behind = self._behind or [], []
            if len(changes) <= _FEW:
                self._send_all(backup, changes)
                self._behind = None
                return
        self._send_all(backup, changes)

    def _follow(self, op: str, header: Header, arrays: Sequence[np.ndarray]) -> None:
        if self._backup is None:
            return
        if self._behind is not None:
            self._behind.append((op, header, [array.copy() for array in arrays]))
            return
        try:
            try:
                self._send_all(self._backup, [(op, header, list(arrays))])
            except ServerUnreachableError:
                # a connection that was cut is made anew; the number tells whether the change has come before
                self._send_all(self._backup, [(op, header, list(arrays))])
        except ServerError as error:
            if isinstance(error, ServerRefusedError) and error.kind == "promoted":
                self.superseded = True
                raise RefusedCallError("superseded", "the backup has taken this server's place; ask it") from None
            logger.warning("going on without a backup: %s", error)
            self._backup = None

    @staticmethod
    def _send_all(backup: Connection, changes: Sequence[Change]) -> None:
        for op, header, arrays in changes:
            backup.call("replicate", {"change": op, "header": header}, arrays)


class Backup:
    """What a backup does with calls, until one of a client makes it the primary."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._loading: dict[str, np.ndarray] = {}
        self.caught_up = self.promoted = False

    def __call__(self, op: str, header: Header, arrays: list[np.ndarray], peer: str) -> Reply:
        """Of the ops ``load``, ``loaded`` and ``replicate``."""
        with self._shard.changed:
            if self.promoted:
                raise RefusedCallError("promoted", "this server is no backup any more")
            if op == "load":
                self._loading[str(header.get("name"))] = arrays[0].copy()
                return {}, ()
            if op == "loaded":
                snapshot.put(self._shard, self._loading)
                self._loading, self.caught_up = {}, True
                return {}, ()
            return self._shard(header["change"], header["header"], arrays, peer)

    def promote(self) -> None:
        """A client calls: the primary is gone. Raises RefusedCallError if this server does not know all of it."""
        with self._shard.changed:
            if not self.caught_up:
                raise RefusedCallError("not ready", "this backup has not caught up with its primary; that is lost")
            if not self.promoted:
                logger.warning("the primary is gone, this backup takes its place")
            self.promoted = True
