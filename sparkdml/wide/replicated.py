"""Small models are scored where the rows are: every task gets all coefficients with its first row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparkdml.wide.answers import Answer, beside
from sparkdml.wide.rows import FeatureReader
from sparkdml.wide.scorer import Scorer
from sparkdml.wide.shard import Shard, from_bytes


@dataclass(frozen=True)
class ScoreHere:
    """Over rows whose last column is the list of chunks in the partition's first row, and null in all others."""

    reader: FeatureReader
    scorer: Scorer
    columns: int
    intercepts: np.ndarray
    answer: Answer
    names: list[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        coefficients: np.ndarray | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            if coefficients is None:
                coefficients = self._all_of(batch.column(batch.num_columns - 1)[0])
            rows = self.reader.read(batch)
            sums = self.scorer.partial(rows.indptr, rows.indices.astype(np.int32), rows.values, coefficients)
            yield beside(batch, self.answer(self.scorer.margins(sums, self.intercepts)), self.names)

    def _all_of(self, chunks: pa.ListScalar) -> np.ndarray:
        """The coefficients (features, C), zeros included."""
        shard = Shard.of([from_bytes(chunk.as_buffer(), self.columns) for chunk in chunks.values], self.columns)
        return shard.dense(self.reader.features)
