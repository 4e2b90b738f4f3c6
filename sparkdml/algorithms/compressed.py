"""Any algorithm whose updates may be altered on their way, with a codec in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.comm.codecs import Codec, ErrorFeedback, Memory, codec
from sparkdml.comm.packets import Packets
from sparkdml.core import Turn, Update
from sparkdml.data.block import Block
from sparkdml.problem import Differentiable


@dataclass(frozen=True)
class Sent:
    """A worker's memory: the algorithm's own, and what each of its arrays has lost so far."""

    own: Any = None
    lost: Mapping[str, Memory] = field(default_factory=dict)


@dataclass(frozen=True)
class Compressed(Algorithm[Differentiable]):
    """``algorithm``, whose :attr:`~.Algorithm.compressible` arrays are sent by the codec that ``spelling`` names.

    Coefficients go as a matrix (d, K), so that codecs of low rank see one; intercepts are sent as they are. What a
    packet lost is added to the worker's next one (error feedback), unless the codec is lossless.

    Seide, Fu, Droppo, Li & Yu, *1-Bit Stochastic Gradient Descent* (2014); Karimireddy, Rebjock, Stich & Jaggi, *Error
    Feedback Fixes SignSGD and Other Gradient Compression Schemes* (2019): convex and non-convex, the rate of the
    algorithm for steps small enough. Not where numbers travel faster than they are encoded, as within one machine.
    """

    algorithm: Algorithm
    spelling: str
    seed: int = 0

    def __post_init__(self) -> None:
        codec(self.spelling)  # raises for a spelling that is not known
        if not self.algorithm.compressible:
            raise ValueError(
                f"codec='{self.spelling}' may alter what is sent, and {type(self.algorithm).__name__} needs exact "
                "sums; use codec='identity', or a solver of steps: sgd, model-averaging, bmuf, easgd"
            )

    @property
    def _codec(self) -> Codec:
        return codec(self.spelling)

    @property
    def solves(self) -> type[Differentiable]:
        return self.algorithm.solves

    def init(self, problem: Differentiable, coef: np.ndarray) -> Any:
        return self.algorithm.init(problem, coef)

    def work(
        self, problem: Differentiable, blocks: Sequence[Block], coef: np.ndarray, memory: Sent | None, turn: Turn
    ) -> tuple[Update, Sent]:
        memory = memory or Sent()
        update, own = self.algorithm.work(problem, blocks, coef, memory.own, turn)
        lost: dict[str, Memory] = {}
        for name in self._encoded(update):
            coefficients, rest = self._parts(problem, update[name])
            seed = (self.seed, turn.worker, turn.clock)
            if self._codec.lossless:
                packet = self._codec.encode(coefficients, seed)
            elif not np.isfinite(coefficients).all():
                packet = codec("identity").encode(coefficients)  # so that the method itself sees that it diverged
            else:
                packet, lost[name] = ErrorFeedback(self._codec).encode(coefficients, memory.lost.get(name), seed)
            update[name] = Packets(((turn.worker, packet),))
            update[_rest(name)] = rest
        return update, Sent(own, lost)

    def advance(self, problem: Differentiable, state: Any, total: Update) -> Any:
        decoded = dict(total)
        for name, value in total.items():
            if isinstance(value, Packets):
                decoded[name] = np.concatenate([value.total().ravel(), decoded.pop(_rest(name))])
        return self.algorithm.advance(problem, state, decoded)

    def _encoded(self, update: Update) -> list[str]:
        return sorted(name for name in update if name in self.algorithm.compressible)

    def _parts(self, problem: Differentiable, array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The matrix that is encoded, of coefficients (d, K), and what is sent as it is."""
        coefficients, _ = problem.split(array)
        return coefficients, array[coefficients.size :]


def _rest(name: str) -> str:
    return f"{name}, the rest"
