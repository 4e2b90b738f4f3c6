"""Named trees of arrays: dictionaries and lists in one another, with arrays at their ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Tree = Any


def flattened(tree: Tree) -> dict[str, np.ndarray]:
    """Arrays by path (``layers.0.weights``), in the order of the tree, float64; a tree of one array has path ``""``.

    Raises TypeError for an end that is no array of numbers, and ValueError for a name with a dot and an empty tree.
    """
    found = dict(_ends(tree, ()))
    if not found:
        raise ValueError("initial has no arrays; give at least one, such as {'weights': np.zeros(10)}")
    return found


def put_together(tree: Tree, at: Callable[[str], Any], path: tuple[str, ...] = ()) -> Tree:
    """A tree of the same form whose ends are ``at(path)``."""
    if isinstance(tree, Mapping):
        return {name: put_together(branch, at, (*path, str(name))) for name, branch in tree.items()}
    if isinstance(tree, list | tuple):
        return [put_together(branch, at, (*path, str(number))) for number, branch in enumerate(tree)]
    return at(".".join(path))


def _ends(tree: Tree, path: tuple[str, ...]) -> Any:
    if isinstance(tree, Mapping):
        branches = list(tree.items())
    elif isinstance(tree, list | tuple):
        branches = list(enumerate(tree))
    else:
        yield ".".join(path), _array(tree, ".".join(path))
        return
    for name, branch in branches:
        if "." in str(name):
            raise ValueError(f"initial has the name '{name}'; dots stand between names of nested parts, so use others")
        yield from _ends(branch, (*path, str(name)))


def _array(value: Any, path: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except Exception as error:
        raise TypeError(f"initial.{path} is a {type(value).__name__}, which is no array: {error}") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"initial.{path} is a {type(value).__name__}; it must be an array of numbers")
    return array.astype(np.float64)
