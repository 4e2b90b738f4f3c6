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
        limit = max(values.max(initial=0.0), -values.min(initial=0.0))
        scale = _DOWN if limit > _HUGE else 1.0
        positives, above, below = _sums(values, scale)
        upper = above / max(positives, 1) / scale if scale == 1.0 else min(above / max(positives, 1), limit * scale)
        return {}

    def expand(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        size = math.prod(shape)
        table = np.where(_BITS, parts["positive"], parts["negative"])
        return table.take(parts["signs"], axis=0).reshape(-1)[:size]
