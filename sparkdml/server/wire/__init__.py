"""Messages between processes: a JSON header and raw arrays, over authenticated connections. Nothing is unpickled."""

from sparkdml.server.wire.connection import Connection, connect
from sparkdml.server.wire.errors import (
    DamagedMessageError,
    ServerError,
    ServerRefusedError,
    ServerTimeoutError,
    ServerUnreachableError,
)
from sparkdml.server.wire.listening import Handler, Listening, Reply, serve
from sparkdml.server.wire.messages import Header, Limits
from sparkdml.server.wire.security import Security

__all__ = [
    "Connection", "DamagedMessageError", "Handler", "Header", "Limits", "Listening", "Reply", "Security", "ServerError",
    "ServerRefusedError", "ServerTimeoutError", "ServerUnreachableError", "connect", "serve",
]  # fmt: skip
