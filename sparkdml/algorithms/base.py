"""The contract between an algorithm and the placement that drives it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from sparkdml.core import Stop, Turn, Update
from sparkdml.data.block import Block
from sparkdml.problem import Differentiable, Problem

P = TypeVar("P", bound=Differentiable)


class State(Protocol):
    """What an algorithm keeps on the parameter side: a dataclass of arrays and numbers.

    It is never changed in place, so that it can be written as a checkpoint, replicated, and replayed.
    """

    @property
    def coef(self) -> np.ndarray:
        """What workers see in the next round, float64: the problem's coordinates, and what else a method sends."""

    @property
    def best(self) -> np.ndarray:
        """The answer if the fit ended now."""

    @property
    def stop(self) -> Stop | None:
        """Set when the fit is over."""

    @property
    def objective(self) -> float:
        """The objective at ``best``."""

    @property
    def gradient_norm(self) -> float:
        """The Euclidean norm of the gradient at ``best``."""

    @property
    def iteration(self) -> int:
        """Accepted steps so far (a line search may need several rounds for one step)."""


class Algorithm(ABC, Generic[P]):
    """Three pure functions. An algorithm never learns where coefficients live.

    ``problem`` is constant through a fit and is passed in, not kept in the state, so that a checkpoint holds only
    what changes.
    """

    #: Arrays of its updates, in the problem's coordinates, that may arrive altered: what a codec loses is sent later.
    compressible: ClassVar[frozenset[str]] = frozenset()
    #: Whether its updates may be averaged among neighbours instead of summed over all workers.
    mixes: ClassVar[bool] = False
    #: Whether one worker makes use of several threads: where it can have them, it has the rows of several workers.
    threaded: ClassVar[bool] = False

    @property
    def solves(self) -> type[Differentiable]:
        """The problems that it solves: :class:`~sparkdml.problem.Problem` where margins must be linear."""
        return Problem

    @abstractmethod
    def init(self, problem: P, coef: np.ndarray) -> Any:
        """The first :class:`State`, starting from ``coef``."""

    @abstractmethod
    def work(
        self, problem: P, blocks: Sequence[Block], coef: np.ndarray, memory: Any, turn: Turn
    ) -> tuple[Update, Any]:
        """On a worker: what its rows (``blocks``, none of them if it has no rows) say about ``coef``.

        Returns the update, which is added to those of the other workers, and the worker's memory for the next
        round: None where it needs none, else what :func:`~.states.pack` takes. ``memory`` is what it returned last;
        None in its first round, and whenever it was lost with the process or file that held it. A fit must reach the
        same optimum then.
        """

    @abstractmethod
    def advance(self, problem: P, state: Any, total: Update) -> Any:
        """On the parameter side: the next state, given the sum of all updates."""


def require_solvable(algorithm: Algorithm[Any], problem: Differentiable) -> None:
    """Raise ValueError unless ``algorithm`` solves problems of this kind."""
    if not isinstance(problem, algorithm.solves):
        raise ValueError(
            f"{type(algorithm).__name__} needs margins that are linear in the coefficients, which a "
            f"{type(problem).__name__} does not have; use LBFGS, SyncSGD, or ModelAveraging, OneShotAveraging, BMUF or "
            "EASGD with Descent"
        )
