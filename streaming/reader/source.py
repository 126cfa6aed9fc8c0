"""`spark.read.format("bucketline")` and `spark.readStream.format("bucketline")`: tables as a Python data source.

Spark creates the source in a separate process, asks the source for the schema, and then sends the source, pickled, to
the process that plans.
Source: Spark 4.0 to 4.2 pyspark.sql.datasource, pyspark.sql.worker.{create_data_source,plan_data_source_read,
data_source_pushdown_filters}.
"""

import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from bucketline.conf.errors import OptionError
from bucketline.conf.reader_options import check_batch, check_stream, reader_options
from bucketline.state.errors import UnsupportedTableError
from bucketline.streaming.reader.batch_reader import (
    BatchRead,
    BatchReader,
    PushingReader,
    planned_schema,
    unchecked_read,
)
from bucketline.streaming.reader.data_source import (
    HAS_DATA_SOURCES,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
)
from bucketline.streaming.reader.stream_reader import stream_reader
from bucketline.streaming.worker import begin_task

FORMAT = "bucketline"

_FOUND_ALREADY = "DATA_SOURCE_ALREADY_EXISTS"

_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module of Spark's process that pushes filters down; it runs only if `spark.sql.python.filterPushdown.enabled`."""


class BucketlineSource(DataSource):  # type: ignore[misc]
    """A table as a source of Spark. Printing it shows no options, which may be secret."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: Mapping[str, str]) -> None:
        begin_task()
        self._options = reader_options(dict(options))
        self._read: BatchRead | None = None

    def schema(self) -> StructType:
        """Returns the columns of the read. Spark asks for the columns before it says whether it reads a batch or a
        stream. So both have the same columns. Only options that tell a batch from a stream can make the columns
        differ.
        """
        self._read = unchecked_read(self._options)
        return planned_schema(self._read)

    def reader(self, schema: StructType) -> DataSourceReader:
        check_batch(self._options)
        read = self._known().narrowed(schema)
        return (PushingReader if _pushes_filters() else BatchReader)(read)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        check_stream(self._options)
        return stream_reader(self._known(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise _only_reads()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise _only_reads()

    def _known(self) -> BatchRead:
        return unchecked_read(self._options) if self._read is None else self._read


def _only_reads() -> UnsupportedTableError:
    return UnsupportedTableError(
        f'format("{FORMAT}") only reads. To write a DataFrame, let bucketline.sql run INSERT INTO ... SELECT, or call '
        "Table.overwrite with a Spark engine; to write a stream, give a bucketline.TableSink to foreachBatch"
    )


def register(spark: Any) -> None:
    """Registers `format("bucketline")` with a Spark session, if Spark has not found the format by itself.

    Raises OptionError on Spark 3.5, which has no data sources in Python.
    """
    if not HAS_DATA_SOURCES:
        raise OptionError(
            f'Spark {spark.version} has no data sources in Python, which format("{FORMAT}") needs; use '
            "bucketline.read(spark, path), which returns the table as a DataFrame; streams of changes need Spark 4.0 "
            "or later",
            key="spark",
        )
    try:
        spark.dataSource.register(BucketlineSource)
    except AnalysisException as e:
        if e.getCondition() != _FOUND_ALREADY:
            raise


def _pushes_filters() -> bool:
    """Returns True if Spark started this process to push filters down.

    If Spark does not want to push filters, it refuses a reader that can take filters.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING in sys.modules or (main is not None and main.name == _PUSHING)
