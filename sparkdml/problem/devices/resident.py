"""Blocks' arrays on a device, kept between rounds within a budget."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from sparkdml.data.block import DenseBlock
from sparkdml.resources.gpus.arrays import Device

#: The part of a device's memory, free when a worker first meets it, that blocks may take: the rest is for the
#: arithmetic, and for workers that share the device.
BUDGET_SHARE = 0.5


class Arrays(NamedTuple):
    """A block there: values (n, d) as they are stored, labels and weights (n,)."""

    values: Any
    labels: Any
    weights: Any


class Resident:
    """The blocks that ``device`` has, up to ``budget_bytes``.

    Rounds read all blocks in order, so those that came first stay, and those beyond the budget are copied in each
    round: to drop the one used longest ago would drop each just before its turn. A copy goes when its block goes.
    """

    def __init__(self, device: Device, budget_bytes: int | None = None) -> None:
        self.device = device
        self.budget_bytes = int(BUDGET_SHARE * device.free_bytes()) if budget_bytes is None else budget_bytes
        self._kept: dict[int, tuple[weakref.ref[DenseBlock], Arrays]] = {}
        self.used_bytes = 0

    def arrays(self, block: DenseBlock) -> Arrays:
        """The block's arrays on the device."""
        kept = self._kept.get(id(block))
        if kept is not None:
            return kept[1]
        arrays = Arrays(*map(self.device.put, (block.values, block.labels, block.weights)))
        size = _size(block)
        if self.used_bytes + size <= self.budget_bytes:
            self.used_bytes += size
            # not a strong reference: blocks whose files are gone are let go of by whoever opened them
            self._kept[id(block)] = (weakref.ref(block, self._forgetting(id(block), size)), arrays)
        return arrays

    def clear(self) -> None:
        """Give all of it back to the device."""
        self._kept.clear()
        self.used_bytes = 0
        with self.device.current():
            self.device.release()

    def _forgetting(self, key: int, size: int) -> Any:
        def forget(_: Any) -> None:
            if self._kept.pop(key, None) is not None:
                self.used_bytes -= size

        return forget


def _size(block: DenseBlock) -> int:
    return block.values.nbytes + block.labels.nbytes + block.weights.nbytes
