"""What travels: an encoded array, and its layout as bytes.

Layout, little-endian, no padding but the one named::

    offset  bytes  what
    0       4      b"SDML"
    4       4      CRC-32 of all bytes from offset 8 on (uint32)
    8       8      number of bytes of the whole packet (uint64)
    16      2      bytes of the codec's name (uint16)
    18      2      dimensions of the decoded array (uint16)
    20      2      number of parts (uint16)
    22      2      version of this layout (uint16)
    24             the codec's name, UTF-8
                   the decoded array's shape (uint64 each)
                   a part each: bytes of its name (uint8), kind (uint8), 8 bytes, its name (UTF-8)
                   zeros up to the next multiple of 8
                   the arrays in the order of the parts, each followed by zeros up to the next multiple of 8

The kind of a part is a place in ``KINDS``. The 8 bytes are the number itself (int64 or float64), or an array's number
of entries (uint64).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

#: The named contents of a packet: arrays of one dimension, and small numbers.
Parts = Mapping[str, "np.ndarray | int | float"]

#: ``int`` and ``float`` are numbers; the others are types of an array's entries.
KINDS: tuple[type, ...] = (int, float, np.float64, np.uint32, np.uint16, np.uint8, np.int8)

_MAGIC, _VERSION = b"SDML", 1
_CHECKED_FROM = 8
_HEADER = struct.Struct("<4sIQHHHH")
_PART = struct.Struct("<BB8s")


@dataclass(frozen=True, eq=False)
class Packet:
    """An encoded array: the codec's ``name``, the ``shape`` of the decoded array, and the codec's own ``parts``."""

    codec: str
    shape: tuple[int, ...]
    parts: Parts

    @property
    def nbytes(self) -> int:
        """``len(self.to_bytes())``, without making them."""
        arrays = (value.nbytes for value in self.parts.values() if isinstance(value, np.ndarray))
        names = sum(_PART.size + len(name.encode()) for name in self.parts)
        front = _HEADER.size + len(self.codec.encode()) + 8 * len(self.shape) + names
        return _aligned(front) + sum(map(_aligned, arrays))

    def to_bytes(self) -> bytes:
        """The packet in the layout of this module."""
        pieces = [self._front(), *self._arrays()]
        checksum = 0
        for piece in pieces:
            checksum = zlib.crc32(piece, checksum)
        return b"".join([struct.pack("<4sI", _MAGIC, checksum), *pieces])

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Packet:
        """The inverse of :meth:`to_bytes`, exactly; read-only arrays look into ``data`` instead of copying it.

        Raises ValueError for bytes that are no packet, are cut short, go on too long, or have changed.
        """
        data = memoryview(data).cast("B")
        _check(data)
        try:
            return cls(*_parse(data))
        except (struct.error, UnicodeDecodeError, IndexError, ValueError) as error:
            raise ValueError(f"the packet of {len(data)} bytes contradicts itself: {error}") from error

    def _front(self) -> bytes:
        """Everything between the checksum and the first array."""
        name = self.codec.encode()
        lengths = struct.pack("<QHHHH", self.nbytes, len(name), len(self.shape), len(self.parts), _VERSION)
        shape = struct.pack(f"<{len(self.shape)}Q", *self.shape)
        front = b"".join([lengths, name, shape, *(_describe(*part) for part in self.parts.items())])
        # the 8 bytes before it are aligned already
        return front.ljust(_aligned(len(front)), b"\0")

    def _arrays(self) -> Iterator[bytes | memoryview]:
        for value in self.parts.values():
            if isinstance(value, np.ndarray):
                yield np.ascontiguousarray(value, value.dtype.newbyteorder("<")).view(np.uint8).data
                yield bytes(_aligned(value.nbytes) - value.nbytes)


def _aligned(size: int) -> int:
    return -(-size // 8) * 8


def _describe(name: str, value: np.ndarray | int | float) -> bytes:
    """One part's entry in the front of a packet."""
    if isinstance(value, np.ndarray):
        assert value.ndim == 1, f"part '{name}' has shape {value.shape}, and parts have one dimension"
        kind, eight = KINDS.index(value.dtype.type), struct.pack("<Q", value.size)
    elif isinstance(value, int):
        kind, eight = KINDS.index(int), struct.pack("<q", value)
    else:
        assert isinstance(value, float), f"part '{name}' is a {type(value).__name__}"
        kind, eight = KINDS.index(float), struct.pack("<d", value)
    return _PART.pack(len(name.encode()), kind, eight) + name.encode()


def _check(data: memoryview) -> None:
    """Raise ValueError, naming what is wrong, unless ``data`` is a whole packet as it was sent."""
    if bytes(data[:4]) != _MAGIC[: len(data)]:
        raise ValueError(f"not a packet: it starts with {bytes(data[:4])!r} instead of {_MAGIC!r}")
    if len(data) < _HEADER.size:
        raise ValueError(f"the packet is cut short: {len(data)} bytes, and its header alone has {_HEADER.size}")
    _, checksum, size, _, _, _, version = _HEADER.unpack_from(data)
    if size != len(data):
        what = "is cut short" if len(data) < size else "goes on too long"
        raise ValueError(f"the packet {what}: {len(data)} bytes, and its header says {size}")
    if zlib.crc32(data[_CHECKED_FROM:]) != checksum:
        raise ValueError(f"the packet of {size} bytes was changed on its way: its checksum differs")
    if version != _VERSION:
        raise ValueError(f"the packet has layout {version}, and this version of sparkdml reads layout {_VERSION}")


def _parse(data: memoryview) -> tuple[str, tuple[int, ...], dict[str, np.ndarray | int | float]]:
    """The fields of a packet whose checksum is right."""
    _, _, _, name_size, dimensions, count, _ = _HEADER.unpack_from(data)
    at = _HEADER.size
    codec = str(data[at : at + name_size], "utf-8")
    at += name_size
    shape = struct.unpack_from(f"<{dimensions}Q", data, at)
    at += 8 * dimensions
    entries = []
    for _ in range(count):
        size, kind, eight = _PART.unpack_from(data, at)
        at += _PART.size
        entries.append((str(data[at : at + size], "utf-8"), KINDS[kind], eight))
        at += size
    at = _aligned(at)
    parts: dict[str, np.ndarray | int | float] = {}
    for name, kind, eight in entries:
        if kind in (int, float):
            parts[name] = struct.unpack("<q" if kind is int else "<d", eight)[0]
        else:
            parts[name] = _look(data, at, kind, struct.unpack("<Q", eight)[0])
            at += _aligned(parts[name].nbytes)  # type: ignore[union-attr]
    if at != len(data):
        raise ValueError(f"its parts end at byte {at}")
    return codec, shape, parts


def _look(data: memoryview, at: int, kind: type, count: int) -> np.ndarray:
    """``count`` entries at byte ``at`` as a read-only array of the machine's own byte order."""
    stored = np.dtype(kind).newbyteorder("<")
    if at + count * stored.itemsize > len(data):
        raise ValueError(f"an array of {count} {stored.name} starts at byte {at}")
    array: np.ndarray = np.frombuffer(data, stored, count, at).astype(kind, copy=False)
    if not array.flags.aligned:
        array = array.copy()
    array.flags.writeable = False
    return array
