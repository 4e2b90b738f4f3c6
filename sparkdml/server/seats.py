"""What is known of each worker, and what a report tells of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass
class Seat:
    """One worker, whichever attempt speaks for it."""

    clock: int = 0  # it has pushed, or missed, all clocks below
    presence: str = "live"  # live | lost | left
    values_of: int = 0  # the slowest worker's clock when this one last read
    others: int = 0  # steps that others had taken when it last read
    applied: int = 0
    duplicate: int = 0
    late: int = 0
    attempts: int = 0


@dataclass(frozen=True)
class Counts:
    """Pushes by verdict, and attempts, of each worker; and how many applied pushes were how many clocks stale.

    A push's staleness is its clock minus that of the values which its worker had read (updates of all clocks below
    are in them). Under SSP it is the ledger's ``staleness`` at most.
    """

    applied: tuple[int, ...]
    duplicate: tuple[int, ...]
    late: tuple[int, ...]
    attempts: tuple[int, ...]
    staleness: dict[int, int]

    @classmethod
    def of(cls, seats: Sequence[Seat], staleness: Mapping[int, int]) -> Counts:
        return cls(
            applied=tuple(seat.applied for seat in seats),
            duplicate=tuple(seat.duplicate for seat in seats),
            late=tuple(seat.late for seat in seats),
            attempts=tuple(seat.attempts for seat in seats),
            staleness=dict(sorted(staleness.items())),
        )
