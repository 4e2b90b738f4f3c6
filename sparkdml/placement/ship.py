"""Getting a value to the workers of one job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark import SparkContext

#: A broadcast costs a round about 12 ms more than a few kilobytes inside the task do.
INLINE_BYTES = 16 * 1024


class Shipped(Protocol):
    """Something with the value, on the worker."""

    @property
    def value(self) -> Any: ...


class Inline:
    """A small value that travels inside the task itself."""

    def __init__(self, value: Any) -> None:
        self.value = value


@contextmanager
def ship(sc: SparkContext, value: Any, nbytes: int) -> Iterator[Shipped]:
    """``value`` within the task if it is small, else as a broadcast that is freed at the end of the block."""
    if nbytes <= INLINE_BYTES:
        yield Inline(value)
        return
    broadcast = sc.broadcast(value)
    try:
        yield broadcast
    finally:
        broadcast.destroy()
