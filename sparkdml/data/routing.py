"""Which features a partition's rows touch, and its rows in terms of these alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sparkdml.data.block import Block, SparseBlock
from sparkdml.data.handle import Handle
from sparkdml.data.open_blocks import MissingBlocksError, open_handle
from sparkdml.data.store import open_described, write_described
from sparkdml.resources.compiled import compiled

#: A bitmap over the features may take so many bytes; beyond that indices are sorted instead.
BITMAP_BYTES = 64 * 2**20
NAME = "routing"


@dataclass(frozen=True)
class Routed:
    """Blocks of ``len(columns)`` features; feature ``f`` of theirs is ``columns[f]`` of the data set.

    ``columns`` : int64, increasing.
    """

    columns: np.ndarray
    blocks: Sequence[Block]


_open: dict[str, tuple[Handle, os.stat_result, Routed]] = {}


def open_routed(handle: Handle) -> Routed:
    """The rows of ``handle``; a routing table that is not there is made, from the blocks, and left beside them."""
    blocks = open_handle(handle)
    key, path = f"{handle.dataset}/{handle.partition}", Path(handle.blocks[0].path).parent / NAME
    known = _open.get(key)
    # a table that is mapped here may be gone from disk, where other processes look for it
    if known is not None and known[0] == handle and _is_there(path, known[1]):
        return known[2]
    for stale, (other, *_) in list(_open.items()):
        if not Path(other.blocks[0].path).exists():
            _open.pop(stale, None)
    try:
        table = open_described(path)
    except FileNotFoundError:
        table = write_table(path, handle.features, blocks)
    routed = routed_by(table, blocks)
    with contextlib.suppress(FileNotFoundError):
        _open[key] = (handle, os.stat(path), routed)
    return routed


def _is_there(path: Path, as_before: os.stat_result) -> bool:
    try:
        now = os.stat(path)
    except OSError:
        return False
    return (now.st_ino, now.st_size) == (as_before.st_ino, as_before.st_size)


def write_table(path: Path, features: int, blocks: Sequence[Block]) -> dict[str, np.ndarray]:
    """Find the features that ``blocks`` touch, and number their indices by them; dense rows touch all."""
    table: dict[str, np.ndarray] = {}
    sparse = [block for block in blocks if isinstance(block, SparseBlock)]
    if len(sparse) == len(blocks):
        table["columns"], local = localised([_indices(block) for block in sparse], features)
        table.update((f"indices-{number}", indices) for number, indices in enumerate(local))
    else:
        table["columns"] = np.arange(features)
    try:
        write_described(path, table)
    except FileNotFoundError as error:
        raise MissingBlocksError(str(error)) from error
    return table


def routed_by(table: dict[str, np.ndarray], blocks: Sequence[Block]) -> Routed:
    """``blocks`` with indices by ``table``, which is of :func:`write_table`."""
    columns = table["columns"]
    if "indices-0" not in table:
        return Routed(columns, blocks)
    numbered = [
        replace(block, features=len(columns), indptr=block.indptr - block.indptr[0], indices=table[f"indices-{number}"])
        for number, block in enumerate(blocks)
        if isinstance(block, SparseBlock)
    ]
    return Routed(columns, numbered)


def touching(blocks: Sequence[Block], features: int) -> Routed:
    """``blocks`` over the features that they touch, without a table on disk; dense rows touch all, and stay."""
    sparse = [block for block in blocks if isinstance(block, SparseBlock)]
    if len(sparse) < len(blocks):
        return Routed(np.arange(features), blocks)
    columns, local = localised([_indices(block) for block in sparse], features)
    numbered = [
        replace(block, features=len(columns), indptr=block.indptr - block.indptr[0], indices=indices)
        for block, indices in zip(sparse, local, strict=True)
    ]
    return Routed(columns, numbered)


def localised(parts: Sequence[np.ndarray], features: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The distinct numbers in ``parts`` (each below ``features``), increasing, and each part by their ranks, int32."""
    total = sum(map(len, parts))
    if features // 8 <= min(BITMAP_BYTES, 64 * total + 1024):
        words = np.zeros(features // 64 + 1, np.uint64)
        for part in parts:
            _mark(part, words)
        ranks = np.empty(len(words), np.int32)
        columns = np.empty(_count(words, ranks), np.int64)
        _list(words, columns)
        return columns, [_rank(part, words, ranks) for part in parts]
    joined = np.concatenate([np.zeros(0, np.int64), *parts])
    order = np.argsort(joined)
    ordered = joined[order]
    first = np.ones(total, bool)
    first[1:] = ordered[1:] != ordered[:-1]
    local = np.empty(total, np.int32)
    local[order] = np.cumsum(first) - 1
    return ordered[first], np.split(local, np.cumsum([len(part) for part in parts]))[:-1]


def _indices(block: SparseBlock) -> np.ndarray:
    return block.indices[block.indptr[0] : block.indptr[-1]]


@compiled()
def _mark(indices, words):
    for p in range(indices.shape[0]):
        j = np.uint64(indices[p])
        words[j >> np.uint64(6)] |= np.uint64(1) << (j & np.uint64(63))


@compiled()
def _ones(word):
    """How many bits are set."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@compiled()
def _count(words, ranks):
    """``ranks[n]`` becomes the number of bits before word n; returns how many there are."""
    total = 0
    for n in range(words.shape[0]):
        ranks[n] = total
        total += np.int64(_ones(words[n]))
    return total


@compiled()
def _list(words, columns):
    at = 0
    for n in range(words.shape[0]):
        word = words[n]
        for bit in range(64):
            if word == 0:
                break
            if word & np.uint64(1):
                columns[at] = 64 * n + bit
                at += 1
            word >>= np.uint64(1)


@compiled()
def _rank(indices, words, ranks):
    local = np.empty(indices.shape[0], np.int32)
    for p in range(indices.shape[0]):
        j = np.uint64(indices[p])
        below = (np.uint64(1) << (j & np.uint64(63))) - np.uint64(1)
        word = j >> np.uint64(6)
        local[p] = ranks[word] + np.int32(_ones(words[word] & below))
    return local
