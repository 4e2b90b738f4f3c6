"""Models on disk: pyspark's JSON metadata, and coefficients as Parquet that executors write and read.

The folder ``coefficients`` has rows ``shard int, feature long, values array<double>`` (C numbers), in at least one
file a shard; features without a row are zero. The metadata, written last, tells how many files and bytes belong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter

from sparkdml.resources.hadoop import HadoopPath, parquet_sizes
from sparkdml.saving import FORMAT, decode, encode
from sparkdml.wide.shards import InFiles, InRDD, Shards, ToFiles, map_in_arrow

_SCHEMA = "shard int, feature long, values array<double>"
#: Bytes of a row group, and most rows of a file.
_ROW_GROUP, _FILE_ROWS = 2**23, 2**24
#: Bytes of the chunks that pass through Spark on their way to files.
_CHUNK_BYTES = 2**16


class Writer(DefaultParamsWriter):
    def save(self, path: str) -> None:
        shards = self.instance._shards  # type: ignore[attr-defined]
        if isinstance(shards, InFiles) and HadoopPath(self.sparkSession.sparkContext, path).same(shards.path):
            raise ValueError(
                f"the coefficients of this model are read from {path}, so it cannot be overwritten with them; save to "
                "another path"
            )
        super().save(path)

    def saveImpl(self, path: str) -> None:
        model: Any = self.instance
        shards: Shards = model._shards
        folder = HadoopPath(self.sparkSession.sparkContext, path)
        if folder.exists():
            raise FileExistsError(f"{path} already exists; use write().overwrite().save(path) to replace it")
        by_shard = InRDD(shards.bounds, shards.columns, shards.chunks)
        chunks = by_shard.frame(self.sparkSession, _CHUNK_BYTES)
        rows = map_in_arrow(chunks, ToFiles(shards.columns), _SCHEMA)
        options = {"parquet.block.size": _ROW_GROUP, "maxRecordsPerFile": _FILE_ROWS}
        rows.write.options(**options).parquet(f"{path}/coefficients")
        sizes = parquet_sizes(folder / "coefficients")
        about = {
            "format": FORMAT,
            "bounds": shards.bounds.tolist(),
            "columns": shards.columns,
            "intercepts": model._intercepts.tolist(),
            "files": len(sizes),
            "bytes": sum(sizes),
            **model._described(),
        }
        params = {param.name: encode(value) for param, value in model._paramMap.items()}
        DefaultParamsWriter.saveMetadata(model, path, self.sparkSession, {"sparkdml": about}, paramMap=params)


class Reader(DefaultParamsReader[Any]):
    def load(self, path: str) -> Any:
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        about, cls = metadata.get("sparkdml", {}), self.cls
        if about.get("format", 0) > FORMAT:
            raise ValueError(
                f"{path} has format {about['format']}, and this version of sparkdml reads up to {FORMAT}; install a "
                "newer one"
            )
        if metadata["class"].split(".")[-1] != cls.__name__:
            raise ValueError(f"{path} holds a {metadata['class']}, not a {cls.__name__}; load it with that class")
        self._check_files(path, about)
        model: Any = cls()
        files = self.sparkSession.read.schema(_SCHEMA).parquet(f"{path}/coefficients")
        model._shards_or_none = InFiles(np.array(about["bounds"], np.int64), about["columns"], files, path)
        model._intercepts = np.array(about["intercepts"], np.float64)
        model._restore(about)
        model._resetUid(metadata["uid"])
        model._set(**{name: decode(value) for name, value in metadata["paramMap"].items()})
        model._setDefault(**metadata["defaultParamMap"])
        return model

    def _check_files(self, path: str, about: dict[str, Any]) -> None:
        sizes = parquet_sizes(HadoopPath(self.sparkSession.sparkContext, path) / "coefficients")
        if (len(sizes), sum(sizes)) != (about["files"], about["bytes"]):
            raise ValueError(
                f"{path}/coefficients has {len(sizes)} files of {sum(sizes)} bytes together, and {about['files']} of "
                f"{about['bytes']} were saved; copy the model again, whole"
            )
