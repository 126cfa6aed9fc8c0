"""Finds the Parquet files and columns that a DataFrame from a caller reads, if it consists only of columns of Parquet
files.

A function for `foreachBatch` gets a DataFrame over an RDD that Spark has planned already. Spark's running query knows
the plan of its newest RDD, and this plan names the files. The plan belongs to the rows of the DataFrame only if the
DataFrame is made of exactly this RDD, so this is checked. What the caller has done with the rows since then is in the
DataFrame's own plan. The files of a batch are taken from the plan, so a repeated batch has the same files.

Source: Spark 4.0 ForeachBatchSink, StreamExecution.lastExecution, HadoopFsRelation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from bucketline.conf.sources.reader_choice import OF_LISTING
from bucketline.streaming.batch.files.plain_scan import FILE_SCAN, RDD_SCAN, columns_of, scanned_fields
from bucketline.streaming.tasks.parquet_fit import UnfitFileError

_FORMAT = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_LISTED = "org.apache.spark.sql.execution.datasources.InMemoryFileIndex"
_OF_LISTING = OF_LISTING | {"basepath", "__globpaths__"}
"""Options of a scan that say which files it has, and not how the files are read; Spark itself adds two of them."""


@dataclass(frozen=True, slots=True)
class FileColumns:
    """Columns of Parquet files. `declared` are the columns that Spark reads from the files. `columns` maps each column
    of the DataFrame to the name of a declared column. `rdd` returns Spark's RDD of the files, whose partitions are
    parts of files.
    """

    declared: StructType
    columns: Mapping[str, str]
    rdd: Callable[[], Any]


def given_scan(frame: Any, query: Any) -> FileColumns:
    """Returns the files and columns that a DataFrame reads. Spark has passed the DataFrame to a function for
    `foreachBatch`; `query` is Spark's own object of the running query.

    Raises UnfitFileError if it is not certain that the DataFrame consists only of columns of Parquet files.
    """
    execution = None if query is None else query.lastExecution()
    if execution is None:
        raise UnfitFileError("Spark does not tell which files the batch reads, because the query has no executed plan")
    try:
        return _scan_of(frame, execution)
    except (Py4JError, PySparkException, LookupError, TypeError, ValueError) as e:
        # The plan has another form, or this version of Spark lacks a method.
        raise UnfitFileError(f"Spark's plan of the batch is not understood: {e}".strip().splitlines()[0][:200]) from e


def _scan_of(frame: Any, execution: Any) -> FileColumns:
    plan = frame._jdf.queryExecution().executedPlan()
    chosen = columns_of(str(plan.toJSON()), RDD_SCAN)
    rdd = execution.toRdd()
    if not rdd.equals(_leaf(plan).rdd()):
        raise UnfitFileError("the DataFrame is not made of the rows of the batch")
    planned = execution.executedPlan()
    read = columns_of(str(planned.toJSON()), FILE_SCAN)
    fields = scanned_fields(read.leaf)
    _check_relation(_leaf(planned).relation())
    if len(read.places) != len(chosen.leaf["output"]):
        raise UnfitFileError("the DataFrame and the batch have different columns")
    names = [fields[read.places[place]]["name"] for place in chosen.places]
    columns = dict(zip(frame.columns, names, strict=True))
    if len(columns) < len(names):
        raise UnfitFileError("two columns of the DataFrame have the same name")
    declared: StructType = StructType.fromJson({"type": "struct", "fields": fields})
    return FileColumns(declared, columns, lambda: rdd)


def _leaf(plan: Any) -> Any:
    return plan.collectLeaves().apply(0)


def _check_relation(relation: Any) -> None:
    """Checks that a relation of Spark consists of Parquet files that Spark has listed and reads without options. Raises
    UnfitFileError for any other relation.
    """
    for part, known in ((relation.fileFormat(), _FORMAT), (relation.location(), _LISTED)):
        name = str(part.getClass().getName())
        if name != known:
            raise UnfitFileError(f"tasks do not know the class {name}, with which Spark reads the files")
    options = str(relation.options().keySet().mkString("\n"))
    unknown = sorted(key for key in options.splitlines() if key.lower() not in _OF_LISTING)
    if unknown:
        raise UnfitFileError(f"only Spark can follow the option {unknown[0]}, which is set for the files")
