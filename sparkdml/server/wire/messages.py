"""Messages as bytes: a prefix of fixed size, a JSON header, raw arrays.

    prefix   magic (8), token (32), bytes of the header (u4), bytes of the arrays (u8)
    header   a JSON object; ``arrays`` lists ``[dtype, shape]``
    arrays   in that order, little-endian, each padded to a multiple of 8 bytes

Everything that a prefix or a header claims is checked against :class:`Limits` before memory is taken for it.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sparkdml.server.wire.errors import DamagedMessageError

Header = dict[str, Any]

MAGIC = b"sdmlps 1"
TOKEN_BYTES = 32
PREFIX = struct.Struct(f"<8s{TOKEN_BYTES}sIQ")
DTYPES = {name: np.dtype(name) for name in ("<f4", "<f8", "<i4", "<i8", "|u1")}
_ALIGNMENT = 8
_MOST_DIMENSIONS = 2


@dataclass(frozen=True)
class Limits:
    """What a peer may ask for. ``message_bytes`` bounds the arrays of one message, ``idle_seconds`` its silences."""

    message_bytes: int = 2**31
    header_bytes: int = 2**20
    arrays: int = 4096
    connections: int = 1024
    idle_seconds: float = 60.0
    #: A connection that has not shown the token by then is closed.
    greeting_seconds: float = 10.0


class Prefix(NamedTuple):
    token: bytes
    header_bytes: int
    array_bytes: int


class Layout(NamedTuple):
    """Where an array lies among the bytes of the arrays."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    size: int


def encode(token: bytes, header: Header, arrays: Sequence[np.ndarray]) -> list[memoryview]:
    """Buffers that make up a message, one after the other; arrays are not copied unless they have gaps."""
    described, buffers, total = [], [], 0
    for given in arrays:
        if given.dtype.str not in DTYPES:
            raise TypeError(f"an array of {given.dtype} cannot be sent; take one of {', '.join(DTYPES)}")
        described.append([given.dtype.str, given.shape])
        array = np.ascontiguousarray(given)
        if array.nbytes:
            buffers.append(array.reshape(-1).view(np.uint8).data)
        if padding := -array.nbytes % _ALIGNMENT:
            buffers.append(memoryview(bytes(padding)))
        total += array.nbytes + padding
    text = json.dumps({**header, "arrays": described}).encode()
    return [memoryview(PREFIX.pack(MAGIC, token, len(text), total) + text), *buffers]


def read_prefix(data: bytes | bytearray, limits: Limits) -> Prefix:
    """Raises DamagedMessageError for bytes that begin no message, or one beyond the limits."""
    magic, token, header_bytes, array_bytes = PREFIX.unpack(data)
    if magic != MAGIC:
        raise DamagedMessageError("these bytes begin no message")
    for name, size, most in (
        ("header", header_bytes, limits.header_bytes),
        ("arrays", array_bytes, limits.message_bytes),
    ):
        if size > most:
            raise DamagedMessageError(f"{size} bytes of {name}, but {most} are allowed; send less at a time")
    return Prefix(token, header_bytes, array_bytes)


def read_header(data: bytes | bytearray, array_bytes: int, limits: Limits) -> tuple[Header, list[Layout]]:
    """The header without ``arrays``, and where those lie. Raises DamagedMessageError."""
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedMessageError(f"the header is no JSON: {type(error).__name__}") from None
    if not isinstance(header, dict) or not isinstance(header.get("arrays"), list):
        raise DamagedMessageError("the header is no JSON object with a list of arrays")
    described = header.pop("arrays")
    if len(described) > limits.arrays:
        raise DamagedMessageError(f"{len(described)} arrays, but {limits.arrays} are allowed")
    layouts, offset = [], 0
    for item in described:
        dtype, shape = _described(item)
        size = dtype.itemsize * math.prod(shape)
        layouts.append(Layout(dtype, shape, offset, size))
        offset += size + -size % _ALIGNMENT
    if offset != array_bytes:
        raise DamagedMessageError(f"the header describes {offset} bytes of arrays, the prefix {array_bytes}")
    return header, layouts


def _described(item: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    match item:
        case [str(name), list(shape)] if name in DTYPES and len(shape) <= _MOST_DIMENSIONS:
            # bool is an int to isinstance
            if all(type(length) is int and 0 <= length < 2**63 for length in shape):
                return DTYPES[name], tuple(shape)
    raise DamagedMessageError(f"{str(item)[:80]} describes no array that may be sent")


def arrays_in(buffer: np.ndarray, layouts: Sequence[Layout]) -> list[np.ndarray]:
    """Views of ``buffer``, uint8 and at least as long as all arrays."""
    return [
        buffer[layout.offset : layout.offset + layout.size].view(layout.dtype).reshape(layout.shape)
        for layout in layouts
    ]
