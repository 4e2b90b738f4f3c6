"""The parts of a message: which rows of which tables, and their values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from sparkdml.server.coding import unpacked
from sparkdml.server.keys import KeyCache
from sparkdml.server.specs import Range, Selection
from sparkdml.server.tables import Dense, Table
from sparkdml.server.wire import Header
from sparkdml.server.wire.errors import RefusedCallError

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """Rows of a table and, in a push, their update; ``step_size`` is None for the rule's own.

    ``codec``: values that are asked for go as a packet.
    """

    table: Table
    selection: Selection
    update: np.ndarray | None = None
    step_size: float | None = None
    codec: str | None = None

    def kept(self) -> Part:
        """With an update that outlives the message."""
        assert self.update is not None
        return replace(self, update=self.update.copy())


def argument(header: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Raises RefusedCallError unless the header has it, as this very type."""
    value = header.get(name)
    if kind is float and type(value) is int and abs(value) < 2**1000:
        value = float(value)
    if type(value) is not kind:
        raise RefusedCallError("argument", f"{name}={str(value)[:80]!r}, but it must be {kind.__name__}")
    return value


def read_parts(
    header: Header, arrays: Sequence[np.ndarray], tables: Mapping[str, Table], cache: KeyCache, updates: bool
) -> list[Part]:
    """What ``header["parts"]`` and the arrays say, all of it checked; nothing has changed if this raises.

    A part is ``{table, range: [start, stop]}``, ``{table, keys: true}`` with the keys as an array, or
    ``{table, digest}`` for keys sent before; then come ``updates``, an array each or, with ``packet``, the bytes of
    one, and perhaps ``step_size``; else perhaps ``codec``.
    """
    left = iter(arrays)
    parts = []
    for told in argument(header, "parts", list):
        if not isinstance(told, dict):
            raise RefusedCallError("argument", f"a part is an object, not {str(told)[:80]}")
        table = named(tables, told.get("table"))
        selection = _selection(told, left, cache, table)
        update = _update(told, left, table, selection) if updates else None
        step_size = argument(told, "step_size", float) if "step_size" in told else None
        if step_size is not None and not 0.0 < step_size < math.inf:
            raise RefusedCallError("argument", f"step_size={step_size}, but it must be more than 0, and finite")
        table.check(selection, update)
        codec = argument(told, "codec", str) if "codec" in told and not updates else None
        parts.append(Part(table, selection, update, step_size, codec))
    if next(left, None) is not None:
        raise RefusedCallError("argument", "there are more arrays than the parts name")
    return parts


def named(tables: Mapping[str, Table], name: object) -> Table:
    """Raises RefusedCallError if there is no such table."""
    if not isinstance(name, str) or name not in tables:
        raise RefusedCallError("no table", f"there is no table {str(name)[:80]!r}; create it first, at every shard")
    return tables[name]


def spelled_out(header: Header, parts: Sequence[Part]) -> tuple[Header, list[np.ndarray]]:
    """The same message for a server that has seen none of the keys."""
    told, arrays = [], []
    for part in parts:
        one: dict[str, Any] = {"table": part.table.spec.name}
        if isinstance(part.selection, np.ndarray):
            one["keys"] = True
            arrays.append(part.selection)
        else:
            one["range"] = list(part.selection)
        if part.step_size is not None:
            one["step_size"] = part.step_size
        if part.update is not None:
            arrays.append(part.update)
        told.append(one)
    return {**header, "parts": told}, arrays


def summed(pushes: Sequence[Sequence[Part]]) -> list[Part]:
    """One part a table, whose update is the sum of all, added in the order given; a step size is the first's."""
    by_table: dict[str, list[Part]] = {}
    for part in (part for push in pushes for part in push):
        by_table.setdefault(part.table.spec.name, []).append(part)
    return [_sum(parts) for parts in by_table.values()]


def _sum(parts: list[Part]) -> Part:
    first = parts[0]
    assert first.update is not None
    if all(_same(part.selection, first.selection) for part in parts):
        total = first.update.copy()
        for part in parts[1:]:
            total += part.update
        return replace(first, update=total)
    keys = [part.selection if isinstance(part.selection, np.ndarray) else np.arange(*part.selection) for part in parts]
    union = np.unique(np.concatenate(keys))
    total = np.zeros((len(union), *first.update.shape[1:]), first.update.dtype)
    for part, own in zip(parts, keys, strict=True):
        total[np.searchsorted(union, own)] += part.update
    return replace(first, selection=union, update=total)


def _same(one: Selection, other: Selection) -> bool:
    return type(one) is type(other) and np.array_equal(one, other)


def _selection(told: Mapping[str, Any], left: Iterator[np.ndarray], cache: KeyCache, table: Table) -> Selection:
    if "digest" in told:
        keys = cache.find(argument(told, "digest", str))
        if keys is None:
            raise RefusedCallError("unknown keys", "these keys are not remembered here; send them again")
        return keys
    if "keys" in told:
        try:
            return cache.add(_next(left))
        except ValueError as error:
            raise RefusedCallError("argument", str(error)) from None
    if "range" in told:
        ends = argument(told, "range", list)
        if len(ends) != 2 or any(type(end) is not int or not 0 <= end < 2**62 for end in ends):
            raise RefusedCallError("argument", f"range={str(ends)[:80]}, but it is two numbers of 0 or more")
        return _ranged(table, Range(*ends))
    return _ranged(table, Range(table.spec.start, table.spec.stop))


def _ranged(table: Table, rows: Range) -> Selection:
    return rows if isinstance(table, Dense) else table.named(rows)


def _update(told: Mapping[str, Any], left: Iterator[np.ndarray], table: Table, selection: Selection) -> np.ndarray:
    sent = _next(left)
    if told.get("packet") is not True:
        return sent
    table.check(selection)
    return unpacked(sent, table.shape_of(selection))


def _next(left: Iterator[np.ndarray]) -> np.ndarray:
    array = next(left, None)
    if array is None:
        raise RefusedCallError("argument", "there are fewer arrays than the parts name")
    return array
