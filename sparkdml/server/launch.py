"""Servers as child processes of this one."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from sparkdml.server.client import Client
from sparkdml.server.wire import Header, Security, ServerError, ServerUnreachableError, connect

logger = logging.getLogger(__name__)

_START_SECONDS = 60.0
_END_SECONDS = 5.0
#: For a server to tell how it is.
_LOOK_SECONDS = 2.0
#: One shard, one core: more shards are how to use more.
_ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


@dataclass
class Child:
    """A server's process; ``address`` and ``metrics_port`` are what it told."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]
    address: str = ""
    metrics_port: int | None = None

    def ask_to_end(self) -> None:
        """By closing its standard input."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def end(self) -> None:
        """Ask, and insist after a while."""
        self.ask_to_end()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()

    def words(self) -> str:
        """The end of what it wrote to its log."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-2000:].strip()


@dataclass
class Servers:
    """Shards that run on this host, one process each. Use ``with``: it ends them, whatever happens.

    They end as well when this process does, by any cause: they hold its pipe.
    """

    security: Security
    options: Sequence[str]
    primaries: list[Child] = field(default_factory=list)
    backups: list[Child] = field(default_factory=list)

    @property
    def addresses(self) -> list[str]:
        """As :class:`~.client.Client` takes them."""
        primaries = [child.address for child in self.primaries]
        if not self.backups:
            return primaries
        return [f"{first}|{second.address}" for first, second in zip(primaries, self.backups, strict=True)]

    def client(self, timeout: float = 60.0) -> Client:
        return Client(self.addresses, self.security, timeout)

    def tend(self) -> bool:
        """Begin a new backup for every shard that has lost one of its two servers; whether there was any.

        Raises ServerUnreachableError where both are lost.
        """
        alone = [shard for shard in range(len(self.backups)) if self._is_alone(shard)]
        for shard in alone:
            logger.warning("shard %d of the parameter servers is on its own, and gets a new backup", shard)
            self.replace_backup(shard)
        return bool(alone)

    def replace_backup(self, shard: int) -> None:
        """Begin a new backup, which catches up with whichever of the shard's servers lives and was not superseded."""
        first, second = self.primaries[shard], self.backups[shard]
        if all(child.process.poll() is not None for child in (first, second)):
            what = "it has ended, and so has the shard's other server; restore the shard from a snapshot"
            raise ServerUnreachableError(first.address, "go on with a backup", what)
        lost = first.process.poll() is not None or self._status(first).get("is_superseded")
        alive, gone = (second, first) if lost else (first, second)
        gone.end()
        self.primaries[shard] = alive
        (self.backups[shard],) = self._start([("--backup-of", alive.address)])

    def _is_alone(self, shard: int) -> bool:
        """Whether one of the two has ended, or took the other's place, or goes on without it."""
        first, second = self.primaries[shard], self.backups[shard]
        if first.process.poll() is not None or second.process.poll() is not None:
            return True
        told = self._status(first)
        return bool(told) and bool(told["is_superseded"] or not told["has_backup"])

    def _status(self, child: Child) -> Header:
        """What a server tells of itself; nothing where it is too busy for that."""
        try:
            with connect(child.address, self.security, _LOOK_SECONDS) as connection:
                return connection.call("status", {})[0]
        except ServerError:
            return {}

    def close(self) -> None:
        _end((*self.primaries, *self.backups))
        self.primaries, self.backups = [], []

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, each: Sequence[tuple[str, str]]) -> list[Child]:
        """A server with each of these options beside those of all; all of them or none."""
        begun = [_spawn(self.security, [*self.options, *own]) for own in each]
        try:
            for child in begun:
                _hear(child, time.monotonic() + _START_SECONDS)
        except BaseException:
            _end(begun)
            raise
        return begun


def local(
    count: int,
    workers: int,
    staleness: int = -1,
    backup_workers: int = 0,
    *,
    host: str = "127.0.0.1",
    replicas: int = 0,
    security: Security | None = None,
    metrics: bool = False,
    snapshots: str = "",
    restore: Sequence[str] = (),
) -> Servers:
    """``count`` shards, each with a backup if ``replicas`` is 1; see :class:`~.serving.Settings`.

    host : this host's address by which clients reach it. workers, staleness, backup_workers : as of the clocks.
    restore : name of each shard's snapshot.
    Raises RuntimeError with a server's last words if it does not start.
    """
    if count < 1 or replicas not in (0, 1):
        raise ValueError(f"count={count}, replicas={replicas}; take 1 shard or more, and 0 or 1 replicas")
    clocks = ["--workers", str(workers), "--staleness", str(staleness), "--backup-workers", str(backup_workers)]
    options = ["--host", host, *clocks, "--snapshots", snapshots, *(["--metrics-port", "0"] if metrics else [])]
    servers = Servers(security or Security.fresh(), options)
    try:
        names = list(restore) or [""] * count
        if len(names) != count:
            raise ValueError(f"restore={names}, but there are {count} shards; give the name of each one's snapshot")
        servers.primaries = servers._start([("--restore", name) for name in names])
        if replicas:
            servers.backups = servers._start([("--backup-of", child.address) for child in servers.primaries])
    except BaseException:
        servers.close()
        raise
    return servers


def _spawn(security: Security, options: Sequence[str]) -> Child:
    files = ["--certificate", security.certificate, "--key", security.key, "--authority", security.authority]
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by Child.end
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkdml.server", "serve", "--child", *files, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env={**_ONE_THREAD, **os.environ, "PYTHONPATH": path},
        start_new_session=True,  # an interrupt from the keyboard is for the driver, which then ends its servers
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # its last words are told later
        process.stdin.write(json.dumps({"token": security.token.hex(), "parent": os.getpid()}).encode() + b"\n")
        process.stdin.flush()
    return Child(process, log)


def _end(children: Sequence[Child]) -> None:
    for child in children:
        child.ask_to_end()
    for child in children:
        child.end()


def _hear(child: Child, deadline: float) -> None:
    """Wait for the line by which it tells its address."""
    assert child.process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.process.stdout, selectors.EVENT_READ)
        ready = selector.select(max(deadline - time.monotonic(), 0.0))
    line = child.process.stdout.readline() if ready else b""
    if not line:
        what = "ended" if ready else f"told nothing for {_START_SECONDS:g} s"
        raise RuntimeError(f"a parameter server {what} before it was ready; its last words: {child.words() or 'none'}")
    told: dict[str, Any] = json.loads(line)
    child.address, child.metrics_port = told["address"], told["metrics_port"]
