"""Images, and their copies moved by a pixel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

import shift_digits

ROOT = Path(__file__).resolve().parents[2]


def test_images_move_and_what_comes_in_is_empty():
    image = np.arange(1, 7).reshape(1, 2, 3)
    assert shift_digits.moved(image, 0, 0)[0].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert shift_digits.moved(image, 1, 0)[0].tolist() == [[0, 0, 0], [1, 2, 3]]
    assert shift_digits.moved(image, -1, 0)[0].tolist() == [[4, 5, 6], [0, 0, 0]]
    assert shift_digits.moved(image, 0, 1)[0].tolist() == [[0, 1, 2], [0, 4, 5]]
    assert shift_digits.moved(image, 0, -1)[0].tolist() == [[2, 3, 0], [5, 6, 0]]


def test_batches_keep_their_other_columns_and_types():
    batch = pa.record_batch(
        {"label": pa.array([7], pa.int32()), "pixels": pa.array([[1, 2, 3, 4]], pa.list_(pa.uint8()))}
    )
    moved = list(shift_digits.moved_batches([batch], "pixels", 2))
    assert len(moved) == 5
    assert {one.schema for one in moved} == {batch.schema}
    assert moved[1].to_pylist() == [{"label": 7, "pixels": [0, 0, 1, 2]}]


@pytest.mark.parametrize("images", [[[1, 2, 3]], [[1, 2, 3, 4], [1, 2]]])
def test_what_is_no_image_is_refused(images):
    batch = pa.record_batch({"pixels": pa.array(images, pa.list_(pa.uint8()))})
    with pytest.raises(ValueError, match="'pixels'.*2 pixels a row; set width"):
        list(shift_digits.moved_batches([batch], "pixels", 2))


@pytest.mark.slow
def test_the_job_writes_five_of_each(spark, tmp_path, capsys):
    # what spark-submit runs is __main__, whose functions travel by value
    cloudpickle.register_pickle_by_value(shift_digits)
    source, output = ROOT / "data" / "digits_test.parquet", tmp_path / "moved"
    given = [f"source.path={source}", f"output={output}", "width=8"]
    assert shift_digits.main([part for text in given for part in ("--set", text)]) == 0
    assert "1800 images" in capsys.readouterr().out
    assert pq.read_table(output).schema.equals(pq.read_table(source).schema, check_metadata=False)
    assert shift_digits.main(["--set", f"source.path={source}", "--set", f"output={output}", "--set", "width=0"]) == 2
