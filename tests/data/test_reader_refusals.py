"""Bad rows are refused in words that name column, value, place and remedy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from batches import COLUMNS, WEIGHTED, list_batch, vector_batch

from sparkdml.data.reader import MAX_CLASSES, BadInputError, BatchReader, Columns

NAN, INF = float("nan"), float("inf")
X = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
Y = [0.0, 1.0, 2.0]


def refusal(*batches: pa.RecordBatch, columns: Columns = WEIGHTED) -> str:
    """The message with which the last batch is refused."""
    reader = BatchReader(columns, partition=7)
    for batch in batches[:-1]:
        reader.read(batch)
    with pytest.raises(BadInputError) as raised:
        reader.read(batches[-1])
    message = str(raised.value)
    assert "partition 7" in message
    # what to change comes after what is wrong
    assert len(message.split(";", 1)[1]) > 10
    return message


def with_value(values: list, at: int, value: object) -> list:
    return [value if i == at else kept for i, kept in enumerate(values)]


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize(
    ("column", "name"),
    [("values", "my features"), ("label", "my label"), ("weight", "my weight")],
)
def test_null_in_any_column(column: str, name: str, at: int) -> None:
    fields = {"values": X, "label": Y, "weight": [1.0, 1.0, 1.0]}
    fields[column] = with_value(fields[column], at, None)
    message = refusal(list_batch(fields["values"], fields["label"], fields["weight"]))
    assert f"'{name}'" in message
    assert "null" in message
    assert f"row {at} " in message


@pytest.mark.parametrize("at", [0, 1, 2])
def test_null_inside_a_list(at: int) -> None:
    message = refusal(list_batch(with_value(X, at, [1.0, None]), Y), columns=COLUMNS)
    assert "'my features'" in message
    assert "null" in message
    assert f"row {at} " in message


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_value_that_is_not_finite_in_a_dense_row(value: float, at: int) -> None:
    message = refusal(list_batch(with_value(X, at, [0.0, value]), Y), columns=COLUMNS)
    assert "'my features'" in message
    assert str(value) in message
    assert f"row {at} " in message


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("dense_row", [False, True], ids=["sparse", "mixed"])
def test_value_that_is_not_finite_in_a_sparse_row(value: float, dense_row: bool) -> None:
    first = [1.0, 2.0, 3.0] if dense_row else (3, [], [])
    rows = [first, (3, [], []), (3, [0, 2], [1.0, value])]
    message = refusal(vector_batch(rows), columns=COLUMNS)
    assert "'my features'" in message
    assert str(value) in message
    assert "row 2 " in message


def test_infinities_that_cancel_are_found() -> None:
    assert "inf" in refusal(list_batch([[INF, -INF], *X[1:]], Y), columns=COLUMNS)


@pytest.mark.parametrize("column", ["label", "weight"])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_label_or_weight_that_is_not_finite(column: str, value: float) -> None:
    fields = {"label": Y, "weight": [1.0, 1.0, 1.0]}
    fields[column] = with_value(fields[column], 1, value)
    message = refusal(list_batch(X, fields["label"], fields["weight"]))
    assert f"'my {column}'" in message
    assert str(value) in message
    assert "row 1 " in message


@pytest.mark.parametrize("value", [-1.0, 0.5, 1.0 / 3.0, -1e-300, float(MAX_CLASSES), 1e300])
def test_label_that_is_no_class(value: float) -> None:
    message = refusal(list_batch(X, with_value(Y, 2, value)), columns=COLUMNS)
    assert "'my label'" in message
    assert f"{value:g}" in message
    assert "row 2 " in message


@pytest.mark.parametrize("value", [-1.0, -1e-300])
def test_negative_weight(value: float) -> None:
    message = refusal(list_batch(X, Y, [1.0, 0.0, value]))
    assert "'my weight'" in message
    assert f"{value:g}" in message


@pytest.mark.parametrize("odd", [[1.0], [1.0, 2.0, 3.0], []])
@pytest.mark.parametrize("at", [1, 2])
def test_row_of_another_size(odd: list[float], at: int) -> None:
    message = refusal(list_batch(with_value(X, at, odd), Y), columns=COLUMNS)
    assert "'my features'" in message
    assert f"{len(odd)} features" in message
    assert "have 2" in message
    assert f"row {at} " in message


def test_row_of_another_size_in_a_later_batch_is_counted_from_the_first() -> None:
    message = refusal(list_batch(X, Y), list_batch([X[0], [1.0]], Y[:2]), columns=COLUMNS)
    assert "1 features" in message
    assert "row 4 " in message


@pytest.mark.parametrize("odd", [(3, [0], [1.0]), [1.0, 2.0, 3.0]], ids=["sparse", "dense"])
def test_vector_of_another_size_among_sparse_ones(odd: object) -> None:
    message = refusal(vector_batch([(2, [0], [1.0]), (2, [], []), odd]), columns=COLUMNS)
    assert "3 features" in message
    assert "row 2 " in message


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_size_that_contradicts_the_metadata(sparse: bool) -> None:
    rows = [(2, [1], [1.0])] * 3 if sparse else X
    columns = Columns("my features", "my label", expected=4)
    message = refusal(vector_batch(rows), columns=columns)
    assert "'my features'" in message
    assert "2 features" in message
    assert "metadata says 4" in message


def test_rows_without_features() -> None:
    assert "no features" in refusal(list_batch([[], []], [0, 1]), columns=COLUMNS)
    assert "no features" in refusal(vector_batch([(0, [], [])]), columns=COLUMNS)


@pytest.mark.parametrize("indices", [[1, 0], [1, 1], [0, 3], [-1, 0], [0, 2**31 - 1]], ids=str)
@pytest.mark.parametrize("dense_row", [False, True], ids=["sparse", "mixed"])
def test_indices_out_of_order_or_out_of_range(indices: list[int], dense_row: bool) -> None:
    first = [1.0, 2.0, 3.0] if dense_row else (3, [0, 2], [1.0, 1.0])
    message = refusal(vector_batch([first, (3, indices, [1.0, 2.0])]), columns=COLUMNS)
    assert "'my features'" in message
    assert "indices" in message
    assert "row 1 " in message


def test_the_place_is_right_in_a_slice() -> None:
    batch = list_batch([*X, [1.0, NAN], *X], [*Y, 0.0, *Y]).slice(2, 4)
    assert "row 1 " in refusal(batch, columns=COLUMNS)
    nulls = list_batch([*X, [1.0, None], *X], [*Y, 0.0, *Y]).slice(2, 4)
    assert "row 1 " in refusal(nulls, columns=COLUMNS)


def test_every_dtype_of_float_is_checked() -> None:
    values = np.array([1.0, np.nan], np.float32)
    batch = list_batch([values.tolist()], [0], element=pa.float32())
    assert "nan" in refusal(batch, columns=COLUMNS)
