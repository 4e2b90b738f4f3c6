"""One bit an entry: 64 times fewer bytes than float64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sparkdml.comm.codecs.base import Codec, Packet, Parts, Seed, relative_norms
from sparkdml.resources.compiled import compiled

#: Sums of magnitudes above this could overflow, and are taken of entries times ``_DOWN``.
_HUGE = 2.0**900
_DOWN = 2.0**-100

#: The bits of every byte, highest first, as np.packbits has them; shape (256, 8).
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8).astype(bool)


@dataclass(frozen=True)
class OneBit(Codec):
    """Whether ``x_i > 0``; decoded as the mean of all such entries, or of all others (Seide et al., 2014).

    The error is ``||x||^2 - n+ mean+^2 - n- mean-^2``, at most ``||x||^2 - ||x||_1^2 / n``. It needs the feedback
    of :class:`~sparkdml.comm.codecs.feedback.ErrorFeedback`, because it is far from small.
    """

    @property
    def name(self) -> str:
        return "1-bit"

    def compress(self, array: np.ndarray, seed: Seed, previous: Packet | None) -> Parts:
        values = array.reshape(-1)
        limit = float(max(values.max(initial=0.0), -values.min(initial=0.0)))
        scale = _DOWN if limit > _HUGE else 1.0
        count, above, below = _sums(values, scale)
        return {
            "positive": min(above / max(count, 1), limit * scale) / scale,
            "other": -min(below / max(values.size - count, 1), limit * scale) / scale,
            "signs": np.packbits(values > 0.0),
        }

    def expand(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        size, signs = math.prod(shape), np.asarray(parts["signs"])
        if signs.size != -(-size // 8):
            raise ValueError(f"{size} entries have {signs.size} bytes of signs")
        table = np.where(_BITS, parts["positive"], parts["other"])
        return table.take(signs, axis=0).reshape(-1)[:size]

    def error_bound(self, array: np.ndarray) -> float:
        _, total, squares = relative_norms(array)
        return math.sqrt(max(1.0 - total**2 / (array.size * squares), 0.0)) if squares else 0.0


@compiled(fastmath={"reassoc", "contract", "nsz", "nnan"})
def _sums(values, scale):
    """How many entries are positive, their sum, and the sum of the magnitudes of the others, both times ``scale``.

    The count is a float64, so that all three sums share vector registers of one kind.
    """
    count = above = below = 0.0
    for i in range(values.shape[0]):
        x = values[i] * scale
        count += 1.0 if x > 0.0 else 0.0
        above += x if x > 0.0 else 0.0
        below -= 0.0 if x > 0.0 else x
    return count, above, below
