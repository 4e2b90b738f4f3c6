"""Named arrays of one shard. A pull sees all of a push to the shard's part of a table, or nothing of it."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from sparkdml.server.places import Places
from sparkdml.server.rules import Moment, rule
from sparkdml.server.specs import Budget, Selection, TableSpec
from sparkdml.server.wire.errors import RefusedCallError


class Table(ABC):
    """Values (rows, width) with their slots, and ``seen``: the push up to which each row is up to date (lazy rules).

    Whoever calls holds ``lock``; calls that change something come one at a time in a whole shard.
    """

    def __init__(self, spec: TableSpec, budget: Budget, rows: int) -> None:
        self.spec, self.budget, self.rule = spec, budget, rule(**spec.rule)
        self.lock = threading.Lock()
        self.count = 0
        self._values = np.zeros((rows, spec.width), spec.dtype)
        self._slots = self.rule.slots(rows, spec.width)
        self._seen = np.zeros(rows if self.rule.lazy else 0, np.int64)
        self._lent: list[weakref.ref[np.ndarray]] = []

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many there are."""

    @abstractmethod
    def keys(self) -> np.ndarray:
        """The key of every row of the arrays, int64."""

    @abstractmethod
    def named(self, selection: Selection) -> Selection:
        """The selection as it is, or the keys that there are in a range."""

    @abstractmethod
    def _places(self, selection: Selection) -> slice | np.ndarray:
        """Where rows are in the arrays; -1 where they are not."""

    @abstractmethod
    def _make(self, selection: Selection) -> slice | np.ndarray:
        """Where rows are in the arrays, once they all are there."""

    @abstractmethod
    def _missing(self, selection: Selection) -> int:
        """How many of the rows are not there yet."""

    @property
    def values(self) -> np.ndarray:
        """Those of all rows, up to date, (rows, width); a view to read from."""
        self._settle(slice(0, self.rows))
        return _read_only(self._values[: self.rows])

    def changing(self) -> np.ndarray:
        """The same, to be changed."""
        self._settle(slice(0, self.rows))
        self._own()
        return self._values[: self.rows]

    def check(self, selection: Selection, update: np.ndarray | None = None) -> None:
        """Raises RefusedCallError unless the rows are this shard's, and an update fits them and the memory."""
        count, first, last = _extent(selection)
        if count < 0 or (count and (first < self.spec.start or last >= self.spec.stop)):
            here = f"{self.spec.start} to {self.spec.stop - 1}"
            raise RefusedCallError("outside", f"rows {first} to {last} of '{self.spec.name}', but here are {here}")
        if update is not None:
            shape = self.shape_of(selection)
            if update.shape != shape or update.dtype.kind != "f":
                due = f"floats of shape {shape} are due"
                raise RefusedCallError("shape", f"{update.dtype} {update.shape} for '{self.spec.name}', but {due}")
            self.budget.check(self._missing(selection) * self.spec.row_bytes)

    def shape_of(self, selection: Selection) -> tuple[int, ...]:
        """That of the rows' values."""
        count = max(_extent(selection)[0], 0)
        return (count, self.spec.columns) if self.spec.columns else (count,)

    def pull(self, selection: Selection, worker: int | None = None) -> np.ndarray:
        """The rows' values, shape (n,) or (n, columns), zeros for rows that are not there; they stay as they are.

        Rules that compare with what a worker read are told, if it is one.

        A range is no copy: while somebody has it, changes of the table are made to a copy.
        """
        at = self._places(selection)
        if isinstance(at, slice):
            self._settle(at)
            self._note(at, worker)
            found = self._flat(_read_only(self._values[at]))
            self._lent = [*filter(_alive, self._lent), weakref.ref(found)]
            return found
        there = at >= 0
        self._settle(at[there])
        self._note(at[there], worker)
        copy = np.zeros((len(at), self.spec.width), self.spec.dtype)
        copy[there] = self._values[at[there]]
        return self._flat(copy)

    def _note(self, at: slice | np.ndarray, worker: int | None) -> None:
        if worker is not None and self.rule.reads:
            values, slots = self._taken(at)
            self.rule.read(values, slots, worker)
            self._put_slots(at, slots)

    def push(
        self,
        selection: Selection,
        update: np.ndarray,
        step_size: float | None = None,
        worker: int | None = None,
        delay: int = 0,
    ) -> None:
        """One step of the rule at the rows; see :class:`~.rules.Moment`."""
        at = self._make(selection)
        self._settle(at)
        self._own()
        self.count += 1
        values, slots = self._taken(at)
        self.rule.apply(values, update.reshape(values.shape), slots, self._moment(step_size, worker, delay))
        self._put(at, values, slots)

    def assign(self, selection: Selection, values: np.ndarray) -> None:
        """The rows become these; their slots stay."""
        at = self._make(selection)
        self._settle(at)
        self._own()
        self._values[at] = values.reshape(-1, self.spec.width)

    def reserve(self, selection: Selection) -> None:
        """Have the rows."""
        self._make(selection)

    def arrays(self, slots: int | None = None) -> dict[str, np.ndarray]:
        """All that a table is beside its spec, or so many of its slots; :meth:`load` takes it back."""
        kept = {f"slot{number}": slot[: self.rows] for number, slot in enumerate(self._slots[:slots])}
        count = np.array([self.count])
        return {"keys": self.keys(), "values": self.values, "count": count, **kept}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Slots that are not among the arrays stay."""
        at = self._make(arrays["keys"])
        self._own()
        self.count = int(arrays["count"][0])
        slots = tuple(arrays.get(f"slot{number}", slot[at]) for number, slot in enumerate(self._slots))
        self._put(at, arrays["values"], slots)

    def _settle(self, at: slice | np.ndarray) -> None:
        """Make up for the pushes that did not name these rows."""
        if not self.rule.lazy:
            return
        missed = self.count - self._seen[at]
        if missed.any():
            self._own()
            values, slots = self._taken(at)
            self.rule.rest(values, slots, missed, self._moment(None))
            self._put(at, values, slots)

    def _own(self) -> None:
        """Have values that nobody else has."""
        if any(map(_alive, self._lent)):
            self._values = self._values.copy()
        self._lent.clear()

    def _flat(self, values: np.ndarray) -> np.ndarray:
        """As callers see them."""
        return values if self.spec.columns else values[:, 0]

    def _moment(self, step_size: float | None, worker: int | None = None, delay: int = 0) -> Moment:
        return Moment(self.count, self.rule.step_size if step_size is None else step_size, worker, delay)

    def _taken(self, at: slice | np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Views for a range, else copies."""
        return self._values[at], tuple(slot[at] for slot in self._slots)

    def _put(self, at: slice | np.ndarray, values: np.ndarray, slots: tuple[np.ndarray, ...]) -> None:
        if not (isinstance(at, slice) and np.may_share_memory(values, self._values)):
            self._values[at] = values
            self._put_slots(at, slots)
        if self.rule.lazy:
            self._seen[at] = self.count

    def _put_slots(self, at: slice | np.ndarray, slots: tuple[np.ndarray, ...]) -> None:
        if isinstance(at, slice):
            return  # they are views
        for slot, new in zip(self._slots, slots, strict=True):
            slot[at] = new


