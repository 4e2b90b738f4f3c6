"""A shard's part of the model on disk: arrays written once a generation, and found again by later tasks."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparkdml.algorithms.states import describe, restore
from sparkdml.data.store import open_described, write_described
from sparkdml.resources.compiled import compiled

_STATE, _PUBLISHED, _ARRAY, _STATICS, _PLACES = "state-", "published-", "array-", "statics", "places"

_open: dict[str, tuple[os.stat_result, dict[str, np.ndarray]]] = {}


def open_kept(path: Path | str) -> dict[str, np.ndarray]:
    """The arrays of a described file, mapped by this process as long as the file is there."""
    name, now = str(path), os.stat(path)
    known = _open.get(name)
    if known is not None and (known[0].st_ino, known[0].st_size) == (now.st_ino, now.st_size):
        return known[1]
    arrays = open_described(path)
    _open[name] = (now, arrays)
    return arrays


def let_go() -> None:
    """Unmap files that are gone, so that the disk gets their space back."""
    for name in [name for name in _open if not os.path.exists(name)]:
        _open.pop(name, None)


class ShardFiles:
    """The directory of one shard.

    Each generation of the shard's state is a list of files, one an array; arrays that a step leaves as they are stay in
    the file that they are in. Writing a generation twice, by two attempts of a task, leaves the same files.
    """

    def __init__(self, home: str) -> None:
        self._home = Path(home)
        self._names: dict[int, tuple[np.ndarray, str]] = {}

    def found(self, columns: np.ndarray, mean: np.ndarray, std: np.ndarray, places: Mapping[int, np.ndarray]) -> None:
        """Leave what no step changes.

        columns : int64, increasing: the shard's features that occur in some row; mean, std : theirs.
        places : for each worker, where the shard's features that occur in its rows are among ``columns``.
        """
        self._home.mkdir(parents=True, exist_ok=True)
        write_described(self._home / _PLACES, {str(number): at for number, at in places.items()})
        write_described(self._home / _STATICS, {"columns": columns, "mean": mean, "std": std})

    def statics(self) -> dict[str, np.ndarray]:
        """``columns``, ``mean`` and ``std``. Raises FileNotFoundError if they are gone, as all that reads here does."""
        return open_kept(self._home / _STATICS)

    def places(self, worker: int) -> np.ndarray:
        """Where the features that occur in a worker's rows are among the shard's columns, int32."""
        return open_kept(self._home / _PLACES)[str(worker)]

    def publish(self, generation: int, coefficients: np.ndarray) -> None:
        """Leave what workers see of the shard: coefficients (n, K) for features as they are stored."""
        write_described(self._home / f"{_PUBLISHED}{generation}", {"coefficients": coefficients})

    def published(self, generation: int) -> np.ndarray:
        """What was published for ``generation``."""
        return open_kept(self._home / f"{_PUBLISHED}{generation}")["coefficients"]

    def load(self, generation: int) -> Any:
        """The shard's state, its arrays mapped."""
        manifest = json.loads((self._home / f"{_STATE}{generation}").read_text())
        arrays = {}
        for array_name, file in manifest["files"].items():
            array = open_kept(self._home / file)["array"]
            arrays[array_name] = array
            self._names[id(array)] = (array, file)
        return restore(manifest["tree"], arrays)

    def save(self, generation: int, state: Any) -> None:
        """Write what is new in ``state``."""
        tree, arrays = describe(state)
        files: dict[str, str] = {}
        for array_name, array in arrays.items():
            if id(array) not in self._names:
                file = _array_file(generation, len(files))
                write_described(self._home / file, {"array": array})
                self._names[id(array)] = (array, file)
            files[array_name] = self._names[id(array)][1]
        self._list(generation, tree, files)

    def bring(self, generation: int, number: int, array: np.ndarray) -> None:
        """Leave one array of a state that :meth:`assemble` then puts together."""
        write_described(self._home / _array_file(generation, number), {"array": array})

    def assemble(self, generation: int, tree: Any, count: int) -> Any:
        """The state that ``tree`` describes, of the ``count`` arrays that were brought for it."""
        self._list(generation, tree, {f"array{n}": _array_file(generation, n) for n in range(count)})
        return self.load(generation)

    def _list(self, generation: int, tree: Any, files: Mapping[str, str]) -> None:
        draft = self._home / f"draft-{os.getpid()}"
        draft.write_text(json.dumps({"tree": tree, "files": files}))
        draft.replace(self._home / f"{_STATE}{generation}")

    def keep(self, states: Iterable[int], published: Iterable[int]) -> None:
        """Remove all generations but these."""
        kept_states, kept = {f"{_STATE}{n}" for n in states}, {f"{_PUBLISHED}{n}" for n in published}
        arrays: set[str] = set()
        for name in kept_states:
            with contextlib.suppress(OSError):
                arrays |= set(json.loads((self._home / name).read_text())["files"].values())
        for path in list(self._home.iterdir()):
            stale = (
                (path.name.startswith(_STATE) and path.name not in kept_states)
                or (path.name.startswith(_PUBLISHED) and path.name not in kept)
                or (path.name.startswith(_ARRAY) and path.name not in arrays)
            )
            if stale:
                path.unlink(missing_ok=True)
        let_go()


def _array_file(generation: int, number: int) -> str:
    return f"{_ARRAY}{generation}-{number}"


def taken(values: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """``out = values[places]`` for increasing places: one copy where they follow one another."""
    if _follow(places):
        out[:] = values[places[0] : int(places[0]) + len(places)]
    else:
        np.take(values, places, axis=0, out=out, mode="clip")


def added(total: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    """``total[places] += values`` for increasing places."""
    if _follow(places):
        total[places[0] : int(places[0]) + len(places)] += values
    elif len(places):
        _scatter(total, places, values)


def _follow(places: np.ndarray) -> bool:
    return len(places) > 0 and int(places[-1]) - int(places[0]) == len(places) - 1


@compiled()
def _scatter(total, places, values):
    for n in range(places.shape[0]):
        at = np.uint32(places[n])
        for k in range(values.shape[1]):
            total[at, k] += values[n, k]
