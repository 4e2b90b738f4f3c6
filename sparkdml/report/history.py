"""What every round cost and reached."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Round:
    """One global exchange.

    ``objective`` and ``gradient_norm`` belong to the best point after the round; ``iteration`` counts accepted
    steps. ``compute_seconds`` is the slowest worker's, ``aggregate_seconds`` the rest of the exchange (scheduling,
    sending, summing), ``driver_seconds`` the algorithm's. Bytes are those of the numbers sent to and by all workers.
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


@dataclass
class History:
    rounds: list[Round] = field(default_factory=list)

    def total(self, name: str) -> float:
        """The sum over rounds of one of :class:`Round`'s numbers."""
        return float(sum(getattr(entry, name) for entry in self.rounds))

    @property
    def objectives(self) -> list[float]:
        """The objective at the start and after each accepted step."""
        by_iteration = {entry.iteration: entry.objective for entry in self.rounds}
        return [by_iteration[iteration] for iteration in sorted(by_iteration)]