class Dense(Table):
    """Every row is there from the start."""

    def __init__(self, spec: TableSpec, budget: Budget) -> None:
        budget.take((spec.stop - spec.start) * spec.row_bytes)
        super().__init__(spec, budget, spec.stop - spec.start)

    @property
    def rows(self) -> int:
        return self.spec.stop - self.spec.start

    def keys(self) -> np.ndarray:
        return np.arange(self.spec.start, self.spec.stop)

    def named(self, selection: Selection) -> Selection:
        return selection

    def _places(self, selection: Selection) -> slice | np.ndarray:
        if isinstance(selection, np.ndarray):
            return selection - self.spec.start
        return slice(selection.start - self.spec.start, selection.stop - self.spec.start)

    def _make(self, selection: Selection) -> slice | np.ndarray:
        return self._places(selection)

    def _missing(self, selection: Selection) -> int:
        return 0


class SparseRows(Table):
    """Rows are there from their first push on, in the order in which they came; arrays grow by doubling."""

    def __init__(self, spec: TableSpec, budget: Budget) -> None:
        super().__init__(spec, budget, 0)
        self._index = Places()

    @property
    def rows(self) -> int:
        return self._index.count

    def keys(self) -> np.ndarray:
        return self._index.keys()

    def named(self, selection: Selection) -> Selection:
        if isinstance(selection, np.ndarray):
            return selection
        keys = self._index.keys()
        return np.sort(keys[(keys >= selection.start) & (keys < selection.stop)])

    def _places(self, selection: Selection) -> np.ndarray:
        return self._index.find(np.asarray(self.named(selection)))

    def _make(self, selection: Selection) -> np.ndarray:
        before = self.rows
        at = self._index.add(np.asarray(self.named(selection)))
        if self.rows > before:
            self.budget.take((self.rows - before) * self.spec.row_bytes)
            self._grow()
            if self.rule.lazy:
                self._seen[before : self.rows] = self.count
        return at

    def _missing(self, selection: Selection) -> int:
        return int((self._places(selection) < 0).sum())

    def _grow(self) -> None:
        more = max(self.rows, 2 * len(self._values)) - len(self._values)
        if self.rows <= len(self._values):
            return
        self._values = np.concatenate([self._values, np.zeros((more, self.spec.width), self.spec.dtype)])
        fresh = self.rule.slots(more, self.spec.width)
        self._slots = tuple(np.concatenate(both) for both in zip(self._slots, fresh, strict=True))
        if self.rule.lazy:
            self._seen = np.concatenate([self._seen, np.zeros(more, np.int64)])


def _alive(lent: weakref.ref[np.ndarray]) -> bool:
    return lent() is not None


def _read_only(view: np.ndarray) -> np.ndarray:
    view.flags.writeable = False
    return view


def _extent(selection: Selection) -> tuple[int, int, int]:
    """How many rows, the first and the last."""
    if not isinstance(selection, np.ndarray):
        return selection.stop - selection.start, selection.start, selection.stop - 1
    return (len(selection), int(selection[0]), int(selection[-1])) if len(selection) else (0, 0, 0)


def table(spec: TableSpec, budget: Budget) -> Table:
    """Empty. Raises RefusedCallError where the budget does not allow for it."""
    return (Dense if spec.kind == "dense" else SparseRows)(spec, budget)
