"""What a table is, which rows a call names, and how much memory tables may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sparkdml.server.rules import rule
from sparkdml.server.wire.errors import RefusedCallError


class Range(NamedTuple):
    """Rows ``start`` to ``stop - 1``, by their numbers in the whole table."""

    start: int
    stop: int


#: Rows of a table: a range, or int64 keys (n,) that increase.
Selection = Range | np.ndarray


KINDS = ("dense", "rows")


@dataclass(frozen=True)
class TableSpec:
    """What a table is: of its rows ``start`` to ``stop - 1`` this shard has.

    kind : ``dense`` (all rows are there, as zeros) or ``rows`` (those that have been pushed to; others read as zeros).
    columns : numbers in a row; 0 for a vector, whose rows are single numbers.
    rule : name and options, as :func:`~.rules.rule` takes them.
    """

    name: str
    kind: str
    dtype: str
    columns: int
    start: int
    stop: int
    rule: dict[str, Any] = field(default_factory=lambda: {"name": "add"})

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= 200:
            raise ValueError(f"a table's name is text of 1 to 200 characters, not {self.name!r}")
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r} of table '{self.name}'; take one of {', '.join(KINDS)}")
        if self.dtype not in ("<f4", "<f8"):
            raise ValueError(f"dtype={self.dtype!r} of table '{self.name}'; take <f4 or <f8")
        sizes = self.columns, self.start, self.stop
        if any(type(size) is not int for size in sizes) or not (self.columns >= 0 and 0 <= self.start <= self.stop):
            raise ValueError(f"columns, start, stop = {sizes} of table '{self.name}'; they are numbers, and increase")
        if self.stop >= 2**62 or self.columns >= 2**31:
            raise ValueError(f"table '{self.name}' is beyond all bounds: columns, start, stop = {sizes}")

    @property
    def row_bytes(self) -> int:
        """Of values and the rule's slots."""
        return self.width * (int(self.dtype[2]) + 8 * len(rule(**self.rule).slots(0, 1)))

    @property
    def width(self) -> int:
        """Numbers in a row of the arrays."""
        return max(self.columns, 1)


class Budget:
    """How many bytes all tables of a shard may take."""

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0

    def check(self, size: int) -> None:
        if self.used + size > self.most:
            raise RefusedCallError(
                "full", f"{self.used + size} bytes of tables, but {self.most} are allowed; take more shards"
            )

    def take(self, size: int) -> None:
        self.check(size)
        self.used += size
