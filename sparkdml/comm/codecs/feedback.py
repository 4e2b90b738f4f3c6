"""What a codec lost is sent later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdml.comm.codecs.base import Codec, Packet, Seed, check_finite


@dataclass(frozen=True, eq=False)
class Memory:
    """What a sender keeps between rounds: the sum of what was lost so far, and the packet a codec sets out from."""

    residual: np.ndarray
    previous: Packet | None


@dataclass(frozen=True)
class ErrorFeedback:
    """Error feedback (Karimireddy et al., 2019): ``packet = encode(x + residual)``, ``residual += x - decoded``.

    So after any number of rounds, the sum of all decoded arrays and the residual is the sum of all inputs, to rounding;
    nothing is lost, only late. Works with every codec whose error is below the array's norm, biased or not.
    """

    codec: Codec

    def __post_init__(self) -> None:
        object.__setattr__(self, "codec", self.codec.contractive())

    def encode(self, array: np.ndarray, memory: Memory | None, seed: Seed = 0) -> tuple[Packet, Memory]:
        """``array`` and what ``memory`` holds (None in the first round) as a packet, and the next round's memory.

        Raises ValueError, naming the entry, for NaN or infinity, and for a memory of another shape.
        """
        array = np.asarray(array, np.float64)
        check_finite(array, "what error feedback encodes")
        if memory is not None:
            array = _corrected(array, memory)
        packet = self.codec.encode(array, seed, memory.previous if memory is not None else None)
        residual = array - self.codec.decode(packet)
        return packet, Memory(residual, packet if self.codec.warm_starts else None)

    def decode(self, packet: Packet) -> np.ndarray:
        """As the codec does."""
        return self.codec.decode(packet)


def _corrected(array: np.ndarray, memory: Memory) -> np.ndarray:
    if memory.residual.shape != array.shape:
        raise ValueError(f"the memory is of arrays of shape {memory.residual.shape}, and this one has {array.shape}")
    with np.errstate(over="ignore"):
        corrected = array + memory.residual
    check_finite(corrected, "the sum of the array and what earlier rounds lost")
    return corrected
