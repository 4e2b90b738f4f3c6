"""The contract of a placement, and the loop that all of them share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.core import Stop, Tally, Update
from sparkdml.data.dataset import Dataset
from sparkdml.problem import Differentiable
from sparkdml.report.history import History, Round
from sparkdml.resources.gpus.workers import ANY, Workers
from sparkdml.resources.threads import one_blas_thread

#: Called after every round with what it cost and the state after it; an answer ends the fit.
OnRound = Callable[[Round, Any], "Stop | None"]


@dataclass(frozen=True)
class Trained:
    """The algorithm's final state and what the rounds cost."""

    state: Any
    history: History


@dataclass(frozen=True)
class Exchanged:
    """The sum of all workers' updates, and what it cost.

    ``tally`` : what workers spent. Bytes are those of the numbers sent to and by all workers. ``devices``
    tells by worker where its blocks were, if GPUs were asked for.
    """

    update: Update
    tally: Tally
    bytes_down: int
    bytes_up: int
    devices: tuple[str, ...] = ()


#: ``(coef, clock)`` -> the sum of what every worker says of ``coef``.
Exchange = Callable[[np.ndarray, int], Exchanged]


class Placement(ABC):
    """Drives any algorithm; knows where coefficients live and nothing of what the algorithm does."""

    name: ClassVar[str]
    #: What a round costs without any rows.
    latency_seconds: ClassVar[float]

    def __init__(self, workers: Workers = ANY) -> None:
        self.workers = workers

    @abstractmethod
    def exchange(
        self, algorithm: Algorithm, problem: Differentiable, dataset: Dataset
    ) -> AbstractContextManager[Exchange]:
        """How this placement asks the workers, for as long as the context is open."""

    def train(
        self,
        algorithm: Algorithm,
        problem: Differentiable,
        state: Any,
        dataset: Dataset,
        on_round: OnRound | None = None,
        history: History | None = None,
    ) -> Trained:
        """Run rounds from ``state`` (the algorithm's ``init``, or a checkpoint) until a state says stop.

        ``history`` has the rounds that led to ``state``; those of this fit are added to it.
        """
        history = History() if history is None else history
        with one_blas_thread(), self.exchange(algorithm, problem, dataset) as ask:
            while state.stop is None:
                began = time.perf_counter()
                clock = len(history.rounds)
                total = ask(state.coef, clock)
                summed = time.perf_counter()
                state = algorithm.advance(problem, state, total.update)
                done = Round(
                    round=clock,
                    iteration=state.iteration,
                    objective=problem.told * state.objective,
                    gradient_norm=state.gradient_norm,
                    **total.tally.split(summed - began),
                    driver_seconds=time.perf_counter() - summed,
                    bytes_down=total.bytes_down,
                    bytes_up=total.bytes_up,
                )
                history.rounds.append(done)
                history.devices = list(total.devices)
                if on_round is not None:
                    asked = on_round(done, state)
                    if asked is not None and state.stop is None:
                        state = replace(state, stop=asked)
        return Trained(state, history)
