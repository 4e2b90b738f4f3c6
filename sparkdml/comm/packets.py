"""Encoded arrays of several workers, on their way to be summed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdml.comm.codecs import decode
from sparkdml.comm.codecs.packet import Packet


@dataclass(frozen=True, eq=False)
class Packets:
    """One packet a worker. They add up by standing side by side: only their end decodes and sums them."""

    by_worker: tuple[tuple[int, Packet], ...]

    def __add__(self, other: Packets) -> Packets:
        return Packets(self.by_worker + other.by_worker)

    @property
    def nbytes(self) -> int:
        return sum(packet.nbytes for _, packet in self.by_worker)

    def total(self) -> np.ndarray:
        """The sum of what they stand for, in the order of workers, so that arrival changes no bit."""
        arrays = [decode(packet) for _, packet in sorted(self.by_worker, key=lambda entry: entry[0])]
        result = arrays[0].copy()
        for array in arrays[1:]:
            result += array
        return result
