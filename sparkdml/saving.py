"""Estimators on disk: pyspark's JSON metadata, also for parameters that are vectors or matrices."""

from __future__ import annotations

from typing import Any

from pyspark.ml.linalg import DenseMatrix, DenseVector, Matrix, SparseMatrix, SparseVector, Vector
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLWritable

#: Raised with every change of what is written; older formats stay readable.
FORMAT = 1


class Saved(MLWritable, MLReadable[Any]):
    """Saves and loads an estimator by its parameters alone; nothing on disk is ever run."""

    def write(self) -> DefaultParamsWriter:
        """Writes parameters as JSON."""
        return Writer(self)  # type: ignore[arg-type]

    @classmethod
    def read(cls) -> DefaultParamsReader[Any]:
        """Reads what :meth:`write` wrote, in this version or an older one."""
        return Reader(cls)  # type: ignore[arg-type]


class Writer(DefaultParamsWriter):
    def saveImpl(self, path: str) -> None:
        params = {param.name: encode(value) for param, value in self.instance._paramMap.items()}
        DefaultParamsWriter.saveMetadata(
            self.instance, path, self.sparkSession, {"sparkdml": {"format": FORMAT}}, paramMap=params
        )


class Reader(DefaultParamsReader[Any]):
    def load(self, path: str) -> Any:
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        written = metadata.get("sparkdml", {}).get("format", 0)
        if written > FORMAT:
            raise ValueError(
                f"{path} has format {written}, and this version of sparkdml reads up to {FORMAT}; install a newer one"
            )
        cls = self.cls
        if metadata["class"].split(".")[-1] != cls.__name__:
            raise ValueError(f"{path} holds a {metadata['class']}, not a {cls.__name__}; load it with that class")
        instance: Any = cls()
        instance._resetUid(metadata["uid"])
        known = {param.name for param in instance.params}
        unknown = sorted((metadata["paramMap"].keys() | metadata["defaultParamMap"].keys()) - known)
        if unknown:
            raise ValueError(
                f"{path} has the parameters {', '.join(unknown)}, which {cls.__name__} of this version does not have; "
                "install the version that wrote it"
            )
        instance._set(**{name: decode(value) for name, value in metadata["paramMap"].items()})
        instance._setDefault(**metadata["defaultParamMap"])
        return instance


def encode(value: Any) -> Any:
    """Vectors and matrices as JSON objects; other values as they are."""
    if isinstance(value, DenseVector):
        return {"ml": "dense vector", "values": value.values.tolist()}
    if isinstance(value, SparseVector):
        indices = value.indices.tolist()
        return {"ml": "sparse vector", "size": value.size, "indices": indices, "values": value.values.tolist()}
    if not isinstance(value, Matrix):
        return value
    shape = {"rows": value.numRows, "columns": value.numCols, "transposed": value.isTransposed}
    if isinstance(value, DenseMatrix):
        return {"ml": "dense matrix", **shape, "values": value.values.tolist()}
    assert isinstance(value, SparseMatrix)
    pointers, indices = value.colPtrs.tolist(), value.rowIndices.tolist()
    return {"ml": "sparse matrix", **shape, "pointers": pointers, "indices": indices, "values": value.values.tolist()}


def decode(value: Any) -> Any:
    """The inverse of :func:`encode`."""
    if not isinstance(value, dict) or "ml" not in value:
        return value
    kind = value["ml"]
    if kind.endswith("vector"):
        return _vector(kind, value)
    shape = (value["rows"], value["columns"])
    matrix: Matrix
    if kind == "dense matrix":
        matrix = DenseMatrix(*shape, value["values"], value["transposed"])
    else:
        matrix = SparseMatrix(*shape, value["pointers"], value["indices"], value["values"], value["transposed"])
    return matrix


def _vector(kind: str, value: dict[str, Any]) -> Vector:
    if kind == "dense vector":
        return DenseVector(value["values"])
    return SparseVector(value["size"], value["indices"], value["values"])
