"""Parquet files read by the tasks themselves, without the JVM."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from sparkdml.data.reader import Columns, ColumnTypeError

#: Rows and bytes of a batch: it should fit a core's cache, and any memory.
BATCH_ROWS, BATCH_BYTES = 8192, 4 * 2**20
#: One row group is decoded by at most so many tasks.
MAX_SHARED_PARTS = 64
#: The key of a file's metadata under which Spark keeps the columns' own.
SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"


@dataclass(frozen=True)
class Split:
    """Rows ``start`` to ``stop`` of one row group."""

    path: str
    row_group: int
    start: int
    stop: int


def find_files(path: str) -> list[str]:
    """The Parquet files at ``path`` (a file or a folder; a local path, or any URI that pyarrow opens)."""
    filesystem, root = _locate(path)
    info = filesystem.get_file_info(root)
    if info.type == pafs.FileType.NotFound:
        raise FileNotFoundError(f"no Parquet file or folder at {path}")
    if info.type == pafs.FileType.File:
        return [path]
    found = filesystem.get_file_info(pafs.FileSelector(root, recursive=True))
    below = sorted(
        item.path[len(root) :].lstrip("/") for item in found if item.type == pafs.FileType.File and item.size
    )
    names = [name for name in below if not any(part.startswith(("_", ".")) for part in name.split("/"))]
    if not names:
        raise FileNotFoundError(f"the folder {path} holds no Parquet files")
    return [f"{path.rstrip('/')}/{quote(name) if _is_uri(path) else name}" for name in names]


def _is_uri(path: str) -> bool:
    return "://" in path or path.startswith("file:")


def _locate(path: str) -> tuple[pafs.FileSystem, str]:
    if path.startswith("file:"):
        return pafs.LocalFileSystem(), unquote(urlsplit(path).path)
    if _is_uri(path):
        filesystem, name = pafs.FileSystem.from_uri(path)
        return filesystem, name
    return pafs.LocalFileSystem(), os.path.abspath(path)


def _open(path: str) -> pq.ParquetFile:
    filesystem, name = _locate(path)
    return pq.ParquetFile(filesystem.open_input_file(name))


def column_metadata(file: str) -> dict[str, dict[str, Any]]:
    """What Spark wrote of each column's attributes (``ml_attr`` among them), if it wrote the file."""
    described = (_open(file).schema_arrow.metadata or {}).get(SPARK_SCHEMA)
    if described is None:
        return {}
    return {field["name"]: field.get("metadata", {}) for field in json.loads(described).get("fields", [])}


def plan_splits(files: Sequence[str], parts: int) -> list[list[Split]]:
    """Cut the files into at most ``parts`` lists of about equal numbers of rows, in file order.

    A row group may be shared by two lists: each then decodes all of it and keeps its own rows.
    """
    groups: list[tuple[str, int, int]] = []
    for file in files:
        metadata = _open(file).metadata
        groups += [(file, g, metadata.row_group(g).num_rows) for g in range(metadata.num_row_groups)]
    total = sum(rows for _, _, rows in groups)
    parts = max(min(parts, total, max(len(groups), MAX_SHARED_PARTS)), 1)
    bounds = [total * k // parts for k in range(parts + 1)]
    plan: list[list[Split]] = [[] for _ in range(parts)]
    first = 0
    for file, group, rows in groups:
        for k in range(parts):
            low, high = max(bounds[k], first), min(bounds[k + 1], first + rows)
            if low < high:
                plan[k].append(Split(file, group, low - first, high - first))
        first += rows
    return [splits for splits in plan if splits]


def check_schemas(files: Sequence[str], features: str | Sequence[str], numbers: Sequence[str]) -> None:
    """Raise before any job if a file lacks a column or has one of a type that cannot be used.

    ``numbers`` are the columns beside the features, which must be numeric.
    """
    numbers = [*numbers, *([] if isinstance(features, str) else features)]
    for file in files:
        schema = _open(file).schema_arrow
        for name in [*numbers, *([features] if isinstance(features, str) else [])]:
            if name not in schema.names:
                raise ValueError(f"column '{name}' is not in {file}; it has {', '.join(schema.names)}")
        for name in numbers:
            if not _is_number(schema.field(name).type):
                raise ColumnTypeError(f"column '{name}' is {schema.field(name).type} in {file}; it must be numeric")
        if isinstance(features, str):
            _check_features(features, schema.field(features).type, file)


def _check_features(name: str, kind: pa.DataType, file: str) -> None:
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not (listed and _is_number(kind.value_type)) and not _is_vector(kind):
        raise ColumnTypeError(
            f"column '{name}' is {kind} in {file}; features must be lists of numbers, vectors as Spark writes them, "
            "or several numeric columns"
        )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_vector(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind)) and {kind.field(i).name for i in range(kind.num_fields)} == {
        "type", "size", "indices", "values",
    }  # fmt: skip


def read_batches(splits: Sequence[Split], features: str | Sequence[str], columns: Columns) -> Iterator[pa.RecordBatch]:
    """Batches as :class:`~sparkdml.data.reader.BatchReader` wants them."""
    names = [features] if isinstance(features, str) else list(features)
    wanted = [*names, *_numeric(columns).values()]
    for split in splits:
        file = _open(split.path)
        group = file.metadata.row_group(split.row_group)
        fitting = int(BATCH_BYTES // max(group.total_byte_size / max(group.num_rows, 1), 1))
        batch_rows = min(max(fitting, 16), BATCH_ROWS)
        first = 0
        for batch in file.iter_batches(batch_rows, row_groups=[split.row_group], columns=wanted):
            low, high = max(split.start - first, 0), min(split.stop - first, batch.num_rows)
            first += batch.num_rows
            if low < high:
                yield _arrange(batch.slice(low, high - low), features, columns)
            if first >= split.stop:
                break


def _numeric(columns: Columns) -> dict[str, str]:
    """The columns beside the features, by what they are for."""
    named = {"label": columns.label, "weight": columns.weight, "offset": columns.offset}
    return {field: name for field, name in named.items() if name}


def _arrange(batch: pa.RecordBatch, features: str | Sequence[str], columns: Columns) -> pa.RecordBatch:
    arranged = {field: batch.column(name) for field, name in _numeric(columns).items()}
    if not isinstance(features, str):
        arranged["values"] = _stack([batch.column(name) for name in features])
        return pa.RecordBatch.from_pydict(arranged)
    column = batch.column(features)
    if pa.types.is_struct(column.type):
        size, indices, values = (pc.struct_field(column, part) for part in ("size", "indices", "values"))
        arranged["size"] = size.fill_null(-1)
        arranged["indices"] = indices
        arranged["values"] = values
    else:
        arranged["values"] = column.cast(pa.list_(column.type.value_type))
    return pa.RecordBatch.from_pydict(arranged)


def _stack(arrays: Sequence[pa.Array]) -> pa.Array:
    """Several numeric columns as one list column; a null stays a null inside its list."""
    rows, width = len(arrays[0]), len(arrays)
    values = np.empty((rows, width))
    mask = np.zeros((rows, width), bool)
    for j, array in enumerate(arrays):
        if array.null_count:
            mask[:, j] = array.is_null().to_numpy(zero_copy_only=False)
            array = array.fill_null(0)
        values[:, j] = array.to_numpy(zero_copy_only=False)
    flat = pa.array(values.ravel(), mask=mask.ravel() if mask.any() else None)
    return pa.ListArray.from_arrays(np.arange(0, rows * width + 1, width, dtype=np.int32), flat)
