"""Where the servers of a fit run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkdml.placement.server.executors import OnExecutors
from sparkdml.placement.server.fleet import Fleet
from sparkdml.server import launch
from sparkdml.server.wire import Security

if TYPE_CHECKING:
    from pyspark import SparkContext

LOCAL, EXECUTORS, EXTERNAL = "local", "executors", "external"
LAUNCHES = (LOCAL, EXECUTORS, EXTERNAL)


@dataclass(frozen=True)
class Launch:
    """Who starts the servers: this process (``local``), Spark's tasks (``executors``), or somebody else (``external``).

    addresses, token_file : of external ones. certificate, key, authority : PEM files at these paths on all hosts, for
    TLS (:class:`~sparkdml.server.wire.Security`).
    """

    how: str = LOCAL
    addresses: tuple[str, ...] = ()
    token_file: str = ""
    certificate: str = ""
    key: str = ""
    authority: str = ""

    def __post_init__(self) -> None:
        if self.how not in LAUNCHES:
            raise ValueError(f"serverLaunch='{self.how}' is not known; it can be {', '.join(LAUNCHES)}")
        for name, given in (("serverAddresses", self.addresses), ("serverTokenFile", self.token_file)):
            if bool(given) != (self.how == EXTERNAL):
                raise ValueError(
                    f"{name}={given or 'nothing'} with serverLaunch='{self.how}'; external servers have "
                    "serverAddresses and serverTokenFile, others neither"
                )
        for address in (one for pair in self.addresses for one in pair.split("|")):
            host, _, port = address.rpartition(":")
            if not host or not port.isdecimal():
                raise ValueError(f"serverAddresses has {address!r}, but each is host:port, as in 10.0.0.5:7000")
        if bool(self.certificate) != bool(self.key) or (self.certificate and not self.authority):
            given = f"serverCertificate={self.certificate!r}, serverKey={self.key!r}"
            raise ValueError(f"{given}, serverAuthority={self.authority!r}; give all three, or the last alone, or none")
        if self.authority and not self.certificate and self.how != EXTERNAL:
            raise ValueError(
                f"serverAuthority with serverLaunch='{self.how}' needs serverCertificate and serverKey too"
            )

    def security(self) -> Security:
        """Raises ValueError where the token file does not hold a token."""
        files = self.certificate, self.key, self.authority
        if self.how != EXTERNAL:
            return Security.fresh(*files)
        try:
            return Security(bytes.fromhex(Path(self.token_file).read_text().strip()), *files)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"serverTokenFile='{self.token_file}' must hold the servers' token, 64 hexadecimal digits: {error}"
            ) from None

    def open(self, sc: SparkContext, shards: int, replicas: int) -> Fleet:
        """``shards`` servers, each with a backup if ``replicas`` is 1."""
        security = self.security()
        if self.how == EXTERNAL:
            return External(security, self.addresses)
        if self.how == EXECUTORS:
            return OnExecutors(sc, shards, security)
        return Children(launch.local(shards, 1, replicas=replicas, security=security))


class External(Fleet):
    """Servers that run for many fits, one after another."""

    def __init__(self, security: Security, addresses: Sequence[str]) -> None:
        super().__init__(security)
        self._addresses = addresses

    @property
    def addresses(self) -> Sequence[str]:
        return self._addresses

    def __exit__(self, *_: object) -> None:
        """They go on."""


class Children(Fleet):
    """Child processes of the driver."""

    def __init__(self, servers: launch.Servers) -> None:
        super().__init__(servers.security)
        self._servers = servers

    @property
    def addresses(self) -> Sequence[str]:
        return self._servers.addresses

    def tend(self) -> bool:
        return self._servers.tend()

    def __exit__(self, *_: object) -> None:
        self._servers.close()
