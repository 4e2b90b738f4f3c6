"""The contract of servers, wherever they run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager

from sparkdml.server.wire import Security


class Fleet(AbstractContextManager["Fleet"]):
    """Servers that are there until the ``with`` block is left. They hold ``slots`` of Spark's, in the job ``group``."""

    slots = 0
    group = ""

    def __init__(self, security: Security) -> None:
        self.security = security

    @property
    @abstractmethod
    def addresses(self) -> Sequence[str]:
        """As :class:`~sparkdml.server.client.Client` takes them."""

    def tend(self) -> bool:
        """Give backups to those that lost theirs; whether addresses changed. Raises ServerError."""
        return False
