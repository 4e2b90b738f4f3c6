"""Which columns to read, checked on the driver before any job starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkdml.data.reader import Columns, ColumnTypeError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

VECTOR_PARTS = ("type", "size", "indices", "values")


@dataclass(frozen=True)
class Pairs:
    """Features as two columns of arrays: whole numbers from 0 to ``size - 1``, and the values there."""

    indices: str
    values: str
    size: int

    def __str__(self) -> str:
        return f"{self.indices}, {self.values}"


#: A column of vectors or arrays, several columns of numbers, or a pair of columns of arrays.
Features = str | Sequence[str] | Pairs


def select(
    df: DataFrame,
    features: Features,
    label: str,
    weight: str | None,
    classes: bool,
    offset: str | None = None,
    wide: bool = False,
) -> tuple[DataFrame, Columns]:
    """The columns of ``df`` as :class:`~sparkdml.data.reader.BatchReader` wants them.

    Raises ValueError or TypeError, naming the column, what it is and what is allowed, before any Spark job.
    """
    pairs = isinstance(features, Pairs)
    expected: int | None
    if isinstance(features, Pairs):
        name, picked, expected = str(features), _pairs(df, features), features.size
    elif isinstance(features, str):
        name, picked, expected = features, _vector(df, features), _size_in_metadata(df, features)
    else:
        name, picked, expected = ", ".join(features), [_stack(df, features)], len(features)
    picked.append(_number(df, label, "label").alias("label"))
    if weight is not None:
        picked.append(_number(df, weight, "weight").alias("weight"))
    if offset is not None:
        picked.append(_number(df, offset, "offset").alias("offset"))
    values = _classes_in_metadata(df, label)
    return df.select(*picked), Columns(name, label, weight, classes, expected, values, offset, pairs, wide)


def _pairs(df: DataFrame, features: Pairs) -> list[Column]:
    if features.size < 1:
        raise ValueError(f"numFeatures={features.size} is not allowed; it must be at least 1")
    for name, whole in ((features.indices, True), (features.values, False)):
        kind = _field(df, name, "features").dataType
        element = kind.elementType if isinstance(kind, T.ArrayType) else None
        if not isinstance(element, T.IntegralType if whole else T.NumericType):
            wanted = "whole numbers (int or long)" if whole else "numbers"
            raise ColumnTypeError(f"column '{name}' is {kind.simpleString()}; it must be an array of {wanted}")
    as_type = "float" if df.schema[features.values].dataType == T.ArrayType(T.FloatType()) else "double"
    return [
        _by_name(features.indices).cast("array<bigint>").alias("indices"),
        _by_name(features.values).cast(f"array<{as_type}>").alias("values"),
    ]


def _vector(df: DataFrame, name: str) -> list[Column]:
    kind = _field(df, name, "features").dataType
    column = _by_name(name)
    if isinstance(kind, T.ArrayType) and _is_number(kind.elementType):
        element = "float" if isinstance(kind.elementType, T.FloatType) else "double"
        return [column.cast(f"array<{element}>").alias("values")]
    described = f"column '{name}' is {kind.simpleString()}"
    if type(kind).__module__ == "pyspark.mllib.linalg":
        raise ColumnTypeError(
            f"{described} of pyspark.mllib; features must be of pyspark.ml: convert with "
            f"pyspark.mllib.util.MLUtils.convertVectorColumnsToML(df, '{name}')"
        )
    if type(kind).__name__ != "VectorUDT":
        raise ColumnTypeError(
            f"{described}; features must be a vector (VectorAssembler makes one), an array of numbers, or several "
            "numeric columns in featuresCols"
        )
    parts = F.unwrap_udt(column)
    # consecutive null lists cost Arrow's writer quadratic time, so dense rows get an empty list of indices
    return [
        F.coalesce(parts["size"], F.when(column.isNotNull(), F.lit(-1))).alias("size"),
        F.coalesce(parts["indices"], F.array().cast("array<int>")).alias("indices"),
        parts["values"].alias("values"),
    ]


def _stack(df: DataFrame, names: Sequence[str]) -> Column:
    if not names:
        raise ValueError("featuresCols is empty; name at least one numeric column")
    floats = all(isinstance(_field(df, n, "features").dataType, T.FloatType) for n in names)
    columns = [_number(df, name, "features", "float" if floats else "double") for name in names]
    return F.array(*columns).alias("values")


def _number(df: DataFrame, name: str, role: str, as_type: str = "double") -> Column:
    kind = _field(df, name, role).dataType
    if not _is_number(kind):
        raise ColumnTypeError(
            f"{role} column '{name}' is {kind.simpleString()}; it must be numeric (byte to decimal): cast it, or "
            "index strings with StringIndexer"
        )
    return _by_name(name).cast(as_type)


def _field(df: DataFrame, name: str, role: str) -> T.StructField:
    for field in df.schema.fields:
        if field.name == name:
            return field
    raise ValueError(f"{role} column '{name}' is not there; the columns are {', '.join(df.columns)}")


def _by_name(name: str) -> Column:
    """The column itself, also where its name holds dots."""
    return F.col("`" + name.replace("`", "``") + "`")


def _is_number(kind: T.DataType) -> bool:
    return isinstance(kind, T.NumericType)


def _size_in_metadata(df: DataFrame, name: str) -> int | None:
    return size_in(_field(df, name, "features").metadata)


def _classes_in_metadata(df: DataFrame, label: str) -> int | None:
    """How many classes a label column from StringIndexer has, whether or not all of them have rows."""
    return classes_in(_field(df, label, "label").metadata)


def size_in(metadata: dict[str, Any]) -> int | None:
    """The number of features that a column's metadata tells."""
    size = metadata.get("ml_attr", {}).get("num_attrs")
    return int(size) if size else None


def classes_in(metadata: dict[str, Any]) -> int | None:
    """The number of classes that a column's metadata tells."""
    attributes = metadata.get("ml_attr", {})
    values = attributes.get("vals")
    count = len(values) if values else attributes.get("num_vals")
    return int(count) if count else None
