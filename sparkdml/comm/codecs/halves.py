"""16-bit floating point: 4 times fewer bytes than float64."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from sparkdml.comm.codecs.base import Codec, Packet, Parts, Seed
from sparkdml.resources.compiled import compiled


@dataclass(frozen=True)
class Format:
    """An IEEE-like layout of 16 bits: sign, exponent, ``fraction`` bits; exponents are stored plus ``bias``."""

    fraction: int
    bias: int

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return (2.0 - 2.0**-self.fraction) * 2.0**self.bias


class Half(Codec):
    """Entries rounded to the nearest number of ``format``, ties to even; too large ones become the largest finite one.

    Relative error ``2^-(fraction + 1)`` an entry between the smallest normal and the largest number; smaller entries
    are rounded to multiples of the smallest subnormal one.
    """

    format: Format

    @abstractmethod
    def widen(self, bits: np.ndarray) -> np.ndarray:
        """The numbers (n,) that ``bits`` (n,), uint16, stand for."""

    def compress(self, array: np.ndarray, seed: Seed, previous: Packet | None) -> Parts:
        bits = np.empty(array.size, np.uint16)
        _round(array.reshape(-1), self.format.fraction, self.format.bias, bits)
        return {"bits": bits}

    def expand(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        return self.widen(np.asarray(parts["bits"]))

    def error_bound(self, array: np.ndarray) -> float:
        magnitudes = np.abs(array)
        within = (magnitudes >= self.format.smallest_normal) & (magnitudes <= self.format.largest)
        return 2.0 ** -(self.format.fraction + 1) if np.all(within | (magnitudes == 0.0)) else 1.0


@dataclass(frozen=True)
class Float16(Half):
    """IEEE 754 binary16: 11 significant bits, normal from 6.1e-5 to 65504."""

    format = Format(fraction=10, bias=15)

    @property
    def name(self) -> str:
        return "float16"

    def widen(self, bits: np.ndarray) -> np.ndarray:
        return bits.view(np.float16).astype(np.float64)


@dataclass(frozen=True)
class BFloat16(Half):
    """The upper half of a float32: 8 significant bits, normal from 1.2e-38 to 3.4e38."""

    format = Format(fraction=7, bias=127)

    @property
    def name(self) -> str:
        return "bfloat16"

    def widen(self, bits: np.ndarray) -> np.ndarray:
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@compiled()
def _round(values, fraction, bias, out):
    """float64 to 16 bits in one rounding. Without branches and with integers only, so that it is vectorised.

    Normal results: adding just under half of the last kept place, plus its lowest bit, rounds to even and carries into
    the exponent by itself. Subnormal ones: adding a number whose last place is theirs makes the hardware round.
    """
    one = np.uint64(1)
    shift = np.uint64(52 - fraction)
    rebias = np.uint64(1023 - bias) << np.uint64(52)
    half = (one << (shift - one)) - one
    largest = (np.uint64(2 * bias + 1) << np.uint64(fraction)) - one
    smallest_normal = np.float64(2.0 ** (1 - bias)).view(np.uint64)
    aligner = 2.0 ** (1 - bias - fraction + 52)
    aligner_bits = np.float64(aligner).view(np.uint64)
    for i in range(values.shape[0]):
        bits = np.float64(values[i]).view(np.uint64)
        magnitude = bits & np.uint64(0x7FFFFFFFFFFFFFFF)
        whole = magnitude - rebias
        normal = (whole + half + ((whole >> shift) & one)) >> shift
        normal = normal if normal < largest else largest
        small = np.float64(np.uint64(magnitude).view(np.float64) + aligner).view(np.uint64) - aligner_bits
        result = small if magnitude < smallest_normal else normal
        out[i] = np.uint16(result | ((bits >> np.uint64(63)) << np.uint64(15)))
