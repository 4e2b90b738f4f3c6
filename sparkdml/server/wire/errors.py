"""What can go wrong between a client and a server."""

from __future__ import annotations


class ServerError(RuntimeError):
    """A call failed. ``address`` is the server's; the message says what was asked, what happened and what to do."""

    def __init__(self, address: str, asked: str, what: str) -> None:
        super().__init__(f"parameter server {address}, asked to {asked}: {what}")
        self.address, self.asked, self.what = address, asked, what

    def __reduce__(self) -> tuple[type[ServerError], tuple[str, ...]]:
        return type(self), (self.address, self.asked, self.what)


class ServerUnreachableError(ServerError):
    """Nobody answers there, or the connection broke; whether the call was carried out is not known."""


class ServerTimeoutError(ServerError):
    """No byte moved for the time allowed, or what the call waits for did not come."""


class ServerRefusedError(ServerError):
    """The server answered that it will not, and changed nothing. ``kind`` is for programs to tell reasons apart."""

    def __init__(self, address: str, asked: str, what: str, kind: str) -> None:
        super().__init__(address, asked, what)
        self.kind = kind

    def __reduce__(self) -> tuple[type[ServerError], tuple[str, ...]]:
        return type(self), (self.address, self.asked, self.what, self.kind)


class DamagedMessageError(ValueError):
    """Bytes that are no message, or one beyond the limits."""


class RefusedCallError(ValueError):
    """Raised by handlers: the caller gets ``kind`` and the message as a :class:`ServerRefusedError`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
