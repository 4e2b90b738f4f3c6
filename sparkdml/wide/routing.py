"""Rows travel to the shards they need, and sums travel back: what each stage does within its tasks.

1. :class:`Pack` sends every batch of rows on as it is, and to each shard that it touches the part of its features that
   this shard has. 2. :class:`Score`, where the shards are, answers each part with sums for its rows. 3. :class:`Finish`
   adds the sums of a batch and puts the answers beside its rows. Coefficients stay where they are, and rows are read
   once: were they read again, rows from a shuffle could come in another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from sparkdml.wide import records
from sparkdml.wide.answers import Answer, beside
from sparkdml.wide.requests import answer, digest_of, split
from sparkdml.wide.rows import FeatureReader, concatenate
from sparkdml.wide.scorer import Scorer
from sparkdml.wide.shard import Chunk, Shard, from_bytes

#: Rows that travel together: more of them share the cost of a request, fewer bound memory.
_GROUP_ROWS, _GROUP_BYTES = 2**14, 2**24


@dataclass(frozen=True)
class Pack:
    """The first stage; ``bounds`` int64 (S + 1,) and ``keys`` (S,) are of shards."""

    reader: FeatureReader
    bounds: np.ndarray
    keys: np.ndarray
    piece_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition = TaskContext.get().partitionId()  # type: ignore[union-attr]
        writer = records.Writer(self.keys, self.piece_bytes)
        for number, group in enumerate(_grouped(batches)):
            rows = concatenate([self.reader.read(batch) for batch in group])
            identity = partition << 32 | number
            digest = digest_of(rows)
            requests = list(split(rows, self.bounds))
            header = np.array([digest, len(requests), len(rows.indptr) - 1], np.int64).tobytes()
            place = (partition + number) % len(self.keys)
            writer.add(place, records.ROWS, identity, header + _to_ipc(group))
            for shard, payload in requests:
                writer.add(shard, records.REQUEST, identity, np.int64(digest).tobytes() + payload)
            if writer.full:
                yield from writer.flush()
        yield from writer.flush()


@dataclass(frozen=True)
class Score:
    """The second stage, over records sorted by shard and kind; ``columns`` is C, numbers a feature."""

    scorer: Scorer
    columns: int
    keys: np.ndarray
    piece_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = records.Writer(self.keys, self.piece_bytes)
        joiner, shard = records.Joiner(), _AtShard(self.scorer, self.columns)
        for batch in batches:
            passing = pa.array(batch.column("kind").to_numpy() == records.ROWS)
            if pc.any(passing).as_py():
                yield batch.filter(passing)
            for record in joiner.feed(batch.filter(pc.invert(passing))):
                shard.take(record, writer)
            if writer.full:
                yield from writer.flush()
        for record in joiner.rest():
            shard.take(record, writer)
        yield from writer.flush()


class _AtShard:
    """Coefficients of one shard after another, each followed by the requests for it."""

    def __init__(self, scorer: Scorer, columns: int) -> None:
        self._scorer, self._columns = scorer, columns
        self._number, self._chunks = -1, list[Chunk]()
        self._shard: Shard | None = None

    def take(self, record: records.Record, writer: records.Writer) -> None:
        """Keeps coefficients, answers requests."""
        if record.shard != self._number:
            self._number, self._chunks, self._shard = record.shard, [], None
        if record.kind == records.COEFFICIENTS:
            assert self._shard is None
            self._chunks.append(from_bytes(record.payload, self._columns))
            return
        if self._shard is None:
            self._shard, self._chunks = Shard.of(self._chunks, self._columns), []
        reply = answer(record.payload, self._shard, self._scorer)
        writer.add(record.shard, records.SUMS, record.batch, reply)


@dataclass(frozen=True)
class Finish:
    """The third stage, over records sorted by batch and kind."""

    scorer: Scorer
    intercepts: np.ndarray
    answer: Answer
    names: list[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: _Waiting | None = None
        for record in records.read(batches):
            if waiting is None or record.batch != waiting.batch:
                if waiting is not None:
                    yield from self._answered(waiting)
                waiting = _Waiting(record, self.scorer.sums)
            else:
                waiting.add(record.payload)
        if waiting is not None:
            yield from self._answered(waiting)

    def _answered(self, waiting: _Waiting) -> Iterator[pa.RecordBatch]:
        waiting.check()
        columns = self.answer(self.scorer.margins(waiting.sums, self.intercepts))
        start = 0
        for batch in pa.ipc.open_stream(waiting.rows):
            part = slice(start, start + batch.num_rows)
            yield beside(batch, [column[part] for column in columns], self.names)
            start += batch.num_rows


class _Waiting:
    """A batch of rows whose shards have not all answered."""

    def __init__(self, record: records.Record, sums: int) -> None:
        self.batch, self._answers = record.batch, 0
        if record.kind != records.ROWS:
            _refuse(self.batch)
        self._digest, self._expected, rows = np.frombuffer(record.payload, np.int64, 3).tolist()
        self.rows = pa.py_buffer(record.payload)[24:]
        self.sums = np.zeros((rows, sums))

    def add(self, payload: bytearray) -> None:
        digest, count = np.frombuffer(payload, np.int64, 2).tolist()
        if digest != self._digest:
            _refuse(self.batch)
        width = self.sums.shape[1]
        sums = np.frombuffer(payload, np.float64, count * width, 16).reshape(count, width)
        self.sums[np.frombuffer(payload, np.int32, count, 16 + sums.nbytes)] += sums
        self._answers += 1

    def check(self) -> None:
        if self._answers != self._expected:
            _refuse(self.batch)


def _refuse(batch: int) -> None:
    raise RuntimeError(
        f"batch {batch & 0xFFFFFFFF} of partition {batch >> 32} had other rows when its task was repeated, so sums and "
        "rows do not belong together; give rows a fixed order before transform, or checkpoint them"
    )


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            group.append(batch)
        if sum(b.num_rows for b in group) >= _GROUP_ROWS or sum(b.nbytes for b in group) >= _GROUP_BYTES:
            yield group
            group = []
    if group:
        yield group


def _to_ipc(group: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, group[0].schema) as stream:
        for batch in group:
            stream.write_batch(batch)
    return sink.getvalue().to_pybytes()
