"""Methods that treat every coefficient by itself, shard by shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.sharded import Lead, Sharded
from sparkdml.core import Turn, Update
from sparkdml.data.block import Block
from sparkdml.problem import Problem


@dataclass(frozen=True)
class ElementWise(Sharded):
    """``method`` as it is, with one ``advance`` a shard.

    A coefficient's step may depend on its own gradient and history and on numbers that are the same everywhere: the
    count of steps, and the objective. Only the penalty's value is summed over shards; decisions that follow from the
    objective are taken by each shard alike.
    """

    method: Algorithm

    def init(self, problem: Problem, coef: np.ndarray) -> tuple[Any, Update]:
        state = self.method.init(problem, coef)
        return state, {"penalty": problem.penalty_at(state.coef)}

    def work(self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, turn: Turn) -> Update:
        update, memory = self.method.work(problem, blocks, coef, None, turn)
        assert memory is None
        return update

    def step(self, problem: Problem, state: Any, order: dict[str, Any], total: Update) -> tuple[Any, Update]:
        state = self.method.advance(replace(problem, whole_penalty=order["penalty"]), state, total)
        return state, {"penalty": problem.penalty_at(state.coef)}

    def moves(self, evaluated: bool) -> bool:
        return True

    def begin(self, sums: Update) -> Lead:
        return Lead(dict(sums), iteration=-1)

    def lead(self, lead: Lead, sums: Update, loss: float | None, tail: Any) -> Lead:
        return Lead(
            dict(sums),
            objective=tail.objective,
            gradient_norm=tail.gradient_norm,
            iteration=tail.iteration,
            stop=tail.stop,
        )
