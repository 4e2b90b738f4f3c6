"""What is sent instead of float64 arrays. See :class:`sparkdml.comm.codecs.base.Codec`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdml.comm.codecs.base import Codec, Packet
from sparkdml.comm.codecs.feedback import ErrorFeedback, Memory
from sparkdml.comm.codecs.halves import BFloat16, Float16
from sparkdml.comm.codecs.identity import Identity
from sparkdml.comm.codecs.int8 import Int8
from sparkdml.comm.codecs.low_rank import LowRank, PowerSGD
from sparkdml.comm.codecs.one_bit import OneBit
from sparkdml.comm.codecs.sparse import RandomK, SparseOrDense, Threshold, TopK

__all__ = ["CODECS", "Codec", "ErrorFeedback", "Memory", "Packet", "Spelling", "codec", "decode"]


@dataclass(frozen=True)
class Spelling:
    """What ``make`` needs after the colon: a ``number`` of this type, called ``argument``; None for no colon."""

    make: Callable[..., Codec]
    number: Callable[[str], Any] | None = None
    argument: str = ""


#: From a parameter's spelling, up to its colon, to a codec.
CODECS: dict[str, Spelling] = {
    "identity": Spelling(Identity),
    "sparse-or-dense": Spelling(SparseOrDense),
    "float16": Spelling(Float16),
    "bfloat16": Spelling(BFloat16),
    "int8": Spelling(Int8),
    "int8-stochastic": Spelling(lambda: Int8(stochastic=True)),
    "1-bit": Spelling(OneBit),
    "threshold": Spelling(Threshold, float, "TAU"),
    "top-k": Spelling(TopK, float, "SHARE"),
    "random-k": Spelling(RandomK, float, "SHARE"),
    "low-rank": Spelling(LowRank, int, "RANK"),
    "power-sgd": Spelling(PowerSGD, int, "RANK"),
}


@functools.lru_cache
def codec(spelling: str) -> Codec:
    """The codec that ``spelling`` names, such as ``int8`` or ``top-k:0.01``.

    Raises ValueError, saying what was given and what is allowed.
    """
    name, colon, text = spelling.partition(":")
    if name not in CODECS:
        raise ValueError(f"unknown codec '{spelling}'; allowed are {', '.join(map(_usage, CODECS))}")
    found = CODECS[name]
    if (found.number is None) == bool(colon):
        raise ValueError(f"codec '{spelling}' must be spelled {_usage(name)}")
    if found.number is None:
        return found.make()
    try:
        number = found.number(text)
    except ValueError:
        raise ValueError(f"codec '{spelling}' must be spelled {_usage(name)}, and '{text}' is no such number") from None
    try:
        return found.make(number)
    except ValueError as error:
        raise ValueError(f"codec '{spelling}': {error}") from None


def decode(packet: Packet) -> np.ndarray:
    """The array that ``packet`` stands for, by the codec that it names."""
    return codec(packet.codec).decode(packet)


def _usage(name: str) -> str:
    found = CODECS[name]
    return name if found.number is None else f"{name}:{found.argument}"
