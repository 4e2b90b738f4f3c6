"""What happens to a DataFrame's rows before they are read: some held back, some weighted by their class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The column that class weights are put into.
WEIGHT = "sparkdml_weight"
#: More labels than this are no classes.
MAX_CLASSES = 10_000


def hold_back(frame: DataFrame, indicator: str) -> tuple[DataFrame, DataFrame]:
    """Rows to train on, and rows where the boolean column ``indicator`` is true; null counts as false."""
    kind = next((field.dataType for field in frame.schema.fields if field.name == indicator), None)
    if not isinstance(kind, T.BooleanType):
        found = f"is {kind.simpleString()}" if kind else f"is not there; the columns are {', '.join(frame.columns)}"
        raise TypeError(f"validationIndicatorCol '{indicator}' {found}; it must be a boolean column")
    held = F.coalesce(F.col(_quoted(indicator)), F.lit(False))
    return frame.filter(~held), frame.filter(held)


def balanced(frame: DataFrame, label: str, weight: str | None) -> dict[str, float]:
    """``W / (K * W_c)`` for each label c: every class then weighs the same, and all of them W as before."""
    amount = F.col(_quoted(weight)) if weight else F.lit(1.0)
    counts = frame.groupBy(F.col(_quoted(label)).cast("double").alias("label")).agg(F.sum(amount).alias("weight"))
    rows = counts.limit(MAX_CLASSES + 1).collect()
    if len(rows) > MAX_CLASSES:
        raise ValueError(f"column '{label}' has more than {MAX_CLASSES} values; classWeight='balanced' needs classes")
    weights = {
        repr(float(row["label"])): float(row["weight"]) for row in rows if row["label"] is not None and row["weight"]
    }
    total = sum(weights.values())
    return {label: total / (len(weights) * amount) for label, amount in weights.items()}


def weigh(frame: DataFrame, label: str, weight: str | None, factors: dict[str, float]) -> DataFrame:
    """``frame`` with the column :data:`WEIGHT`: the row's weight times its class's factor (1 where none is given)."""
    column = F.col(_quoted(label)).cast("double")
    factor: Column = F.lit(1.0)
    for value, multiple in factors.items():
        factor = F.when(column == float(value), F.lit(multiple)).otherwise(factor)
    amount = F.col(_quoted(weight)).cast("double") if weight else F.lit(1.0)
    return frame.withColumn(WEIGHT, amount * factor)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
