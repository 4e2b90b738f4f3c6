"""Block files: arrays written once and memory-mapped by every round after that."""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sparkdml.data.block import Block, DenseBlock, SparseBlock

DATASET_PREFIX = "sparkdml-"
_ALIGNMENT = 64


@dataclass(frozen=True)
class ArraySpec:
    """Where an array lies in its file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class FileSpec:
    """A file of arrays. ``size`` is checked when it is opened: a shorter file counts as missing."""

    path: str
    features: int
    size: int
    arrays: dict[str, ArraySpec]

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> FileSpec:
        arrays = {name: ArraySpec(a["dtype"], tuple(a["shape"]), a["offset"]) for name, a in fields["arrays"].items()}
        return cls(fields["path"], fields["features"], fields["size"], arrays)


def write_file(path: Path, features: int, arrays: dict[str, list[np.ndarray]]) -> FileSpec:
    """Write each named array, given as parts that follow one another."""
    specs = {}
    with path.open("wb") as file:
        for name, parts in arrays.items():
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            offset = file.tell()
            for part in parts:
                file.write(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
            length = sum(len(part) for part in parts)
            shape = (length, *parts[0].shape[1:])
            specs[name] = ArraySpec(parts[0].dtype.str, shape, offset)
        size = file.tell()
    return FileSpec(str(path), features, size, specs)


def open_arrays(file: FileSpec) -> dict[str, np.ndarray]:
    """Map a file's arrays read-only. Raises FileNotFoundError if it is gone or cut short."""
    with open(file.path, "rb") as stream:
        if os.fstat(stream.fileno()).st_size != file.size:
            raise FileNotFoundError(errno.ENOENT, "block file was cut short", file.path)
        populate = getattr(mmap, "MAP_POPULATE", 0)
        flags = mmap.MAP_SHARED | populate
        # nothing is not mapped: statistics of rows in which no feature occurs
        mapped = mmap.mmap(stream.fileno(), file.size, flags=flags, prot=mmap.PROT_READ) if file.size else b""
    return arrays_in(mapped, file)


def arrays_in(content: Any, file: FileSpec) -> dict[str, np.ndarray]:
    """The arrays in ``content``, which is all of a file."""
    return {
        name: np.frombuffer(content, spec.dtype, count=int(np.prod(spec.shape)), offset=spec.offset).reshape(spec.shape)
        for name, spec in file.arrays.items()
    }


def write_described(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as a file that tells itself what is in it; whoever finds it there finds all of it."""
    # other attempts of the task may write the same file at the same time
    draft = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    spec = write_file(draft, 0, {name: [array] for name, array in arrays.items()})
    told = json.dumps(asdict(spec)).encode()
    with draft.open("ab") as file:
        file.write(told + len(told).to_bytes(8, "little"))
    draft.replace(path)


def open_described(path: Path | str) -> dict[str, np.ndarray]:
    """Map the arrays that :func:`write_described` wrote. Raises FileNotFoundError if the file is gone or cut short."""
    with open(path, "rb") as stream:
        end = os.fstat(stream.fileno()).st_size
        stream.seek(max(end - 8, 0))
        length = int.from_bytes(stream.read(8), "little")
        if not 0 < length <= end - 8:
            raise FileNotFoundError(errno.ENOENT, "file was cut short", str(path))
        stream.seek(end - 8 - length)
        try:
            spec = FileSpec.from_json(json.loads(stream.read(length)))
        except (ValueError, KeyError, TypeError):
            raise FileNotFoundError(errno.ENOENT, "file was cut short", str(path)) from None
    return open_arrays(replace(spec, path=str(path), size=end))


def open_block(file: FileSpec) -> Block:
    return block_of(file, open_arrays(file))


def block_of(file: FileSpec, arrays: dict[str, Any]) -> Block:
    """A block of the arrays of its file."""
    if "indptr" in arrays:
        return SparseBlock(features=file.features, **arrays)
    return DenseBlock(features=file.features, **arrays)


def local_directories() -> list[str]:
    """The executor's own scratch directories, which Spark removes when the executor ends."""
    configured = os.environ.get("SPARK_LOCAL_DIRS", "")
    return [part for part in configured.split(",") if part] or [tempfile.gettempdir()]


def home_of(root: str, dataset: str) -> str:
    """A dataset's directory under one of an executor's scratch directories."""
    return str(Path(root) / f"{DATASET_PREFIX}{dataset}")


def remove_directory(path: str) -> None:
    """Remove a partition's directory, and the dataset's around it when it is the last."""
    shutil.rmtree(path, ignore_errors=True)
    remove_if_empty(Path(path))


def remove_if_empty(directory: Path) -> None:
    """Remove a partition's directory and the dataset's around it, as far as nothing is in them."""
    for path in (directory, directory.parent):
        if path == directory or path.name.startswith(DATASET_PREFIX):
            with contextlib.suppress(OSError):  # not there, or others' files are in it
                path.rmdir()


def remove_home(path: str) -> None:
    """Remove a dataset's directory, whatever attempts of its tasks left there."""
    assert Path(path).name.startswith(DATASET_PREFIX)
    shutil.rmtree(path, ignore_errors=True)
