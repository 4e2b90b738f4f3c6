"""Rounds of workers that step together, and which pushes belong to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Round:
    """A round that closed: the pushes of ``clock`` by ``workers`` are added up in this order, for one step."""

    clock: int
    workers: tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """Workers that step together, with their open round: its ``clock``, and the members that have ``pushed`` in it.

    ``known`` counts the model's steps that are no delay to members: their own, and those before they were a group.
    """

    members: tuple[int, ...]
    clock: int = 0
    pushed: tuple[int, ...] = ()
    known: int = 0

    def with_push(self, worker: int) -> Group:
        return replace(self, pushed=tuple(sorted((*self.pushed, worker))))

    def complete(self, live: Collection[int], backup_workers: int) -> bool:
        """Whether all members among ``live`` but ``backup_workers`` have pushed, and anybody at all has."""
        missing = [worker for worker in self.members if worker in live and worker not in self.pushed]
        return bool(self.pushed) and len(missing) <= backup_workers

    def closed(self) -> tuple[Round, Group]:
        """The open round as it stands, and the group with the next one open."""
        after = replace(self, clock=self.clock + 1, pushed=(), known=self.known + 1)
        return Round(self.clock, self.pushed), after

    def part(self, members: Sequence[int]) -> Group:
        """Some members as a group of their own, which goes on where this one is."""
        return replace(self, members=tuple(members), pushed=tuple(w for w in self.pushed if w in members))
