"""States as bytes: what a checkpoint holds. Reading one runs no code but the constructors of our own dataclasses."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from typing import Any

import numpy as np

#: Where the classes of a state may come from.
_HOMES = (
    "sparkdml.algorithms.",
    "sparkdml.optim.",
    "sparkdml.comm.codecs.",
    "sparkdml.core",
    "sparkdml.report.history",
    "sparkdml.fit.validation",
    "sparkdml.placement.partitioned.",
)


def pack(state: Any) -> bytes:
    """Nested dataclasses, tuples, lists, dicts, arrays and plain values as one ``.npz`` file."""
    described, arrays = describe(state)
    tree = json.dumps(described).encode()
    buffer = io.BytesIO()
    np.savez(buffer, tree=np.frombuffer(tree, np.uint8), **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def unpack(data: bytes) -> Any:
    """The inverse of :func:`pack`; every number comes back with all its bits."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return restore(json.loads(file["tree"].tobytes()), file)


def describe(state: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """The state as JSON can hold it, and its arrays by the names that they have there."""
    arrays: dict[str, np.ndarray] = {}
    return _describe(state, arrays), arrays


def restore(tree: Any, arrays: Any) -> Any:
    """The inverse of :func:`describe`."""
    return _restore(tree, arrays)


def _describe(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _describe(getattr(value, f.name), arrays) for f in dataclasses.fields(value)}
        return {"class": f"{type(value).__module__}:{type(value).__qualname__}", "fields": fields}
    if isinstance(value, np.ndarray):
        name = f"array{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if isinstance(value, (tuple, list)):
        return {type(value).__name__: [_describe(item, arrays) for item in value]}
    if isinstance(value, dict):
        return {"dict": {key: _describe(item, arrays) for key, item in value.items()}}
    if isinstance(value, float):  # also of numpy
        return {"float": float(value).hex()}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise TypeError(f"a state holds a {type(value).__name__}, which cannot be written")


def _restore(tree: Any, arrays: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, content), *rest) = tree.items()
    if kind == "class":
        fields = {name: _restore(item, arrays) for name, item in tree["fields"].items()}
        return _class_of(content)(**fields)
    assert not rest
    if kind == "array":
        return arrays[content]
    if kind == "float":
        return float.fromhex(content)
    if kind == "dict":
        return {key: _restore(item, arrays) for key, item in content.items()}
    return {"tuple": tuple, "list": list}[kind](_restore(item, arrays) for item in content)


def _class_of(name: str) -> type:
    module, _, qualname = name.partition(":")
    found = getattr(sys.modules.get(module), qualname, None)
    if not module.startswith(_HOMES) or not dataclasses.is_dataclass(found):
        raise ValueError(f"the state holds {name}, which this version does not know")
    assert isinstance(found, type)
    return found
