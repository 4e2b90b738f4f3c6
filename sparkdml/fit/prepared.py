"""What a fit is given, and several fits sharing it."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkdml.data.dataset import Dataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class Prepared:
    """Blocks to train on, and where they came from.

    ``frame`` has the rows that were read, for summaries, with the column ``weight``; None where blocks were prepared
    elsewhere.
    ``ingest_seconds`` is what this fit spent on preparing them.
    """

    dataset: Dataset
    ingest_seconds: float = 0.0
    frame: DataFrame | None = None
    weight: str | None = None
    validation: Dataset | None = None
    closing: list[Dataset] = field(default_factory=list)

    def close(self) -> None:
        """Free the blocks that were prepared for this fit."""
        for dataset in self.closing:
            dataset.close()
        self.closing.clear()


class Shared:
    """Data prepared at first use, and closed after the last of the fits that need it."""

    def __init__(self, keys: Sequence[Hashable]) -> None:
        self._left = Counter(keys)
        self._lock = threading.Lock()
        self._locks = {key: threading.Lock() for key in self._left}
        self._there: dict[Hashable, Prepared] = {}
        self._finalizer = weakref.finalize(self, _close_all, self._there)

    @contextmanager
    def use(self, key: Hashable, prepare: Callable[[], Prepared]) -> Iterator[Prepared]:
        """What ``prepare`` returns, made once for each ``key``."""
        try:
            with self._locks[key]:
                first = key not in self._there
                if first:
                    self._there[key] = prepare()
                found = self._there[key]
            yield found if first else Prepared(found.dataset, 0.0, found.frame, found.weight, found.validation)
        finally:
            with self._lock:
                self._left[key] -= 1
                if self._left[key] == 0 and key in self._there:
                    self._there.pop(key).close()


def _close_all(prepared: dict[Hashable, Prepared]) -> None:
    for entry in list(prepared.values()):
        entry.close()
    prepared.clear()


class Fits:
    """The iterator that ``fitMultiple`` returns: ``(index, model)`` pairs; ``next`` may be called from any thread."""

    def __init__(self, fits: Sequence[Callable[[Shared], Any]], keys: Sequence[Hashable]) -> None:
        self._fits = fits
        self._shared = Shared(keys)
        self._lock = threading.Lock()
        self._next = 0

    def __iter__(self) -> Fits:
        return self

    def __next__(self) -> tuple[int, Any]:
        with self._lock:
            index = self._next
            if index >= len(self._fits):
                raise StopIteration
            self._next += 1
        return index, self._fits[index](self._shared)
