"""Who has pushed what, and who may read: BSP, SSP and ASP by one number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any

from sparkdml.server.groups import check_groups
from sparkdml.server.rounds import Group, Round
from sparkdml.server.seats import Counts, Seat


class Verdict(Enum):
    """What becomes of a push. All three are acknowledged."""

    APPLY = "apply"
    """It counts: at once, or with others under rounds, when :meth:`Ledger.closed` names its round."""
    DUPLICATE = "duplicate"
    """The worker is past that clock, by another attempt or by a message sent twice: nothing is to be done."""
    LATE = "late"
    """Its round closed without it: the update is dropped, and :meth:`Ledger.arrive` tells where the worker goes on."""


class ClockError(ValueError):
    """A push that must not be: it left out a clock, or its worker could not yet have read, or has left."""


class Ledger:
    """The clock protocol of a parameter server. It neither waits nor locks: whoever calls it does.

    A worker at clock c has pushed its updates of clocks 0 .. c-1. It may read at c when every live worker has pushed
    all of clocks below ``c - staleness``: 0 is BSP, n is SSP (Ho et al., *More effective distributed ML via a stale
    synchronous parallel parameter server*, NIPS 2013), -1 is ASP, where nobody waits. All workers are live from the
    start, whether they have arrived or not, until they leave or are declared lost; so one that joins late is waited
    for, and one that never comes must be declared lost.

    With ``staleness=0``, pushes are applied by rounds. A round closes when all live workers but ``backup_workers``
    have pushed (Chen et al., *Revisiting distributed synchronous SGD*, 2016), and takes a push at least. ``groups``
    (see :func:`sparkdml.server.groups.grouped`) have rounds of their own: BSP within a group, ASP between them.

    A fit that goes on from a checkpoint begins at a later ``clock`` than 0.

    Attempts of one worker (retries, speculative copies) share its clock: whichever brings a push first is heard. A
    refused call changes nothing. Equal calls give equal answers.
    """

    def __init__(
        self,
        workers: int,
        staleness: int,
        backup_workers: int = 0,
        groups: Sequence[Sequence[int]] | None = None,
        clock: int = 0,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers={workers}; there must be 1 or more")
        if staleness < -1:
            raise ValueError(f"staleness={staleness}; it can be 0 (BSP), n clocks (SSP), or -1 for no bound (ASP)")
        if backup_workers < 0:
            raise ValueError(f"backup_workers={backup_workers}; it can be 0 or more")
        if staleness != 0 and (backup_workers or groups is not None):
            raise ValueError(
                f"staleness={staleness} with backup_workers={backup_workers}, groups={groups}: only staleness=0 has "
                "rounds, which these are about; set it, or leave them out"
            )
        self.workers = workers
        self.staleness = staleness
        self.backup_workers = backup_workers
        if clock < 0:
            raise ValueError(f"clock={clock}; clocks count from 0")
        self._seats = [Seat(clock, values_of=clock) for _ in range(workers)]
        parts = [range(workers)] if groups is None else groups
        self._regroup(
            [Group(part, clock) for part in check_groups(parts, workers, backup_workers)] if staleness == 0 else []
        )
        self._steps = 0
        self._closed: list[Round] = []
        self._histogram: Counter[int] = Counter()

    def arrive(self, worker: int, attempt: int) -> int:
        """An attempt begins or begins again: the clock at which it goes on.

        That is the first which its worker has not pushed; under rounds the open one, if that is later. A lost worker
        is live again, and :meth:`minimum` may fall by it; one that has left stays so.
        """
        self._check(worker, attempt=attempt)
        self._hear(worker, attempt)
        return self._due(worker)

    def push(self, worker: int, clock: int, attempt: int) -> Verdict:
        """What becomes of this update. ClockError if it comes too early; ``arrive`` then tells which is due."""
        self._check(worker, clock, attempt)
        self._check_not_early(worker, clock, attempt)
        seat, group = self._seats[worker], self._group(worker)
        self._hear(worker, attempt)
        if clock < seat.clock:
            seat.duplicate += 1
            return Verdict.DUPLICATE
        seat.clock = clock + 1
        if group and clock < group.clock:
            seat.late += 1
            return Verdict.LATE
        seat.applied += 1
        self._histogram[clock - seat.values_of] += 1
        if group:
            self._groups[self._group_of[worker]] = group.with_push(worker)
            self._close_complete()
        else:
            self._steps += 1
        return Verdict.APPLY

    def may_read(self, worker: int, clock: int) -> bool:
        """Whether a read at ``clock`` sees all that it must. Under rounds: whether all earlier ones have closed.

        An attempt that lags behind its worker, or whose round closed meanwhile, may read, and sees later values.
        """
        self._check(worker, clock)
        group = self._group(worker)
        if group:
            return group.clock >= clock
        return self.staleness < 0 or self.minimum() >= clock - self.staleness

    def read(self, worker: int) -> None:
        """The worker is given the values as they are now."""
        self._check(worker)
        seat = self._seats[worker]
        self._revive(worker)
        # values only ever gain updates, also when a lost worker's return sets the minimum back
        seat.values_of = max(seat.values_of, self.minimum())
        seat.others = self._others(worker)

    def delay(self, worker: int, clock: int) -> int:
        """Steps that others made the model take since the worker last read, for its push of ``clock``.

        A step is a push or, under rounds, a round of another group (so 0 with one group). Asked right before or after
        the push, the answer is the same. Methods that compensate delays need it (Zheng et al., *Asynchronous
        stochastic gradient descent with delay compensation*, ICML 2017; Zhang et al., *Staleness-aware async-SGD for
        distributed deep learning*, IJCAI 2016). Where copies of a worker run side by side, the latest read counts.
        """
        self._check(worker, clock)
        if clock > self._due(worker):
            raise ClockError(f"the delay of clock {clock} of worker {worker}, for which {self._due(worker)} is due")
        return self._others(worker) - self._seats[worker].others

    def closed(self) -> list[Round]:
        """Rounds that closed since this was last asked, in the order in which they closed."""
        closed, self._closed = self._closed, []
        return closed

    def leave(self, worker: int) -> None:
        """The worker has finished, and is not waited for again."""
        self._check(worker)
        self._seats[worker].presence = "left"
        self._close_complete()

    def lose(self, worker: int) -> None:
        """The worker is taken for dead: it is not waited for until it is heard of again. What it pushed counts."""
        self._check(worker)
        if self._seats[worker].presence == "live":
            self._seats[worker].presence = "lost"
            self._close_complete()

    def minimum(self) -> int:
        """The clock of the slowest live worker; of the fastest of all where none is live, as nobody is waited for."""
        live = [self._due(worker) for worker in self._live()]
        return min(live) if live else max(self._due(worker) for worker in range(self.workers))

    def split(self, groups: Sequence[Sequence[int]]) -> None:
        """From now on these groups, each a part of one that there is, have rounds of their own."""
        parts = check_groups(groups, self.workers, self.backup_workers)
        split = [group.part(part) for part in parts for group in self._groups if set(part) <= set(group.members)]
        if len(split) < len(parts):
            raise ValueError(
                f"groups={[list(part) for part in parts]} after {self.groups}: groups can be split, not joined, and "
                "only staleness=0 has any"
            )
        self._regroup(split)
        self._close_complete()

    @property
    def groups(self) -> list[list[int]]:
        """Workers whose rounds are common; none without rounds."""
        return [list(group.members) for group in self._groups]

    @property
    def counts(self) -> Counts:
        """So far."""
        return Counts.of(self._seats, self._histogram)

    def state(self) -> dict[str, Any]:
        """All of it as plain JSON values; the values, and updates that wait for their round, must be kept with it."""
        return {
            "staleness": self.staleness,
            "backup_workers": self.backup_workers,
            "seats": [asdict(seat) for seat in self._seats],
            "groups": [{**asdict(g), "members": list(g.members), "pushed": list(g.pushed)} for g in self._groups],
            "steps": self._steps,
            "closed": [[closed.clock, list(closed.workers)] for closed in self._closed],
            "histogram": [list(item) for item in sorted(self._histogram.items())],
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Ledger:
        """The ledger that ``state`` is of. It refuses workers that have gone on since; they must arrive again."""
        ledger = cls(len(state["seats"]), state["staleness"], state["backup_workers"])
        ledger._seats = [Seat(**seat) for seat in state["seats"]]
        ledger._regroup(
            [Group(**{**g, "members": tuple(g["members"]), "pushed": tuple(g["pushed"])}) for g in state["groups"]]
        )
        ledger._steps = state["steps"]
        ledger._closed = [Round(clock, tuple(workers)) for clock, workers in state["closed"]]
        ledger._histogram = Counter(dict(state["histogram"]))
        return ledger

    def _check(self, worker: int, clock: int = 0, attempt: int = 0) -> None:
        if not 0 <= worker < self.workers:
            raise ValueError(f"worker={worker} is not known; workers are 0 to {self.workers - 1}")
        if clock < 0 or attempt < 0:
            raise ValueError(f"clock={clock}, attempt={attempt} of worker {worker}; both count from 0")

    def _check_not_early(self, worker: int, clock: int, attempt: int) -> None:
        seat, group, due = self._seats[worker], self._group(worker), self._due(worker)
        if clock > due:
            reason = f"{due} is due, and none may be left out"
        elif clock == due and seat.presence == "left":
            reason = "the worker has left, and is not waited for"
        elif group and clock > group.clock:
            reason = f"round {group.clock} is open, and its values cannot have been read yet"
        else:
            return
        raise ClockError(f"worker {worker} (attempt {attempt}) pushed clock {clock}, but {reason}; let it arrive again")

    def _hear(self, worker: int, attempt: int) -> None:
        self._seats[worker].attempts = max(self._seats[worker].attempts, attempt + 1)
        self._revive(worker)

    def _revive(self, worker: int) -> None:
        if self._seats[worker].presence == "lost":
            self._seats[worker].presence = "live"

    def _live(self) -> list[int]:
        return [worker for worker, seat in enumerate(self._seats) if seat.presence == "live"]

    def _group(self, worker: int) -> Group | None:
        return self._groups[self._group_of[worker]] if self._groups else None

    def _due(self, worker: int) -> int:
        group = self._group(worker)
        clock = self._seats[worker].clock
        return max(clock, group.clock) if group else clock

    def _others(self, worker: int) -> int:
        group = self._group(worker)
        return self._steps - (group.known if group else self._seats[worker].applied)

    def _regroup(self, groups: list[Group]) -> None:
        self._groups = groups
        self._group_of = {worker: number for number, group in enumerate(groups) for worker in group.members}

    def _close_complete(self) -> None:
        live = self._live()
        for number, group in enumerate(self._groups):
            if group.complete(live, self.backup_workers):
                closed, self._groups[number] = group.closed()
                self._closed.append(closed)
                self._steps += 1
