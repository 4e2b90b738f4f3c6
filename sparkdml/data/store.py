"""Block files: arrays written once and memory-mapped by every round after that."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import tempfile
from dataclasses import dataclass
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
        mapped = mmap.mmap(stream.fileno(), file.size, flags=flags, prot=mmap.PROT_READ)
    return {
        name: np.frombuffer(mapped, spec.dtype, count=int(np.prod(spec.shape)), offset=spec.offset).reshape(spec.shape)
        for name, spec in file.arrays.items()
    }


def open_block(file: FileSpec) -> Block:
    arrays = open_arrays(file)
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
