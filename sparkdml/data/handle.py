"""All that Spark keeps of a partition's rows: where its block files are."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sparkdml.data.statistics import Statistics
from sparkdml.data.store import FileSpec, open_arrays

#: A host, and a data set's directory there.
Home = tuple[str, str]


@dataclass(frozen=True)
class Handle:
    """One partition's rows on disk: all that Spark keeps of them."""

    dataset: str
    partition: int
    host: str
    features: int
    digest: int
    blocks: tuple[FileSpec, ...] = ()
    statistics: FileSpec | None = None
    scalars: dict[str, float] = field(default_factory=dict)
    histogram: tuple[float, ...] = ()

    @property
    def stored_bytes(self) -> int:
        return sum(block.size for block in self.blocks)

    @property
    def homes(self) -> frozenset[Home]:
        """The data set's directories that hold files of this partition."""
        files = [*self.blocks, *([self.statistics] if self.statistics else [])]
        return frozenset((self.host, str(Path(file.path).parents[1])) for file in files)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Handle:
        fields: dict[str, Any] = json.loads(bytes(data))
        fields["blocks"] = tuple(FileSpec.from_json(block) for block in fields["blocks"])
        fields["histogram"] = tuple(fields["histogram"])
        if fields["statistics"]:
            fields["statistics"] = FileSpec.from_json(fields["statistics"])
        return cls(**fields)


def read_totals(handle: Handle) -> Statistics:
    """What the handle itself tells of its rows: all but what is told of each feature."""
    scalars: dict[str, Any] = {**handle.scalars, "rows": int(handle.scalars["rows"])}
    return Statistics(0, digest=handle.digest, histogram=np.array(handle.histogram), **scalars)


def read_statistics(handle: Handle) -> Statistics:
    """All of it, read from the partition's file."""
    assert handle.statistics is not None
    arrays: dict[str, Any] = {name: array.copy() for name, array in open_arrays(handle.statistics).items()}
    return replace(read_totals(handle), features=handle.features, **arrays)
