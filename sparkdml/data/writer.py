"""A partition's rows on their way into block files."""

from __future__ import annotations

import errno
import os
import socket
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sparkdml.data.handle import Handle
from sparkdml.data.rows import Rows, SparseRows, fits_float32, to_dense, to_sparse
from sparkdml.data.statistics import FEATURE_ARRAYS, SCALARS, WIDE_FEATURES, Statistics
from sparkdml.data.store import FileSpec, home_of, remove_directory, remove_if_empty, write_file

#: No block file holds more feature bytes than this, unless a single row does.
MAX_BLOCK_BYTES = 64 * 2**20
#: Dense kernels run at the speed of memory, sparse ones do not: sparse must save more than this factor in bytes.
SPARSE_MUST_SAVE = 2


class StoreFullError(OSError):
    """No local directory has room for a block."""


class PartitionWriter:
    """Turns a partition's rows into block files. Use ``with``: what it wrote is removed if the block fails."""

    def __init__(self, dataset: str, partition: int, roots: Sequence[str]) -> None:
        self._dataset, self._partition = dataset, partition
        # attempts of one task never share a directory, so a retry cannot meet another's half-written file
        name = f"part-{partition:05d}-{uuid.uuid4().hex[:12]}"
        start = partition % len(roots)
        ordered = [*roots[start:], *roots[:start]]
        self._directories = [Path(home_of(root, dataset)) / name for root in ordered]
        self._pending: list[Rows] = []
        self._pending_bytes = 0
        self._pending_nonzeros = 0.0
        self._blocks: list[FileSpec] = []

    def __enter__(self) -> PartitionWriter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            for directory in self._directories:
                remove_directory(str(directory))

    def add(self, rows: Rows, nonzeros: float) -> None:
        """Append rows with ``nonzeros`` values other than 0, cutting a block whenever its bytes are full."""
        budget = MAX_BLOCK_BYTES // SPARSE_MUST_SAVE
        start = 0
        while start < len(rows):
            fitting = rows.fitting(start, budget - self._pending_bytes)
            if fitting == 0 and self._pending:
                self.flush()
                continue
            part = rows.part(start, start + max(fitting, 1))
            self._pending.append(part)
            self._pending_bytes += part.nbytes
            self._pending_nonzeros += _nonzeros(part, nonzeros / len(rows))
            start += len(part)

    def finish(self, statistics: Statistics) -> Handle:
        """Write what is left and the statistics; returns the partition's handle."""
        self.flush()
        arrays = {name: [getattr(statistics, name)] for name in FEATURE_ARRAYS}
        if statistics.columns is not None:
            arrays["columns"] = [statistics.columns]
        file = self._write("statistics", statistics.features, arrays)
        return Handle(
            dataset=self._dataset,
            partition=self._partition,
            host=socket.gethostname(),
            features=statistics.features,
            digest=statistics.digest,
            blocks=tuple(self._blocks),
            statistics=file,
            scalars={name: getattr(statistics, name) for name in SCALARS},
            histogram=tuple(statistics.histogram.tolist()),
        )

    def flush(self) -> None:
        """Write what was added and has not been written."""
        if not self._pending:
            return
        parts = _one_format(self._pending, self._pending_nonzeros)
        self._pending, self._pending_bytes, self._pending_nonzeros = [], 0, 0.0
        narrow = all(fits_float32(part.values) for part in parts)
        dtype = np.dtype(np.float32 if narrow else np.float64)
        arrays: dict[str, list[np.ndarray]] = {
            "labels": [np.concatenate([part.labels for part in parts])],
            "weights": [np.concatenate([part.weights for part in parts])],
            "values": [np.ascontiguousarray(part.values, dtype) for part in parts],
        }
        offsets = [part.offsets for part in parts if part.offsets is not None]
        if offsets:
            arrays["offsets"] = [np.concatenate(offsets)]
        sparse = [part for part in parts if isinstance(part, SparseRows)]
        if sparse:
            arrays["indptr"] = [_join_indptr([part.indptr for part in sparse])]
            arrays["indices"] = [part.indices for part in sparse]
        self.add_block(parts[0].features, arrays)

    def add_block(self, features: int, arrays: dict[str, list[np.ndarray]]) -> None:
        """Write a block of these arrays as it is."""
        self._blocks.append(self._write(f"block-{len(self._blocks):05d}", features, arrays))

    @property
    def blocks(self) -> tuple[FileSpec, ...]:
        """Written so far."""
        return tuple(self._blocks)

    def _write(self, name: str, features: int, arrays: dict[str, list[np.ndarray]]) -> FileSpec:
        full = []
        for directory in self._directories:
            try:
                directory.mkdir(parents=True, exist_ok=True)
                return write_file(directory / name, features, arrays)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
                    raise
                (directory / name).unlink(missing_ok=True)
                remove_if_empty(directory)
                full.append(f"{directory.parent.parent} ({os.strerror(error.errno)})")
        needed = sum(part.nbytes for parts in arrays.values() for part in parts)
        raise StoreFullError(
            f"no room for a block of {needed / 2**20:.1f} MiB in {', '.join(full)}; free space there, "
            "or set spark.local.dir (SPARK_LOCAL_DIRS on a cluster) to directories that have room"
        )


def _nonzeros(part: Rows, row_average: float) -> float:
    """Exact for sparse rows, whose lengths may differ wildly; the batch's average for dense ones."""
    return len(part.values) if isinstance(part, SparseRows) else row_average * len(part)


def _one_format(parts: list[Rows], nonzeros: float) -> list[Rows]:
    """Dense or sparse for the whole block, decided from all of its rows."""
    rows = sum(len(part) for part in parts)
    item = max(part.values.itemsize for part in parts)
    if parts[0].features > WIDE_FEATURES:
        return [to_sparse(part) for part in parts]
    sparse_bytes = nonzeros * (item + 4) + rows * 8
    if sparse_bytes * SPARSE_MUST_SAVE <= rows * parts[0].features * item:
        return [to_sparse(part) for part in parts]
    return [to_dense(part) for part in parts]


def _join_indptr(pointers: Sequence[np.ndarray]) -> np.ndarray:
    joined = [np.zeros(1, np.int64)]
    end = 0
    for pointer in pointers:
        joined.append(pointer[1:] + end)
        end += int(pointer[-1])
    return np.concatenate(joined)
