"""A sum at the servers of one vector from each worker, who may replace its own at any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sparkdml.server.client import Push


@dataclass(frozen=True)
class Shares:
    """``sizes``: rows of the tables that a vector is cut into, by name; with ``prefix`` they are those of the sum.

    Servers keep each worker's vector as well, in tables cut among shards as those of the sum are, and a push changes
    both alike. So one that begins anew, or whose push only some shards took, replaces what it has told, whatever it is.
    """

    prefix: str
    sizes: Mapping[str, int]

    @property
    def total(self) -> list[str]:
        return [self.prefix + name for name in self.sizes]

    def own(self, worker: int) -> list[str]:
        """The tables of a worker's vector."""
        return [f"{name} of {worker}" for name in self.total]

    def tables(self, workers: int) -> dict[str, int]:
        """Rows of all workers' tables."""
        return {name: rows for worker in range(workers) for name, rows in self._rows(self.own(worker)).items()}

    def totals(self) -> dict[str, int]:
        """Rows of those of the sum."""
        return self._rows(self.total)

    def change(self, worker: int, change: np.ndarray) -> dict[str, Push]:
        """Of a worker's vector, and with it of the sum."""
        parts = np.split(change, np.cumsum(list(self.sizes.values()))[:-1])
        return {
            name: Push(part)
            for names in (self.total, self.own(worker))
            for name, part in zip(names, parts, strict=True)
        }

    @staticmethod
    def joined(pulled: Mapping[str, np.ndarray], names: list[str]) -> np.ndarray:
        return np.concatenate([pulled[name] for name in names])

    def _rows(self, names: list[str]) -> dict[str, int]:
        return dict(zip(names, self.sizes.values(), strict=True))
