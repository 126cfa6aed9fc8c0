"""A caller's rows as a source for Spark's tasks: the rows of a DataFrame, or Arrow data that this process sends.

Arrow data is sent as Arrow IPC streams in a binary column, so that every type arrives unchanged.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from bucketline.conf.errors import OptionError
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.engine.engine import ShapedFrame
from bucketline.state.store.table.write import with_kinds
from bucketline.state.store.write.sealed_runs import seal, unseal
from bucketline.streaming.decode.decoder import DecodedRows, Decoder
from bucketline.streaming.tasks.frame_schema import frame_schema
from bucketline.streaming.tasks.read_task import Frame, decoded, drain
from bucketline.streaming.worker import in_worker

MOST_SENT_BYTES = 1 << 30
"""The most compressed bytes of Arrow data that this process sends to tasks. The process holds all of them in memory."""

_SENT_BYTES = 8 << 20
_SENT_DDL = "blob binary"
_SAID_DDL = "payload binary"


@dataclass(frozen=True, slots=True)
class Unsealed:
    """A decoder for rows that the caller gave as Arrow data. The rows were sent as Arrow IPC streams, in the binary
    column `blob`.
    """

    schema: pa.Schema

    def __call__(self, records: pa.Table) -> DecodedRows:
        batches = [b for blob in records["blob"] for b in unseal(blob.as_buffer())]
        return DecodedRows(pa.Table.from_batches(batches, schema=self.schema))


@dataclass(frozen=True, slots=True)
class Shaped:
    """A decoder for a DataFrame whose records are rows already: gives the columns the names `names`, and then applies
    the function `shape` to each record batch. If `shape` is None, only the names change.
    """

    names: Sequence[str]
    shape: Callable[[pa.RecordBatch], pa.RecordBatch] | None

    def __call__(self, records: pa.Table) -> DecodedRows:
        rows = records.rename_columns(list(self.names))
        if self.shape is None:
            return DecodedRows(rows)
        batches = rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
        return DecodedRows(pa.Table.from_batches([self.shape(batch) for batch in batches]))


@dataclass(frozen=True, slots=True)
class _LookTask:
    """Passes all rows of a task to `look`. Each value that `look` yields becomes a row with one binary column."""

    look: Callable[[Iterator[pa.Table]], Iterator[bytes]]
    decode: Decoder | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for payload in self.look(decoded(batches, self.decode)):
            yield pa.record_batch([pa.array([payload], pa.binary())], names=["payload"])
        drain(batches)


@dataclass(frozen=True, slots=True)
class GivenFrame:
    """The rows that a caller gave, as a DataFrame. `source` has the DataFrame, and the function `decode` that turns the
    DataFrame's record batches into the caller's rows, with the columns of `schema`.

    If `is_kept` is true, the executors keep the rows on disk when they are first read, so that they are computed only
    once.
    """

    schema: pa.Schema
    source: Frame
    is_kept: bool = False

    def each(self, look: Callable[[Iterator[pa.Table]], Iterator[bytes]]) -> list[bytes]:
        if self.is_kept:
            self.source.frame.persist(StorageLevel.DISK_ONLY)
        task = _LookTask(look, self.source.decode)
        rows = self.source.frame.mapInArrow(in_worker(task), _SAID_DDL).collect()
        return [bytes(row["payload"]) for row in rows]


@contextmanager
def given_frame(spark: Any, data: object, row_kinds: Any) -> Iterator[GivenFrame]:
    """Yields the caller's rows as a source for tasks. The rows are available until the block ends. `row_kinds` names
    the column with row kinds, or holds the row kinds of Arrow data.

    Raises SchemaMismatchError for data of an unknown class, and OptionError for Arrow data of more than
    `MOST_SENT_BYTES`.
    """
    given, shape = (data.frame, data.shape) if isinstance(data, ShapedFrame) else (data, None)
    if not isinstance(given, DataFrame):
        yield _sent(spark, given, row_kinds)
        return
    names = _with_kinds(given, row_kinds)
    # Spark interprets dots in a name, and finds two columns if names differ only in case.
    frame = given.toDF(*(f"c{i}" for i in range(len(names))))
    decode = Shaped(names, shape)
    schema = decode(frame_schema(frame).empty_table()).rows.schema
    is_kept = given.storageLevel == StorageLevel.NONE
    try:
        yield GivenFrame(schema, Frame(frame, decode, None), is_kept)
    finally:
        if is_kept:
            frame.unpersist()


def _with_kinds(frame: DataFrame, row_kinds: Any) -> tuple[str, ...]:
    """Returns the names of the columns. The column that the caller has named as `row_kinds` gets the name
    `_row_kind`.
    """
    if row_kinds is None:
        return tuple(frame.columns)
    if not isinstance(row_kinds, str) or row_kinds not in frame.columns:
        raise SchemaMismatchError(
            (
                f"the DataFrame has no column {row_kinds!r} with row kinds; set row_kinds to the name of one of the "
                "columns"
            ),
            column=row_kinds if isinstance(row_kinds, str) else ROW_KIND_COLUMN,
        )
    return tuple(ROW_KIND_COLUMN if name == row_kinds else name for name in frame.columns)


def _sent(spark: Any, data: Any, row_kinds: Any) -> GivenFrame:
    schema: pa.Schema | None = None
    blobs, size = list[bytes](), 0
    for table in with_kinds(data, row_kinds):
        schema = schema or table.schema
        rows_each = max(1, table.num_rows * _SENT_BYTES // max(1, table.nbytes))
        for first in range(0, table.num_rows, rows_each):
            blobs.append(seal(table.slice(first, rows_each)))
            size += len(blobs[-1])
            if size > MOST_SENT_BYTES:
                raise OptionError(
                    f"the rows are more than {MOST_SENT_BYTES >> 20} MiB (compressed), the most that this process "
                    "sends to Spark's tasks; pass the rows as a Spark DataFrame, which tasks read themselves",
                    key="engine",
                )
    assert schema is not None
    return GivenFrame(schema, Frame(_frame(spark, blobs), Unsealed(schema), None))


def _frame(spark: Any, blobs: list[bytes]) -> Any:
    return spark.createDataFrame([(bytearray(b),) for b in blobs], _SENT_DDL)
