"""Values on their way as packets of a codec: what a worker pushes, with error feedback, and what it pulls."""

from __future__ import annotations

import numpy as np

from sparkdml.comm.codecs import Codec, ErrorFeedback, Memory, Packet, codec
from sparkdml.server.wire.errors import RefusedCallError

EXACT = "identity"


class Coder:
    """One worker's: what a packet of a table lost is in the next (:class:`~sparkdml.comm.codecs.ErrorFeedback`).

    ``seed`` and the worker decide, with the clock, what is random.
    """

    def __init__(self, spelling: str, seed: int, worker: int) -> None:
        self._codec, self._seed, self._worker = codec(spelling), seed, worker
        self._lost: dict[tuple[str, int], Memory] = {}

    def __call__(self, table: str, clock: int, shard: int, update: np.ndarray) -> np.ndarray:
        """A packet, uint8, for a shard's part of an update of a table."""
        seed, place = (self._seed, self._worker, clock), (table, shard)
        if self._codec.lossless:
            return _bytes(self._codec.encode(update, seed))
        if not np.isfinite(update).all():
            return packed(update, EXACT)  # so that the method itself sees that it diverged
        packet, self._lost[place] = ErrorFeedback(self._codec).encode(update, self._lost.get(place), seed)
        return _bytes(packet)


def packed(values: np.ndarray, spelling: str) -> np.ndarray:
    """A packet, uint8, by the codec of that name, or as they are if they are not finite. Raises RefusedCallError."""
    found = _known(spelling)
    return _bytes((found if found.lossless or np.isfinite(values).all() else _known(EXACT)).encode(values))


def unpacked(sent: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The float64 values of this shape that a packet stands for. Raises RefusedCallError."""
    if sent.dtype != np.uint8 or sent.ndim != 1:
        raise RefusedCallError("packet", f"{sent.dtype} {sent.shape}, but a packet is bytes, |u1 (n,)")
    try:
        packet = Packet.from_bytes(sent.data)
    except ValueError as error:
        raise RefusedCallError("packet", str(error)) from None
    # before anything is decoded: its shape says how much memory that takes
    if packet.shape != shape:
        raise RefusedCallError("packet", f"a packet of shape {packet.shape}, but {shape} is due")
    try:
        return _known(packet.codec).decode(packet)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise RefusedCallError("packet", str(error)) from None


def _known(spelling: str) -> Codec:
    try:
        return codec(spelling)
    except ValueError as error:
        raise RefusedCallError("packet", str(error)) from None


def _bytes(packet: Packet) -> np.ndarray:
    return np.frombuffer(packet.to_bytes(), np.uint8)
