"""What can go wrong between workers."""

from __future__ import annotations

#: Host and port.
Address = tuple[str, int]


class PeerError(RuntimeError):
    """A peer is not there, or not where this worker is. The links that met it are closed."""

    def __init__(self, message: str, rank: int, address: Address, waited: float) -> None:
        super().__init__(message, rank, address, waited)
        self.rank, self.address, self.waited = rank, address, waited

    def __str__(self) -> str:
        return f"rank {self.rank} at {self.address[0]}:{self.address[1]} {self.args[0]}"


class PeerTimeoutError(PeerError):
    """The peer did nothing for as long as the timeout."""


class PeerLostError(PeerError):
    """The peer's connection broke, or nobody listens where the peer should."""


class PeerRefusedError(PeerError):
    """The peer turned this worker away (another secret, another fit), or is not whom it should be."""


class OutOfStepError(PeerError):
    """The peer sent another message than the one that is due."""
