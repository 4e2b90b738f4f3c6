"""Files of arrays: what is read back is what was written, or nothing at all."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from batches import dense_rows, matrix, sparse_rows

from sparkdml.data import writer as module
from sparkdml.data.handle import Handle, read_statistics
from sparkdml.data.moments import dense_statistics
from sparkdml.data.open_blocks import MissingBlocksError, open_handle
from sparkdml.data.store import open_arrays, remove_home, write_file
from sparkdml.data.writer import PartitionWriter, StoreFullError

X = np.arange(60.0).reshape(12, 5)


def write(roots: list[Path], partition: int = 0, dataset: str = "law") -> Handle:
    rows = dense_rows(X)
    with PartitionWriter(dataset, partition, [str(root) for root in roots]) as writer:
        writer.add(rows, 59.0)
        return writer.finish(dense_statistics(rows.values, rows.labels, rows.weights))


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    made = [tmp_path / "first", tmp_path / "second"]
    for root in made:
        root.mkdir()
    return made


def contents(root: Path) -> list[Path]:
    return list(root.rglob("*"))


def remove(handle: Handle) -> None:
    """What closing its data set does."""
    for _, home in handle.homes:
        remove_home(home)


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    arrays = {
        "odd": [np.arange(3, dtype=np.int32), np.arange(4, dtype=np.int32)],
        "empty": [np.zeros(0)],
        "matrix": [X[:5], X[5:]],
        "transposed": [X.T],
        "narrow": [X.astype(np.float32)[:, ::2]],
        "last-and-empty": [np.zeros((0, 3), np.float32)],
    }
    found = open_arrays(write_file(tmp_path / "file", 5, arrays))
    assert found.keys() == arrays.keys()
    for name, parts in arrays.items():
        expected = np.concatenate(parts)
        assert found[name].dtype == expected.dtype
        np.testing.assert_array_equal(found[name], expected)
        assert found[name].ctypes.data % found[name].itemsize == 0
        with pytest.raises(ValueError, match="read-only"):
            found[name][...] = 1


def test_handles_and_statistics_survive_their_trip(roots: list[Path]) -> None:
    handle = write(roots)
    again = Handle.from_bytes(handle.to_bytes())
    assert again == handle
    (block,) = open_handle(again)
    np.testing.assert_array_equal(matrix(block), X)
    statistics, expected = read_statistics(again), dense_statistics(X, np.arange(12.0), np.ones(12))
    assert statistics.digest == expected.digest == handle.digest
    assert (statistics.rows, statistics.weight_sum) == (12, 12.0)
    np.testing.assert_array_equal(statistics.mean, expected.mean)
    np.testing.assert_array_equal(statistics.m2, expected.m2)


@pytest.mark.parametrize("opened_before", [False, True], ids=["unopened", "opened"])
@pytest.mark.parametrize("damage", ["deleted", "directory-deleted", "cut-short", "emptied"])
def test_files_that_are_not_whole_count_as_missing(roots: list[Path], damage: str, opened_before: bool) -> None:
    handle = write(roots, dataset=f"{damage}-{opened_before}")
    path = Path(handle.blocks[0].path)
    if opened_before:
        open_handle(handle)
    if damage == "deleted":
        path.unlink()
    elif damage == "directory-deleted":
        shutil.rmtree(path.parent)
    else:
        os.truncate(path, path.stat().st_size - 1 if damage == "cut-short" else 0)
    with pytest.raises(MissingBlocksError):
        open_handle(handle)


def test_removing_leaves_nothing_and_spares_other_data_sets(roots: list[Path]) -> None:
    one, other = write(roots, dataset="one"), write(roots, dataset="other")
    remove(one)
    (block,) = open_handle(other)
    assert block.rows == 12
    remove(other)
    assert [contents(root) for root in roots] == [[], []]
    remove(other)  # a second time does nothing


def test_two_attempts_of_a_partition_never_share_a_directory(roots: list[Path]) -> None:
    one, other = (Path(write(roots).blocks[0].path).parent for _ in range(2))
    assert one != other
    assert one.parent == other.parent


def test_partitions_take_turns_with_the_directories(roots: list[Path]) -> None:
    for partition in range(4):
        path = Path(write(roots, partition=partition).blocks[0].path)
        assert path.is_relative_to(roots[partition % 2])


def fill_up(monkeypatch: pytest.MonkeyPatch, full: list[Path], code: int) -> None:
    """Writing below ``full`` fails in the middle of a file."""

    def write_some(path: Path, *args: object):
        if any(root in path.parents for root in full):
            path.write_bytes(b"half a block")
            raise OSError(code, os.strerror(code), str(path))
        return write_file(path, *args)

    monkeypatch.setattr(module, "write_file", write_some)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_directory_is_passed_over(roots: list[Path], monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    fill_up(monkeypatch, roots[:1], code)
    handle = write(roots)
    (block,) = open_handle(handle)
    np.testing.assert_array_equal(matrix(block), X)
    assert Path(handle.blocks[0].path).is_relative_to(roots[1])
    assert not [path for path in contents(roots[0]) if path.is_file()]


def test_removing_leaves_nothing_in_a_directory_that_was_full(
    roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_up(monkeypatch, roots[:1], errno.ENOSPC)
    remove(write(roots))
    assert [contents(root) for root in roots] == [[], []]


def test_no_room_anywhere_names_every_directory_and_leaves_nothing(
    roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_up(monkeypatch, roots, errno.ENOSPC)
    with pytest.raises(StoreFullError) as raised:
        write(roots)
    message = str(raised.value)
    assert all(str(root) in message for root in roots)
    assert "spark.local.dir" in message
    assert [contents(root) for root in roots] == [[], []]


def test_room_that_runs_out_after_some_blocks_leaves_nothing(
    roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BLOCK_BYTES", 160)
    rows = sparse_rows(X)

    def write_more_and_more() -> None:
        with PartitionWriter("law", 0, [str(root) for root in roots]) as writer:
            writer.add(rows, 59.0)
            assert any(path.is_file() for path in contents(roots[0]))
            fill_up(monkeypatch, roots, errno.ENOSPC)
            writer.add(rows, 59.0)

    with pytest.raises(StoreFullError):
        write_more_and_more()
    assert [contents(root) for root in roots] == [[], []]


def test_other_errors_of_the_disk_are_not_taken_for_a_full_one(
    roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_up(monkeypatch, roots[:1], errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as raised:
        write(roots)
    assert not isinstance(raised.value, StoreFullError)
    assert [contents(root) for root in roots] == [[], []]
