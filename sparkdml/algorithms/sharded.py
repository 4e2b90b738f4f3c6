"""The contract of algorithms whose parameter side is spread over shards of the coefficients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparkdml.core import Stop, Turn, Update, add_updates
from sparkdml.data.block import Block
from sparkdml.problem import Problem


@dataclass(frozen=True)
class Lead:
    """What one place knows of all shards: a few numbers.

    order : what every shard is told in its next step: numbers and small arrays.
    evaluate : whether workers look at the shards' coefficients before that step.
    answer : which array of the shards' states is the answer if the fit ended now, ``best`` or ``coef``.
    """

    order: dict[str, Any] = field(default_factory=dict)
    evaluate: bool = True
    answer: str = "best"
    objective: float = float("inf")
    gradient_norm: float = float("nan")
    iteration: int = 0
    stop: Stop | None = None


class Sharded(ABC):
    """Pure functions, as :class:`~.base.Algorithm`'s; ``init`` and ``step`` see the coefficients of one shard only.

    Intercepts and the loss's own parameters are a shard too, the *tail*: its problem has no features. States are
    dataclasses with the arrays ``coef`` (what workers see next) and ``best`` (the answer if the fit ended now). All
    arrays in them are float64, of the shard's ``problem.size``, and the tail and all shards have as many. What shards
    must know of one another goes through ``lead``, as sums of a few numbers.
    """

    @abstractmethod
    def init(self, problem: Problem, coef: np.ndarray) -> tuple[Any, Update]:
        """A shard's first state, starting from ``coef``, and its part of the first sums."""

    @abstractmethod
    def work(self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, turn: Turn) -> Update:
        """On a worker: ``gradient``, a sum over its rows, float64 (size,), and ``loss``, where it is asked for.

        ``problem`` is over features as they are stored, and only those that occur in these rows.
        """

    @abstractmethod
    def step(self, problem: Problem, state: Any, order: dict[str, Any], total: Update) -> tuple[Any, Update]:
        """A shard's next state, and its part of the sums that ``lead`` is told: numbers and small arrays.

        ``total`` is empty unless workers were asked; then it has the sums of all workers: the shard's ``gradient``, in
        its problem's coordinates, and ``loss``.
        """

    @abstractmethod
    def moves(self, evaluated: bool) -> bool:
        """Whether :meth:`step` changes ``coef``, after workers were asked or not."""

    @abstractmethod
    def begin(self, sums: Update) -> Lead:
        """Before the first step, given the sums of :meth:`init`."""

    @abstractmethod
    def lead(self, lead: Any, sums: Update, loss: float | None, tail: Any) -> Any:
        """The next :class:`Lead`.

        ``sums`` are over all shards and the tail, whose state is ``tail``; ``loss`` is the mean loss that workers
        found, None unless they were asked for it.
        """


def add_sums(total: Update, part: Update) -> Update:
    """``total + part``; nothing that is given changes."""
    return add_updates(dict(total), part) if total else dict(part)


def as_stored(problem: Problem, coef: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A shard's coefficients for features as they are stored, (n, K), and its part of ``mean' coefficients``, (K,)."""
    coefficients = problem.split(coef)[0] * problem.scaling.inverse_std
    return coefficients, problem.scaling.mean[:, 0] @ coefficients


def in_coordinates(problem: Problem, gradient: np.ndarray, slope_sum: np.ndarray) -> np.ndarray:
    """The inverse for gradients: from (n, K), by coefficients as stored, to the problem's coordinates (size,).

    ``slope_sum`` (K,) is the derivative by the intercepts.
    """
    scaling = problem.scaling
    centred = gradient - scaling.mean * slope_sum if scaling.mean.any() else gradient
    return np.asarray(centred * scaling.inverse_std).ravel()
