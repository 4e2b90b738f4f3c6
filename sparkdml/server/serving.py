"""A server: a shard at a port, with metrics, snapshots and, if there is one, a backup; and when it ends."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import HTTPServer
from ipaddress import ip_address
from pathlib import Path

import numpy as np

from sparkdml.server import snapshot
from sparkdml.server.clocks import Ledger
from sparkdml.server.metrics import Metrics
from sparkdml.server.parts import argument
from sparkdml.server.replica import Backup, Primary
from sparkdml.server.shard import Room, Shard
from sparkdml.server.wire import Header, Limits, Reply, Security, connect, serve
from sparkdml.server.wire.errors import RefusedCallError

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
#: A backup is given all tables in that time.
_JOIN_SECONDS = 600.0
_REPLICATION = ("load", "loaded", "replicate")


@dataclass(frozen=True)
class Settings:
    """How a server is set up. Ports: 0 for a free one; ``metrics_port``: None for none.

    snapshots : directory of the files that clients may have written; empty for none. restore : name of one to begin
    with. backup_of : address of the primary whose backup this is.
    """

    host: str = "127.0.0.1"
    port: int = 0
    metrics_port: int | None = None
    snapshots: str = ""
    restore: str = ""
    backup_of: str = ""
    timeout: float = 60.0
    room: Room = field(default_factory=Room)
    limits: Limits = field(default_factory=Limits)


class Server:
    """Use ``with``. ``over`` is set when a client asked it to end."""

    def __init__(
        self, ledger: Ledger, settings: Settings, security: Security, over: threading.Event | None = None
    ) -> None:
        self.over = over or threading.Event()
        self.metrics = Metrics()
        self.shard = Shard(ledger, settings.room, self.metrics)
        self._settings = settings
        self._primary = Primary(self.shard, security, settings.timeout)
        self._backup = Backup(self.shard) if settings.backup_of else None
        self._http: HTTPServer | None = None
        if settings.restore:
            snapshot.load(self.shard, self._file(settings.restore))
        if not (security.certificate or _is_loopback(settings.host)):
            logger.warning(
                "%s is reached from other machines, and tokens and values are sent unencrypted", settings.host
            )
        self.listening = serve(self._handle, settings.host, settings.port, security, settings.limits)
        try:
            self.metrics.watch(lambda: Counter(self.listening.faults), self._gauges)
            if settings.metrics_port is not None:
                self._http = self.metrics.serve(settings.host, settings.metrics_port)
            if settings.backup_of:
                with connect(settings.backup_of, security, settings.timeout) as primary:
                    primary.call("join", {"address": self.listening.address}, timeout=_JOIN_SECONDS)
        except BaseException:
            self.close()
            raise

    @property
    def metrics_port(self) -> int | None:
        return self._http.server_address[1] if self._http else None

    def close(self) -> None:
        self.shard.close()
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
        self.listening.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _handle(self, op: str, header: Header, arrays: list[np.ndarray], peer: str) -> Reply:
        if op == "stop":
            self.over.set()
            return {}, ()
        if op == "status":
            answer, _ = self.shard(op, header, arrays, peer)
            return {**answer, "pid": os.getpid(), "faults": dict(self.listening.faults), **self._gauges()}, ()
        if self._backup is not None:
            if op in _REPLICATION:
                return self._backup(op, header, arrays, peer)
            self._backup.promote()
        if self._primary.superseded:
            raise RefusedCallError("superseded", "the backup has taken this server's place; ask it")
        if op == "join":
            self._primary.join(argument(header, "address", str))
            return {}, ()
        if op == "snapshot":
            snapshot.save(self.shard, self._file(argument(header, "name", str)))
            return {}, ()
        return self.shard(op, header, arrays, peer)

    def _file(self, name: str) -> Path:
        if not self._settings.snapshots:
            raise RefusedCallError("argument", "this server was given no directory for snapshots")
        if not _NAME.fullmatch(name):
            raise RefusedCallError("argument", f"name={name[:80]!r}; take letters, digits, dots and dashes")
        return Path(self._settings.snapshots) / name

    def _gauges(self) -> dict[str, float]:
        backup = self._backup is not None and not self._backup.promoted
        return {
            **self.shard.gauges(),
            "connections": self.listening.connections,
            "has_backup": int(self._primary.has_backup),
            "is_backup": int(backup),
            "is_superseded": int(self._primary.superseded),
        }


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
