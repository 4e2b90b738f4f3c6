"""The contract of a codec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from sparkdml.comm.codecs.packet import Packet, Parts

__all__ = ["Codec", "Packet", "Parts", "Seed", "check_finite", "relative_norms", "seed_sequence"]

#: A non-negative whole number, or several, such as (seed of the fit, worker, clock): any difference gives other draws.
Seed = int | Sequence[int]


class Codec(ABC):
    """Encodes float64 arrays of any shape in fewer bytes.

    A codec holds parameters only, so one codec serves all workers, and equal inputs give equal packets.
    """

    #: Whether every bit comes back. Those codecs carry NaN and infinities too; the others refuse them.
    lossless: bool = False

    #: Whether the ``previous`` packet is of use to it.
    warm_starts: bool = False

    @property
    @abstractmethod
    def name(self) -> str:
        """How the codec is spelled, such as ``top-k:0.01``; it says how to decode its packets."""

    @abstractmethod
    def compress(self, array: np.ndarray, seed: Seed, previous: Packet | None) -> Parts:
        """The parts of the packet for a C-contiguous, read-only float64 ``array``; they share no memory with it."""

    @abstractmethod
    def expand(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        """The array that ``parts`` stand for: a new float64 array with as many entries as ``shape`` has."""

    @property
    def unbiased(self) -> bool:
        """Whether the decoded array's expectation over seeds is the array itself."""
        return self.lossless

    def error_bound(self, array: np.ndarray) -> float:
        """The most that ``||decoded - array|| / ||array||`` can be, in Euclidean norms.

        It leaves out the rounding of float64, which below 1e-307 is coarse: 5e-324 an entry.
        """
        return 0.0 if self.lossless else 1.0

    def contractive(self) -> Codec:
        """The codec to use where what it loses is added to the next array: its error is below the array's norm."""
        return self

    def encode(self, array: np.ndarray, seed: Seed = 0, previous: Packet | None = None) -> Packet:
        """``array`` as a packet; raises ValueError, naming the entry, for NaN or infinity unless lossless.

        ``seed`` decides all that is random. ``previous`` is the packet that this codec made last for the same
        quantity, from which codecs with ``warm_starts`` set out.
        """
        assert previous is None or previous.codec == self.name
        array = np.ascontiguousarray(array, np.float64).reshape(np.shape(array))
        if not self.lossless:
            check_finite(array, f"what codec {self.name} encodes")
        parts = self.compress(_read_only(array.view()), seed, previous)
        for value in parts.values():
            if isinstance(value, np.ndarray):
                _read_only(value)
        return Packet(self.name, array.shape, parts)

    def decode(self, packet: Packet) -> np.ndarray:
        """The array of ``packet.shape`` that ``packet`` stands for; raises ValueError if another codec made it."""
        if packet.codec != self.name:
            raise ValueError(f"the packet was made by codec {packet.codec} and is decoded by {self.name}")
        try:
            return self.expand(packet.parts, packet.shape).reshape(packet.shape)
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(f"a {self.name} packet's parts do not fit its shape {packet.shape}: {error}") from error


def check_finite(array: np.ndarray, what: str) -> None:
    """Raise ValueError naming the first NaN or infinity of ``array``."""
    finite = np.isfinite(array)
    if finite.all():
        return
    place = tuple(int(i) for i in np.argwhere(~finite)[0])
    raise ValueError(f"{what} must be finite, and entry {place} of shape {array.shape} is {array[place]}")


def seed_sequence(seed: Seed) -> np.random.SeedSequence:
    """``seed`` for numpy's generators. Its length is part of it: numpy takes (7,) and (7, 0) for the same."""
    numbers = [seed] if isinstance(seed, (int, np.integer)) else list(seed)
    return np.random.SeedSequence([len(numbers), *numbers])


def relative_norms(array: np.ndarray) -> tuple[float, float, float]:
    """``(max |x_i|, sum |x_i| / max, sum x_i^2 / max^2)``; no sum overflows or underflows. Zeros where x is 0."""
    magnitudes = np.abs(array).ravel()
    largest = float(magnitudes.max(initial=0.0))
    if largest == 0.0:
        return 0.0, 0.0, 0.0
    magnitudes /= largest
    total = float(magnitudes.sum())
    # not by a dot product: waking the threads of BLAS for it can take longer than the sum
    return largest, total, float(np.square(magnitudes, out=magnitudes).sum())


def _read_only(array: np.ndarray) -> np.ndarray:
    """So that packets cannot change, and kernels see one kind of array whether or not it came over a wire."""
    array.flags.writeable = False
    return array
