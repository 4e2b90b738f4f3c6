"""The contract of what workers do beside a parameter server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sparkdml.algorithms.progress import Limits
from sparkdml.comm.codecs import codec
from sparkdml.core import Turn
from sparkdml.data.block import Block
from sparkdml.optim.steps import proximal
from sparkdml.placement.server.tables import CONTROL, FACTORS, MISSING, PASSES, READ, start_of
from sparkdml.problem import Differentiable
from sparkdml.server.client import Client, Push
from sparkdml.server.coding import EXACT
from sparkdml.server.routing import Rows
from sparkdml.server.specs import Range

#: Coefficients, and what is never penalised: intercepts and the loss's own parameters.
COEFFICIENTS, REST = "coefficients", "rest"


class Draft(NamedTuple):
    """What a worker wants to read in this turn (nothing: it goes on with what it has), and what it has so far."""

    wanted: Mapping[str, Rows]
    own: Any


class Done(NamedTuple):
    """What a turn came to: updates by table, the memory for the next turn, and the share of all rows that it read."""

    updates: Mapping[str, Push]
    memory: Any
    read: float


@dataclass(frozen=True, kw_only=True)
class SideWork(ABC):
    """A method whose parameters live at servers. A value that workers are sent; a turn of theirs is one clock.

    ``in_step``: every worker is in every round, and each pass of ``rounds_of_pass`` clocks begins at the same point.
    ``keep_every``: passes from one state that is kept to the next; 0 for none.

    The model is in the tables :data:`COEFFICIENTS` and :data:`REST`, which pushes change by :meth:`rule`. A worker's
    memory is None in its first turn, and whenever it was lost: with its process, or because servers did not take what
    it pushed. A fit must reach the same optimum then.

    Updates of coefficients go as packets of ``codec``, with error feedback. Coefficients that are pulled go as packets
    if it is lossless and, where workers are not in step, if it is float16, which loses 2^-11 of a number: what a point
    lost, unlike an update, is never made up for. ``seed``: of what is random in a codec.
    """

    problem: Differentiable
    limits: Limits
    workers: int
    in_step: bool = False
    keep_every: int = 0
    codec: str = EXACT
    seed: int = 0

    @abstractmethod
    def rule(self, penalised: bool) -> Mapping[str, Any]:
        """What a push does to coefficients, or to what is not penalised (:func:`sparkdml.server.rules.rule`)."""

    @abstractmethod
    def before(self, blocks: Sequence[Block], memory: Any, turn: Turn) -> Draft:
        """What is done before anything is read."""

    @abstractmethod
    def work(self, blocks: Sequence[Block], own: Any, pulled: Mapping[str, np.ndarray], turn: Turn) -> Done:
        """The rest of the turn, given what :meth:`before` has and what it wanted to read."""

    @property
    def rounds_of_pass(self) -> int:
        return 1

    @property
    def pipelined(self) -> bool:
        """Whether a turn begins before the one before it has been pushed; its memory is that of two turns before."""
        return False

    @property
    def sums(self) -> Mapping[str, int]:
        """Further tables of so many rows, to which pushes are added."""
        return {}

    def begin(self, coef: np.ndarray) -> dict[str, Push]:
        """What the tables hold at first, for a fit that begins at ``coef``."""
        return self.parts(coef)

    def put(self, client: Client, state: Any) -> None:
        """Have the servers go on from the algorithm's ``state``; without more, from its best point."""
        client.assign(self.begin(state.best))

    def take(self, client: Client, state: Any) -> Any:
        """``state`` with what :meth:`put` needs of what servers hold now."""
        return state

    def keeps(self, pass_number: int) -> bool:
        """Whether the driver takes the state at the start of the pass, for which workers in step wait."""
        return self.keep_every > 0 and (pass_number + 1) % self.keep_every == 0

    def point(self, pulled: Mapping[str, np.ndarray]) -> np.ndarray:
        """The model, of :attr:`whole` pulled."""
        return self.joined(pulled)

    @property
    def last_clock(self) -> int:
        """That of the last objective where all are in step; no turn follows it."""
        return self.limits.max_iterations * self.rounds_of_pass

    @property
    def penalised(self) -> int:
        """How many of the coordinates are coefficients."""
        return self.problem.size - self.problem.free

    @property
    def parameters(self) -> list[str]:
        return list(self.sizes)

    @property
    def sizes(self) -> dict[str, int]:
        """Rows of the model's tables."""
        free = self.problem.size - self.penalised
        return {COEFFICIENTS: self.penalised, **({REST: free} if free else {})}

    @property
    def whole(self) -> dict[str, Rows]:
        """All of the model's tables."""
        return dict.fromkeys(self.parameters)

    @property
    def pull_codecs(self) -> dict[str, str]:
        """By tables, of those that are pulled as packets."""
        little = self.codec == "float16" and not self.in_step
        return {COEFFICIENTS: self.codec} if self.codec != EXACT and (codec(self.codec).lossless or little) else {}

    def lines_of(self, pass_number: int) -> Range:
        """The rows of a pass in :data:`PASSES`."""
        return Range(pass_number * self.workers, (pass_number + 1) * self.workers)

    def create(self, client: Client) -> None:
        """Have the tables; whoever uses them says so first."""
        for name, rows in self.sizes.items():
            client.create(name, rows, rule=self.rule(penalised=name == COEFFICIENTS))
        client.create(PASSES, (self.limits.max_iterations + 1) * self.workers, columns=4)
        sizes = {READ: 1, CONTROL: FACTORS + self.workers, MISSING: self.workers, **self.sums}
        for name, rows in {**sizes, start_of(0): self.problem.size, start_of(1): self.problem.size}.items():
            client.create(name, rows)

    def strengths(self, penalised: bool) -> dict[str, float]:
        """Of the penalty of every coefficient; of none without. ValueError if it is not the same for all."""
        prox, count = proximal(self.problem), self.penalised if penalised else 0
        return {"l1": _only(prox.l1[:count]), "l2": _only(prox.l2[:count])}

    def joined(self, pulled: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([pulled[name] for name in self.parameters])

    def parts(self, vector: np.ndarray, step_size: float | None = None) -> dict[str, Push]:
        """A vector over all coordinates by tables."""
        cut = np.split(vector, [self.penalised])
        return {name: Push(part, step_size=step_size) for name, part in zip(self.parameters, cut, strict=False)}


def _only(values: np.ndarray) -> float:
    """The one value that all have, but for features that do not vary: their coefficients stay 0 with any."""
    values = values[values > 0.0]
    if not len(values):
        return 0.0
    if np.ptp(values):
        raise ValueError(
            "placement='server' penalises all coefficients alike, which is not so here; use another placement"
        )
    return float(values[0])
