"""The folders and files that jobs read and write, checked before the work is done."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from config import ConfigError, setting
from tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Output:
    """Where a job writes."""

    path: str | None = setting("a folder", default=None)
    overwrite: bool = setting("replace what is there", default=False)


def check_input(table: Table, key: str) -> None:
    """Refuse a local path that does not exist, without Spark."""
    if table.format == "table" or not is_local(table.path):
        return
    path = local_path(table.path)
    if not os.path.exists(path) and not glob.glob(path):
        raise ConfigError(f"{key}.path: given {table.path!r}, no such file or folder here")


def check_output(output: Output, path: str, spark: SparkSession | None = None) -> None:
    """Refuse to write over something, before the work is done: local paths without Spark."""
    if output.overwrite:
        return
    if spark is None:
        exists = is_local(path) and os.path.exists(local_path(path))
    else:
        place = spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
        exists = place.getFileSystem(spark._jsc.hadoopConfiguration()).exists(place)
    if exists:
        raise ConfigError(f"output.path: given {path!r}, which exists; set output.overwrite=true or another path")


def is_local(path: str) -> bool:
    if ":" in path:
        return path.startswith("file:")
    return not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & os.environ.keys()


def is_plain_parquet(table: Table) -> bool:
    """Whether the rows are in local Parquet files that need no option of Spark's to be read."""
    plain = table.format == "parquet" and not table.options and is_local(table.path)
    return plain and os.path.exists(local_path(table.path)) and not _is_partitioned(local_path(table.path))


def _is_partitioned(path: str) -> bool:
    """Whether folders such as ``year=2024`` hold the values of a column, which only Spark reads."""
    return os.path.isdir(path) and any("=" in name for name in os.listdir(path))


def local_path(path: str) -> str:
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path
