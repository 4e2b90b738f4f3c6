"""Parquet files are found, and cut so that every row is read exactly once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdml.data.parquet import check_schemas, find_files, plan_splits, read_batches
from sparkdml.data.reader import BatchReader, Columns

COLUMNS = Columns("features", "label")


def write(path: Path, count: int, first: int = 0, group: int = 1000) -> str:
    """Rows whose feature and label are ``first``, ``first + 1``, ..."""
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = np.arange(first, first + count, dtype=float)
    lists = pa.array([[x] for x in numbers], pa.list_(pa.float64()))
    pq.write_table(pa.table({"features": lists, "label": numbers}), path, row_group_size=group)
    return str(path)


def labels_of(plan) -> list[float]:
    """The labels that the lists of splits read, list by list."""
    return [
        label
        for splits in plan
        for batch in read_batches(splits, "features", COLUMNS)
        for label in batch.column("label").to_pylist()
    ]


@given(
    files=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 50)), min_size=1, max_size=4),
    parts=st.integers(1, 9),
)
def test_every_row_is_read_exactly_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[int, int]], parts: int
) -> None:
    folder = tmp_path_factory.mktemp("files")
    paths, total = [], 0
    for n, (count, group) in enumerate(files):
        paths.append(write(folder / f"{n}.parquet", count, total, group))
        total += count
    plan = plan_splits(paths, parts)
    assert len(plan) == min(parts, total)
    assert labels_of(plan) == list(range(total))
    sizes = [sum(split.stop - split.start for split in splits) for splits in plan]
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_one_row_group_is_shared_by_several_tasks(tmp_path: Path) -> None:
    path = write(tmp_path / "one.parquet", 30_000, group=30_000)
    plan = plan_splits([path], 4)
    assert [len(splits) for splits in plan] == [1, 1, 1, 1]
    # several batches to a split, whose edges no split meets
    assert labels_of(plan) == list(range(30_000))


def test_batches_are_slices_that_the_reader_takes(tmp_path: Path) -> None:
    path = write(tmp_path / "one.parquet", 20_000)
    values = []
    for splits in plan_splits([path], 3):
        reader = BatchReader(COLUMNS, 0)
        for batch in read_batches(splits, "features", COLUMNS):
            rows = reader.read(batch)
            assert rows.values[:, 0].tolist() == rows.labels.tolist()
            values += rows.labels.tolist()
    assert values == list(range(20_000))


def test_a_file_and_a_folder_are_found(tmp_path: Path) -> None:
    one = write(tmp_path / "folder" / "b.parquet", 2)
    other = write(tmp_path / "folder" / "deep" / "a.parquet", 2)
    assert find_files(one) == [one]
    assert sorted(find_files(str(tmp_path / "folder"))) == sorted([one, other])
    assert sorted(find_files(str(tmp_path / "folder") + "/")) == sorted([one, other])


def test_hidden_and_empty_files_are_ignored(tmp_path: Path) -> None:
    kept = write(tmp_path / "part-0.parquet", 2)
    for name in ("_SUCCESS", "_metadata", ".part-0.parquet.crc", "_temporary/0/part-1.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"not Parquet")
    (tmp_path / "empty.parquet").touch()
    assert find_files(str(tmp_path)) == [kept]


@pytest.mark.parametrize("above", ["_data", ".data", "_data/.deep"])
def test_hidden_folders_above_the_path_hide_nothing(tmp_path: Path, above: str) -> None:
    kept = write(tmp_path / above / "table" / "a.parquet", 2)
    assert find_files(str(tmp_path / above / "table")) == [kept]


@pytest.mark.parametrize("name", ["with space", "été", "100%", "a#b", "a?b", "k=v", "c:d"])
def test_paths_of_any_characters_are_read(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name / "a.parquet", 3)
    for given_path in (path, str(tmp_path / name)):
        files = find_files(given_path)
        check_schemas(files, "features", ["label"])
        assert labels_of(plan_splits(files, 2)) == [0, 1, 2]


def test_uris_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "with space" / "a.parquet", 3)
    for uri in (Path(path).as_uri(), Path(path).parent.as_uri()):
        assert labels_of(plan_splits(find_files(uri), 2)) == [0, 1, 2]


def test_missing_paths_and_empty_folders_are_told_with_their_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        find_files(str(tmp_path / "nowhere"))
    (tmp_path / "hollow").mkdir()
    with pytest.raises(FileNotFoundError, match="hollow"):
        find_files(str(tmp_path / "hollow"))


@pytest.mark.parametrize(
    ("features", "label", "kind", "words"),
    [
        ("no", "label", ValueError, ["'no'", "features, label"]),
        (["no"], "label", ValueError, ["'no'"]),
        ("features", "no", ValueError, ["'no'"]),
        ("text", "label", TypeError, ["'text'", "string"]),
        ("texts", "label", TypeError, ["'texts'", "list<"]),
        ("label", "label", TypeError, ["'label'", "double"]),
        (["features"], "label", TypeError, ["'features'", "numeric"]),
        ("features", "text", TypeError, ["'text'", "string", "numeric"]),
        ("features", "truth", TypeError, ["'truth'", "bool", "numeric"]),
    ],
)
def test_columns_are_checked_by_the_schema(tmp_path: Path, features, label, kind, words) -> None:
    columns = {
        "features": pa.array([[1.0]]),
        "label": pa.array([1.0]),
        "text": pa.array(["a"]),
        "texts": pa.array([["a"]]),
        "truth": pa.array([True]),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(kind) as raised:
        check_schemas([str(tmp_path / "a.parquet")], features, [label])
    assert not [word for word in words if word not in str(raised.value)]
