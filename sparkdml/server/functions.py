"""What a server computes from its tables, so that they need not travel. Sums over shards are the client's.

A function has ``tables`` (names to tables, all locked) and numbers, and gives numbers and arrays to answer with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from sparkdml.server.parts import argument
from sparkdml.server.specs import Range
from sparkdml.server.tables import Dense, Table
from sparkdml.server.wire import Header
from sparkdml.server.wire.errors import RefusedCallError

#: Rows that are computed at a time, so that temporaries stay in the cache.
_CHUNK = 2**14

Result = tuple[dict[str, float], list[np.ndarray]]


class Function(NamedTuple):
    """``tables``: how many it takes; the first is changed if ``changes``. ``numbers``: names and defaults."""

    run: Callable[..., Result]
    tables: int
    changes: bool
    numbers: dict[str, float]


def axpy(y: Table, x: Table, a: float) -> Result:
    """``y += a x``."""
    _check_alike(y, x)
    for to, of in _chunks(y.changing(), x.values):
        to += a * of
    return {}, []


def dot(x: Table, y: Table) -> Result:
    """``sum x y``, in float64."""
    _check_alike(x, y)
    return {"value": sum(float(np.vdot(_double(a), _double(b))) for a, b in _chunks(x.values, y.values))}, []


def norm(x: Table, order: float) -> Result:
    """``sum |x|`` (order 1), ``sum x^2`` (2) or ``max |x|`` (inf); the client takes the root."""
    chunks = (np.abs(_double(a)) for (a,) in _chunks(x.values))
    if order == 1.0:
        return {"value": sum(float(a.sum()) for a in chunks)}, []
    if order == 2.0:
        return {"value": sum(float(np.vdot(a, a)) for a in chunks)}, []
    if order == np.inf:
        return {"value": max((float(a.max()) for a in chunks), default=0.0)}, []
    raise RefusedCallError("argument", f"order={order}; take 1, 2 or inf")


def scale(x: Table, a: float) -> Result:
    """``x *= a``."""
    values = x.changing()
    values *= a
    return {}, []


def proximal(x: Table, rate: float, l1: float, l2: float) -> Result:
    """``argmin_z l2 / 2 z^2 + l1 |z| + (z - x)^2 / (2 rate)`` for each number."""
    for (part,) in _chunks(x.changing()):
        shrunk = np.maximum(np.abs(part) - rate * l1, 0.0) / (1.0 + rate * l2)
        part[:] = np.copysign(shrunk, part)
    return {}, []


def step(x: Table, gradient: Table, step_size: float) -> Result:
    """One step of the rule of x, along a gradient that has been summed up in a table of its own; that becomes 0.

    ``step_size``: 0 for the rule's own.
    """
    _check_alike(x, gradient)
    if x is gradient:
        raise RefusedCallError("argument", f"'{x.spec.name}' cannot be its own gradient; sum that up in another table")
    slope = gradient.values if x.spec.columns else gradient.values[:, 0]
    x.push(Range(x.spec.start, x.spec.stop), slope, step_size or None)
    gradient.changing()[:] = 0.0
    return {}, []


def top_k(x: Table, k: float) -> Result:
    """Keys and rows of the k rows of largest Euclidean norm, the largest first; of equals the smaller key."""
    if not 0.0 <= k < np.inf:
        raise RefusedCallError("argument", f"k={k}; take a number of rows")
    values, keys = x.values, x.keys()
    sizes = np.einsum("ij,ij->i", values, values, dtype=np.float64)
    count = min(int(k), len(keys))
    if count <= 0:
        chosen = np.empty(0, np.int64)
    else:
        least = np.partition(sizes, len(sizes) - count)[len(sizes) - count]
        chosen = np.flatnonzero(sizes >= least)
        chosen = chosen[np.lexsort((keys[chosen], -sizes[chosen]))][:count]
    return {}, [keys[chosen], values[chosen] if x.spec.columns else values[chosen, 0]]


FUNCTIONS = {
    "axpy": Function(axpy, 2, True, {"a": 1.0}),
    "dot": Function(dot, 2, False, {}),
    "norm": Function(norm, 1, False, {"order": 2.0}),
    "scale": Function(scale, 1, True, {"a": 1.0}),
    "proximal": Function(proximal, 1, True, {"rate": 1.0, "l1": 0.0, "l2": 0.0}),
    "step": Function(step, 2, True, {"step_size": 0.0}),
    "top_k": Function(top_k, 1, False, {"k": 1}),
}


def requested(header: Header) -> tuple[Function, dict[str, float]]:
    """The function that a call names, and all its numbers. Raises RefusedCallError."""
    name, given = argument(header, "function", str), argument(header, "numbers", dict)
    if name not in FUNCTIONS:
        raise RefusedCallError("argument", f"function {name[:80]!r} is not known; take one of {', '.join(FUNCTIONS)}")
    numbers = FUNCTIONS[name].numbers
    if not given.keys() <= numbers.keys():
        what = ", ".join(numbers) or "no numbers"
        raise RefusedCallError("argument", f"{name} takes {what}, not {', '.join(map(str, given))[:80]}")
    return FUNCTIONS[name], {key: argument({**numbers, **given}, key, float) for key in numbers}


def _check_alike(x: Table, y: Table) -> None:
    for table in (x, y):
        if not isinstance(table, Dense):
            raise RefusedCallError("argument", f"'{table.spec.name}' has sparse rows; this function is of dense tables")
    ours, theirs = ((t.spec.start, t.spec.stop, t.spec.columns) for t in (x, y))
    if ours != theirs:
        names = f"'{x.spec.name}' and '{y.spec.name}'"
        raise RefusedCallError("argument", f"{names} have rows from, to, columns {ours} and {theirs}; take two alike")


def _chunks(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, _CHUNK):
        yield tuple(array[start : start + _CHUNK] for array in flat)


def _double(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64, copy=False)
