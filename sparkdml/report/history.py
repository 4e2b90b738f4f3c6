"""What every round cost and reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import pyarrow as pa

#: What the seconds of a round go to.
PHASES = ("compute", "wait", "serialise", "aggregate", "driver")


@dataclass(frozen=True)
class Round:
    """One global exchange.

    ``objective`` and ``gradient_norm`` belong to the best point after the round; ``iteration`` counts accepted
    steps. Its :attr:`seconds` went to: ``compute_seconds``, of a worker on average; ``wait_seconds``, in which it
    waited for slower ones; ``serialise_seconds``, putting what is sent into messages and taking it out;
    ``aggregate_seconds``, the rest of the exchange (scheduling, sending, summing); ``driver_seconds``, the
    algorithm's. Bytes are those of the numbers sent to and by all workers.
    ``bytes_driver`` are those that reached the driver.
    ``validation`` is the mean loss over the validation rows at the best point, if there are any.
    """

    round: int
    iteration: int
    objective: float
    gradient_norm: float
    compute_seconds: float
    aggregate_seconds: float
    driver_seconds: float
    bytes_down: int
    bytes_up: int
    validation: float = math.nan
    bytes_driver: int = 0
    wait_seconds: float = 0.0
    serialise_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Of the whole round."""
        return sum(getattr(self, f"{phase}_seconds") for phase in PHASES)


@dataclass
class History:
    """``servers`` is what parameter servers told at the end: pushes, bytes and waits of each worker. ``devices`` is
    where each worker's blocks were in the last round, if GPUs were asked for.
    """

    rounds: list[Round] = field(default_factory=list)
    servers: list[dict[str, dict[str, float]]] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)

    def total(self, name: str) -> float:
        """The sum over rounds of one of :class:`Round`'s numbers."""
        return float(sum(getattr(entry, name) for entry in self.rounds))

    @property
    def objectives(self) -> list[float]:
        """The objective at the start and after each accepted step."""
        by_iteration = {entry.iteration: entry.objective for entry in self.rounds if entry.iteration >= 0}
        return [by_iteration[iteration] for iteration in sorted(by_iteration)]


def history_table(rounds: Sequence[Round]) -> pa.Table:
    """One line a round, a column for each of :class:`Round`'s numbers."""
    return pa.table({field.name: [getattr(entry, field.name) for entry in rounds] for field in fields(Round)})
