"""Write more digits to learn from: each image of a table, and the same moved by a pixel up, down, left and right."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import tables
from config import ConfigError, setting
from console import launch
from tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Pixels down and to the right.
MOVES = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))


@dataclass(frozen=True)
class Config:
    """Which images, and where they go."""

    source: Table = setting("a table with a column of images, row by row from the top")
    output: str = setting("a folder for Parquet files; what it held is replaced")
    pixels: str = setting("the column of images: arrays of numbers", default="pixels")
    width: int = setting("pixels of an image's row", default=28)


def check(config: Config) -> None:
    if config.width < 1:
        raise ConfigError(f"width: given {config.width}, allowed: 1 or more")


def run(spark: SparkSession, config: Config) -> None:
    from sparkdml.wide.shards import map_in_arrow

    frame = tables.read(spark, config.source)
    tables.require(frame, [config.pixels], "pixels")
    kind = frame.schema[config.pixels].dataType.typeName()
    if kind != "array":
        raise ConfigError(f"pixels: '{config.pixels}' has {kind}, allowed: arrays of numbers")
    move = partial(moved_batches, name=config.pixels, width=config.width)
    map_in_arrow(frame, move, frame.schema).write.mode("overwrite").parquet(config.output)
    written = spark.read.parquet(config.output).count()
    print(f"{written} images in {config.output}, {len(MOVES)} of each that {config.source.path} has")


def moved_batches(batches: Iterable[Any], name: str, width: int) -> Iterator[Any]:
    """Every Arrow batch, once for each of :data:`MOVES`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        at = batch.schema.get_field_index(name)
        column = batch.column(at)
        sizes = pc.list_value_length(column).unique().to_pylist()
        if len(sizes) != 1 or not sizes[0] or sizes[0] % width:
            raise ValueError(f"'{name}' must hold images of the same size and {width} pixels a row; set width")
        images = column.flatten().to_numpy().reshape(batch.num_rows, -1, width)
        ends = pa.array(np.arange(batch.num_rows + 1, dtype=np.int32) * sizes[0])
        for down, right in MOVES:
            values = pa.ListArray.from_arrays(ends, pa.array(moved(images, down, right).ravel()))
            yield batch.set_column(at, batch.schema.field(at), values.cast(column.type))


def moved(images: np.ndarray, down: int, right: int) -> np.ndarray:
    """``images`` (n, height, width), each moved by a pixel at most; what comes in is 0."""
    _, height, width = images.shape
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    return framed[:, 1 - down : 1 - down + height, 1 - right : 1 - right + width]


def main(argv: Sequence[str] | None = None) -> int:
    return launch(Config, run, __doc__, argv, check)


if __name__ == "__main__":
    sys.exit(main())
