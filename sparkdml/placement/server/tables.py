"""The tables of a fit, as the driver and its workers agree on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdml.algorithms import SyncSGD
from sparkdml.optim.steps import STEPS
from sparkdml.optim.steps.proximal import proximal
from sparkdml.problem import Problem
from sparkdml.server.client import Client, Push
from sparkdml.server.specs import Range
from sparkdml.server.table_state import TableState

#: Coefficients, and what is never penalised: intercepts and the loss's own parameters.
COEFFICIENTS, REST = "coefficients", "rest"
#: A row for each worker in each pass: its loss at the start, 1 once it has told it, seconds of computing until then.
PASSES = "passes"
#: From the driver: whether the fit is over, how many passes it has looked at, and at which start it wants losses; then,
#: for each worker, what it is to multiply gradients by.
CONTROL = "control"
OVER, SEEN, WANTED, SCALES = 0, 1, 2, 3
#: A number for each worker: 1 once it has not found its blocks.
MISSING = "missing"


def start_of(pass_number: int) -> str:
    """The table with the point at which pass ``pass_number`` began, until the one after the next begins."""
    return f"start {pass_number % 2}"


@dataclass(frozen=True)
class Steps:
    """A method whose steps servers can take: how its rounds are cut into passes, and what its rule is.

    ``in_step``: every worker is in every round. ``steps_of_round``: 1, or as many as workers where each push is a step.
    ``stale`` is what is done about gradients that come late (:func:`sparkdml.server.stale.stale_way`).
    ``keep_every``: passes from one state that is kept to the next; 0 for none.
    """

    algorithm: SyncSGD
    problem: Problem
    workers: int
    in_step: bool
    steps_of_round: int
    stale: str
    keep_every: int = 0

    @property
    def rounds_of_pass(self) -> int:
        return math.ceil(1.0 / self.algorithm.fraction)

    @property
    def last_clock(self) -> int:
        """That of the last objective; no step follows it."""
        return self.algorithm.limits.max_iterations * self.rounds_of_pass

    def keeps(self, pass_number: int) -> bool:
        """Whether the driver takes the state at the start of the pass, for which workers in step wait."""
        return self.keep_every > 0 and (pass_number + 1) % self.keep_every == 0

    def lines_of(self, pass_number: int) -> Range:
        """The rows of a pass in :data:`PASSES`."""
        return Range(pass_number * self.workers, (pass_number + 1) * self.workers)

    @property
    def penalised(self) -> int:
        """How many of the coordinates are coefficients."""
        return self.problem.features * self.problem.loss.outputs

    def step_size(self, clock: int) -> float:
        return self.algorithm.step_size * self.algorithm.schedule((clock + 0.5) * self.algorithm.fraction)

    def create(self, client: Client) -> None:
        """Have the tables; whoever uses them says so first."""
        free = self.problem.size - self.penalised
        client.create(COEFFICIENTS, self.penalised, rule=self._rule(penalised=True))
        if free:
            client.create(REST, free, rule=self._rule(penalised=False))
        client.create(PASSES, (self.algorithm.limits.max_iterations + 1) * self.workers, columns=3)
        client.create(CONTROL, SCALES + self.workers)
        client.create(MISSING, self.workers)
        for number in (0, 1):
            client.create(start_of(number), self.problem.size)

    def put(self, client: Client, coef: np.ndarray, slots: Sequence[np.ndarray], count: int) -> None:
        """Have the servers go on from these coordinates, the rule's slots for each, and so many steps."""
        columns = [np.split(np.reshape(part, (-1, 1)), [self.penalised]) for part in (coef, *slots)]
        for number, name in enumerate(self.parameters):
            values, *kept = (column[number] for column in columns)
            client.restore(name, TableState(np.arange(len(values)), values, tuple(kept), count))

    def take(self, client: Client) -> tuple[np.ndarray, tuple[np.ndarray, ...], int]:
        """The inverse of :meth:`put`."""
        states = [client.state(name) for name in self.parameters]
        coef = np.concatenate([state.values[:, 0] for state in states])
        slots = zip(*(state.slots for state in states), strict=True)
        return coef, tuple(np.concatenate(each)[:, 0] for each in slots), states[0].count

    def point(self, pulled: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([pulled[COEFFICIENTS], pulled.get(REST, np.zeros(0))])

    @property
    def parameters(self) -> list[str]:
        return [COEFFICIENTS, REST] if self.problem.size > self.penalised else [COEFFICIENTS]

    def parts(self, vector: np.ndarray, step_size: float | None = None) -> dict[str, Push]:
        """A vector over all coordinates by tables."""
        cut = np.split(vector, [self.penalised])
        return {name: Push(part, step_size=step_size) for name, part in zip(self.parameters, cut, strict=False)}

    def _rule(self, penalised: bool) -> dict[str, Any]:
        step = self.algorithm.step
        name = next(name for name, known in STEPS.items() if known is type(step))
        options = {key: value for key, value in vars(step).items() if value != getattr(type(step), key)}
        strengths = {"l1": 0.0, "l2": 0.0}
        if penalised:
            prox = proximal(self.problem)
            strengths = {"l1": _only(prox.l1[: self.penalised]), "l2": _only(prox.l2[: self.penalised])}
        common = {"divisor": self.problem.weight_sum, "stale": self.stale, "workers": self.workers}
        return {"name": name, **common, **strengths, **options}


def _only(values: np.ndarray) -> float:
    """The one value that all have."""
    if not len(values):
        return 0.0
    if np.ptp(values):
        raise ValueError(
            "placement='server' penalises all coefficients alike, which is not so here; use another placement"
        )
    return float(values[0])
