"""Dense blocks whose loss and gradient a device computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparkdml.data.block import Block, DenseBlock
from sparkdml.problem.devices.resident import Resident


@dataclass(frozen=True)
class DeviceBlock(DenseBlock):
    """A dense block and the device that keeps it.

    ``source`` is the block as it was opened, which lives from round to round; what is cut from this one, or gathered,
    is an ordinary block.
    """

    source: DenseBlock
    resident: Resident

    def between(self, start: int, stop: int) -> DenseBlock:
        return self.source.between(start, stop)

    def joined(self, others: Sequence[Block]) -> DenseBlock:
        return self.source.joined([each.source if isinstance(each, DeviceBlock) else each for each in others])

    def compact(self) -> tuple[np.ndarray, DenseBlock]:
        return self.source.compact()


def on_devices(blocks: Sequence[Block], residents: Sequence[Resident]) -> list[Block]:
    """``blocks`` in their order, dense ones dealt to the devices by bytes, the same in every round."""
    filled = [0] * len(residents)
    dealt: list[Block] = []
    for block in blocks:
        if residents and isinstance(block, DenseBlock):
            number = filled.index(min(filled))
            filled[number] += block.nbytes
            block = DeviceBlock(
                block.labels, block.weights, block.features, block.values,
                offsets=block.offsets, source=block, resident=residents[number],
            )  # fmt: skip
        dealt.append(block)
    return dealt
