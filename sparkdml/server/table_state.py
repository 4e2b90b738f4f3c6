"""All that a table holds, of all shards: what a checkpoint keeps of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sparkdml.server.tables import Table
from sparkdml.server.wire.errors import RefusedCallError


@dataclass(frozen=True)
class TableState:
    """keys : int64 (n,) of the rows that are there. values : (n, width). slots : of the rule, float64 (n, width) each,
    without those about single workers. count : pushes so far; of shards that differ, the most.
    """

    keys: np.ndarray
    values: np.ndarray
    slots: tuple[np.ndarray, ...]
    count: int

    @classmethod
    def joined(cls, parts: Sequence[TableState]) -> TableState:
        """Of all shards."""
        slots = zip(*(part.slots for part in parts), strict=True)
        return cls(
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.values for part in parts]),
            tuple(np.concatenate(each) for each in slots),
            max(part.count for part in parts),
        )

    def within(self, start: int, stop: int) -> TableState:
        """The part of one shard."""
        here = (self.keys >= start) & (self.keys < stop)
        slots = tuple(slot[here] for slot in self.slots)
        return replace(self, keys=self.keys[here], values=self.values[here], slots=slots)

    def arrays(self) -> list[np.ndarray]:
        """As they are sent."""
        return [self.keys, self.values, np.array([self.count]), *self.slots]

    @classmethod
    def of(cls, arrays: Sequence[np.ndarray]) -> TableState:
        """The inverse of :meth:`arrays`."""
        keys, values, count, *slots = arrays
        return cls(keys, values, tuple(slots), int(count[0]))


def taken(table: Table) -> list[np.ndarray]:
    """Copies of one moment, as :meth:`TableState.arrays`."""
    with table.lock:
        found = table.arrays(table.rule.lasting)
        return [found.pop(name).copy() for name in ("keys", "values", "count")] + [a.copy() for a in found.values()]


def put(table: Table, arrays: Sequence[np.ndarray]) -> None:
    """Have the table hold what ``arrays`` say. Raises RefusedCallError unless they are of such a table."""
    if len(arrays) < 3:
        raise RefusedCallError("argument", f"{len(arrays)} arrays; keys, values, count and slots are due")
    keys, values, count, *slots = arrays
    if keys.ndim != 1 or keys.dtype != np.int64 or (np.diff(np.sort(keys)) == 0).any() or count.shape != (1,):
        raise RefusedCallError("argument", "keys are int64 of shape (n,), each once, and the count is one number")
    shape, most = (len(keys), table.spec.width), len(table.arrays(table.rule.lasting)) - 3
    wrong = [array.shape for array in (values, *slots) if array.shape != shape or array.dtype.kind != "f"]
    if wrong or len(slots) > most:
        raise RefusedCallError(
            "shape",
            f"values and {len(slots)} slots, {wrong or 'as many'}, but floats of shape {shape} and {most} are due",
        )
    table.check(np.sort(keys))
    named: Mapping[str, np.ndarray] = {f"slot{number}": slot for number, slot in enumerate(slots)}
    with table.lock:
        table.load({"keys": keys, "values": values, "count": count, **named})
