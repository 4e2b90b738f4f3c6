"""Which shard has which rows of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdml.server.coding import unpacked
from sparkdml.server.keys import Keys
from sparkdml.server.link import Told
from sparkdml.server.specs import Range, TableSpec

#: All rows, some in a range, or some by their keys.
Rows = Range | Keys | None


@dataclass(frozen=True)
class Push:
    """An update of the rows; ``step_size`` is None for the rule's own.

    ``encode`` makes a packet (:mod:`~.coding`) of a shard's part of the update, given the shard's number.
    """

    update: np.ndarray
    rows: Rows = None
    step_size: float | None = None
    encode: Callable[[int, np.ndarray], np.ndarray] | None = None


@dataclass(frozen=True)
class Pulled:
    """``values`` to be filled, by table; for each shard what to ask, and which parts of the arrays are its answer."""

    values: dict[str, np.ndarray]
    told: list[list[Told]]
    into: list[list[np.ndarray]]

    def put(self, shard: int, arrays: Sequence[np.ndarray]) -> None:
        """An answer, most often received where it belongs."""
        for place, array in zip(self.into[shard], arrays, strict=True):
            if place is not array:
                # tables have floats: bytes are a packet
                place[...] = unpacked(array, place.shape) if array.dtype == np.uint8 else array


class Routes:
    """The tables that a client knows, each with int64 bounds (shards + 1,)."""

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self._tables: dict[str, tuple[TableSpec, np.ndarray]] = {}

    def add(self, spec: TableSpec, bounds: np.ndarray) -> None:
        self._tables[spec.name] = (spec, bounds)

    def remove(self, name: str) -> None:
        self._tables.pop(name, None)

    def bounds(self, name: str) -> np.ndarray:
        return self._table(name)[1]

    def pushes(self, updates: Mapping[str, Push]) -> list[list[Told]]:
        """What to tell each shard; one with none of a table's rows is told so: a push is a step of all of the table."""
        told: list[list[Told]] = [[] for _ in range(self.shards)]
        for name, push in updates.items():
            extra = {} if push.step_size is None else {"step_size": push.step_size}
            pieces = self._cut(name, push.rows)
            for shard in set(range(self.shards)) - {piece[0] for piece in pieces}:
                start = int(self._table(name)[1][shard])
                told[shard].append(({"table": name, "range": [start, start], **extra}, None, push.update[:0]))
            for shard, at, part, keys in pieces:
                if push.encode is None:
                    told[shard].append(({**part, **extra}, keys, push.update[at]))
                else:
                    packet = push.encode(shard, push.update[at])
                    told[shard].append(({**part, **extra, "packet": True}, keys, packet))
        return told

    def pulls(self, rows: Mapping[str, Rows], codecs: Mapping[str, str] | None = None) -> Pulled:
        """``codecs`` are of tables whose values are to come as packets."""
        pulled = Pulled({}, [[] for _ in range(self.shards)], [[] for _ in range(self.shards)])
        for name, chosen in rows.items():
            values = pulled.values[name] = self._empty(name, chosen)
            for shard, at, part, keys in self._cut(name, chosen):
                how = {"codec": codecs[name]} if codecs and name in codecs else {}
                pulled.told[shard].append(({**part, **how}, keys, None))
                pulled.into[shard].append(values[at])
        return pulled

    def _cut(self, name: str, rows: Rows) -> list[tuple[int, slice, dict[str, Any], Keys | None]]:
        """For shards that have any of the rows: where those are among the rows, and how to name them."""
        spec, bounds = self._table(name)
        if isinstance(rows, Keys):
            return [(shard, at, {"table": name}, keys) for shard, at, keys in rows.split(bounds)]
        chosen = rows or Range(0, spec.stop)
        pieces: list[tuple[int, slice, dict[str, Any], Keys | None]] = []
        for shard in range(self.shards):
            start, stop = max(chosen.start, int(bounds[shard])), min(chosen.stop, int(bounds[shard + 1]))
            if start < stop:
                at = slice(start - chosen.start, stop - chosen.start)
                pieces.append((shard, at, {"table": name, "range": [start, stop]}, None))
        return pieces

    def _empty(self, name: str, rows: Rows) -> np.ndarray:
        spec, _ = self._table(name)
        if spec.kind == "rows" and not isinstance(rows, Keys):
            raise ValueError(f"'{name}' has sparse rows: pull it by Keys, or take stored('{name}')")
        chosen = rows or Range(0, spec.stop)
        if isinstance(chosen, Range) and not 0 <= chosen.start <= chosen.stop <= spec.stop:
            raise ValueError(f"rows {chosen.start} to {chosen.stop} of '{name}', which has {spec.stop}")
        count = len(chosen) if isinstance(chosen, Keys) else chosen.stop - chosen.start
        return np.empty((count, spec.columns) if spec.columns else count, spec.dtype)

    def _table(self, name: str) -> tuple[TableSpec, np.ndarray]:
        if name not in self._tables:
            raise ValueError(f"table '{name}' is not known to this client; call create first, as all clients do")
        return self._tables[name]


def even(rows: int, shards: int) -> list[int]:
    """Bounds of shards that differ by one row at most."""
    return [rows * shard // shards for shard in range(shards + 1)]
