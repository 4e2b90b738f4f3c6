"""All that a shard knows, as named arrays and JSON, and as a file of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sparkdml.data.store import open_described, write_described
from sparkdml.server.clocks import Ledger
from sparkdml.server.parts import Part
from sparkdml.server.shard import Shard
from sparkdml.server.specs import Range, Selection, TableSpec
from sparkdml.server.tables import table

_TREE = "tree"


def taken(shard: Shard) -> dict[str, np.ndarray]:
    """Copies of tables, ledger, open rounds and last answers, of one moment."""
    arrays: dict[str, np.ndarray] = {}
    with shard.changed:
        for number, one in enumerate(shard.tables.values()):
            with one.lock:
                arrays.update({f"{number}.{name}": array.copy() for name, array in one.arrays().items()})
        tree = {
            "fit": shard.tenancy.fit,
            "ledger": shard.ledger.state(),
            "tables": [asdict(one.spec) for one in shard.tables.values()],
            "pending": [
                [
                    worker,
                    clock,
                    [_part(part, f"{worker}.{clock}.{number}", arrays) for number, part in enumerate(parts)],
                ]
                for (worker, clock), parts in shard.pending.items()
            ],
            "answered": [[client, number, answer] for client, (number, answer) in shard.answered.items()],
        }
    return {_TREE: np.frombuffer(json.dumps(tree).encode(), np.uint8), **arrays}


def put(shard: Shard, arrays: Mapping[str, np.ndarray]) -> None:
    """Make the shard what it was when ``arrays`` were taken; it must be as new."""
    tree = json.loads(arrays[_TREE].tobytes())
    with shard.changed:
        assert not shard.tables
        shard.tenancy.begin(tree["fit"], "")
        shard.ledger = Ledger.restored(tree["ledger"])
        for number, fields in enumerate(tree["tables"]):
            spec = TableSpec(**fields)
            made = table(spec, shard.budget)
            start = f"{number}."
            made.load({name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)})
            shard.tables[spec.name] = made
        for worker, clock, parts in tree["pending"]:
            shard.pending[worker, clock] = [_restored(shard, told, arrays) for told in parts]
        for client, number, answer in tree["answered"]:
            shard.answered[client] = (number, answer)
        shard.changed.notify_all()


def save(shard: Shard, path: Path) -> None:
    """Write a file, whole or not at all; the state is copied first, so that calls go on meanwhile."""
    write_described(path, taken(shard))


def load(shard: Shard, path: Path) -> None:
    """The inverse of :func:`save`. Raises FileNotFoundError if the file is not there or cut short."""
    put(shard, open_described(path))


def _part(part: Part, name: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    assert part.update is not None
    arrays[f"update {name}"] = part.update
    told: dict[str, Any] = {"table": part.table.spec.name, "name": name, "step_size": part.step_size}
    if isinstance(part.selection, np.ndarray):
        arrays[f"keys {name}"] = part.selection
        return told
    return {**told, "range": list(part.selection)}


def _restored(shard: Shard, told: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Part:
    name = told["name"]
    selection: Selection = Range(*told["range"]) if "range" in told else arrays[f"keys {name}"]
    return Part(shard.tables[told["table"]], selection, arrays[f"update {name}"], told["step_size"])
