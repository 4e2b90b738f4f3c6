"""How the step size changes while passes over the rows go by."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field


class Schedule(ABC):
    """A factor of the step size. Time is counted in passes over the rows, so that it means the same for every batch."""

    @abstractmethod
    def __call__(self, passes: float) -> float:
        """The factor after ``passes`` (0 or more) passes over the rows, not negative."""


@dataclass(frozen=True)
class Constant(Schedule):
    """1: with noisy gradients steps end in a neighbourhood of the optimum that is as wide as the step size."""

    def __call__(self, passes: float) -> float:
        return 1.0


@dataclass(frozen=True)
class Inverse(Schedule):
    """``1 / (1 + decay * t)``, for strongly convex objectives (Robbins & Monro, 1951)."""

    decay: float = 1.0

    def __call__(self, passes: float) -> float:
        return 1.0 / (1.0 + self.decay * passes)


@dataclass(frozen=True)
class InverseSquareRoot(Schedule):
    """``1 / sqrt(1 + decay * t)``, for convex objectives (Zinkevich, 2003)."""

    decay: float = 1.0

    def __call__(self, passes: float) -> float:
        return 1.0 / math.sqrt(1.0 + self.decay * passes)


@dataclass(frozen=True)
class Cosine(Schedule):
    """``floor + (1 - floor) (1 + cos(pi t / length)) / 2``, and ``floor`` after ``length`` passes.

    For a number of passes that is known before. Loshchilov & Hutter, "SGDR: Stochastic gradient descent with warm
    restarts" (2017).
    """

    length: float = 20.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        _check_length("cosine", self.length)

    def __call__(self, passes: float) -> float:
        share = min(passes / self.length, 1.0)
        return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * share))


@dataclass(frozen=True)
class WarmUp(Schedule):
    """``t / length`` times the first factor of ``then``, and ``then(t - length)`` after ``length`` passes.

    Large batches need it, where the step size has been scaled with them. Goyal et al., "Accurate, large minibatch SGD"
    (2017).
    """

    length: float = 5.0
    then: Schedule = field(default_factory=Constant)

    def __post_init__(self) -> None:
        _check_length("warm-up", self.length)

    def __call__(self, passes: float) -> float:
        return min(passes / self.length, 1.0) * self.then(max(passes - self.length, 0.0))


def scale_with_batch(step_size: float, batch_size: int, reference: int) -> float:
    """``step_size * batch_size / reference``: the step size for batches that it was not tuned for.

    It keeps what one pass over the rows changes, as long as the gradient changes little within a batch; begin with
    :class:`WarmUp`. Goyal et al. (2017), section 2.1.
    """
    if batch_size < 1 or reference < 1:
        raise ValueError(f"batch sizes are 1 or more, not batch_size={batch_size} and reference={reference}")
    return step_size * batch_size / reference


def _check_length(name: str, length: float) -> None:
    if not length > 0.0:
        raise ValueError(f"a {name} schedule lasts more than 0 passes, not length={length}")


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": Constant,
    "inverse": Inverse,
    "inverse-square-root": InverseSquareRoot,
    "cosine": Cosine,
    "warm-up": WarmUp,
}
