"""`bl.read`: a table as a DataFrame, on every release of Spark. Also turns Arrow data into a DataFrame, and a DataFrame
into Arrow data.

From Spark 4.0 on the data source reads, so Spark plans the files for each action. Spark 3.5 has no data sources in
Python: the files are planned when the DataFrame is made, and a task reads each split.

Source: PySpark 3.5 DataFrame.mapInArrow, DataFrame._collect_as_arrow; PySpark 4.0 DataFrame.toArrow.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from bucketline.conf.errors import OptionError
from bucketline.conf.reader_options import (
    COLUMNS,
    FILTER,
    READ_OPTIMIZED,
    SNAPSHOT,
    check_batch,
    reader_options,
)
from bucketline.state.store.write.sealed_runs import seal, unseal
from bucketline.streaming.batch.preflight import require_classic
from bucketline.streaming.reader.batch_reader import BatchReader, planned_schema, unchecked_read
from bucketline.streaming.reader.data_source import HAS_DATA_SOURCES
from bucketline.streaming.reader.source import FORMAT, register
from bucketline.streaming.reader.spark_rows import fit, spark_arrow
from bucketline.streaming.tasks.frame_schema import frame_schema
from bucketline.streaming.worker import in_worker

_BLOB, _BLOB_DDL = "blob", "blob binary"


def read(
    spark: Any,
    path: str,
    columns: Iterable[str] | None = None,
    filter: str | None = None,
    snapshot: int | str | None = None,
    read_optimized: bool = False,
    *,
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """Returns a table as a Spark DataFrame.

    `path` is the path or URI of the table, `filter` a condition in Spark's SQL, `snapshot` an id or the name of a tag.
    With `read_optimized` only files of the last level are read, without merging, so the newest rows may be missing.
    `options` are further options of `spark.read.format("bucketline")`; `storage_options` say how to reach the storage.
    On Spark 3.5 the files are chosen when the DataFrame is made, on later releases with each action.

    Raises OptionError for options that do not fit, TableNotFoundError, SnapshotExpiredError, and UnsupportedTableError
    for a column for which Spark has no type.
    """
    named = {
        COLUMNS.key: None if columns is None else ",".join(columns),
        FILTER.key: filter,
        SNAPSHOT.key: None if snapshot is None else str(snapshot),
        READ_OPTIMIZED.key: "true" if read_optimized else None,
    }
    given = {key: text for key, text in named.items() if text is not None}
    twice = sorted(given.keys() & {key.lower() for key in options or {}})
    if twice:
        raise OptionError(f"'{twice[0]}' is set twice: as an argument and in options; set it only once", key=twice[0])
    make_known(spark)
    return read_frame(spark, path, {**(options or {}), **(storage_options or {}), **given})


def make_known(spark: Any) -> None:
    """Registers the data source in a session. It must be called once before `read_frame`. It does nothing on Spark 3.5,
    which has no data sources in Python.
    """
    if HAS_DATA_SOURCES:
        register(spark)


def read_frame(spark: Any, path: str, options: Mapping[str, str]) -> Any:
    """Returns the DataFrame of `spark.read.format("bucketline").options(**options).load(path)`, on every release of
    Spark.
    """
    if HAS_DATA_SOURCES:
        return spark.read.format(FORMAT).options(**options).load(path)
    require_classic(spark)
    reading = reader_options({**options, "path": path})
    check_batch(reading)
    reader = BatchReader(unchecked_read(reading))
    return frame_of_splits(spark, reader.partitions(), reader.read, planned_schema(reader.plan))


def frame_of_splits(
    spark: Any, splits: Sequence[Any], read: Callable[[Any], Iterator[pa.RecordBatch]], schema: StructType
) -> Any:
    """Returns the rows of all splits as a DataFrame with the columns `schema`. A split is a part of a read. Each task
    calls `read` with one split, and `read` yields the rows of the split. `splits` and `read` are pickled and sent to
    the tasks.
    """
    if not splits:
        return spark.createDataFrame([], schema)
    packed = [(bytearray(pickle.dumps(split)),) for split in splits]
    # Each split becomes a partition, so that a task reads one split.
    sent = spark.createDataFrame(spark.sparkContext.parallelize(packed, len(packed)), _BLOB_DDL)
    return sent.mapInArrow(in_worker(_ReadSplits(read)), schema)


def to_arrow(frame: Any) -> pa.Table:
    """Returns the rows of a DataFrame as an Arrow table in this process, in the types of `DataFrame.toArrow` of Spark
    4.0.
    """
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    return pa.Table.from_batches(frame._collect_as_arrow(), frame_schema(frame))


def from_arrow(spark: Any, rows: pa.Table, schema: StructType) -> Any:
    """Returns rows in the memory of this process as a DataFrame with the Spark types of `schema`."""
    if HAS_DATA_SOURCES:
        return spark.createDataFrame(rows, schema)
    if not rows.num_rows:
        return spark.createDataFrame([], schema)
    target = spark_arrow(rows.schema)
    rows = pa.Table.from_batches([fit(batch, target) for batch in rows.to_batches()])
    return spark.createDataFrame([(bytearray(seal(rows)),)], _BLOB_DDL).mapInArrow(in_worker(_unsealed), schema)


@dataclass(frozen=True, slots=True)
class _ReadSplits:
    """Unpickles the splits (parts of a read) that a task gets, and yields the rows of these splits."""

    read: Callable[[Any], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for split in batch.column(_BLOB).to_pylist():
                yield from self.read(pickle.loads(split))


def _unsealed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for sealed in batch.column(_BLOB):
            yield from unseal(sealed.as_buffer())
