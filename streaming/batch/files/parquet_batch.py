"""Finds the parts of Parquet files that belong to a batch, for tasks that read the files themselves.

Spark's own file source plans which files a batch has and how they are split, as it does for its own tasks. The
DataFrame is planned and never run. A plan that is not understood is not used; then Spark reads the files. A job has
made its DataFrame itself, so it knows the contents. A DataFrame that a caller gives to a sink is checked first
(`given_scan`).

Source: Spark 4.0 to 4.3 FilePartition, PartitionedFile.
"""

import json
import logging
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError

from bucketline.conf.job import SOURCE_READER
from bucketline.conf.option import parse_bool
from bucketline.conf.sink_options import FRAME_READER
from bucketline.streaming.batch.files.given_scan import FileColumns, given_scan
from bucketline.streaming.batch.identity import BatchIdentity, running_query
from bucketline.streaming.tasks.frame_schema import arrow_schema, frame_schema
from bucketline.streaming.tasks.parquet_files import FilePart, ParquetFiles, shares_of
from bucketline.streaming.tasks.parquet_fit import UnfitFileError
from bucketline.streaming.tasks.read_task import Frame, Records

_LOG = logging.getLogger("bucketline.job")

_TASK = "FilePartition"
_FILE = re.compile(r"path: (\S+), range: (\d+)-(\d+), partition values: (\[[^\]]*\])(?:, |$)")
_NO_PARTITION = "[empty row]"
_BEFORE, _AFTER = "Array(", ")"
_TYPES = re.compile(
    r"boolean|tinyint|smallint|int|bigint|float|double|decimal\(\d+,\d+\)|string|binary|date|timestamp|timestamp_ntz"
)
_FOR_SPARK = (
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.parquet.fieldId.read.enabled",
)
"""Settings that only Spark follows. If one of them is on, Spark must read the files."""
_CASE_SENSITIVE = "spark.sql.caseSensitive"
_REBASE = "spark.sql.parquet.datetimeRebaseModeInRead"
_CORRECTED = "CORRECTED"
_TIME_ZONE = "spark.sql.session.timeZone"
_LOG_OFFSET = "logOffset"
_LOCAL = "file"
_LOCAL_CLASS = "org.apache.hadoop.fs.LocalFileSystem"


@dataclass(slots=True)
class GivenUp:
    """Remembers why the tasks of a query do not read Parquet files themselves. `reason` says why Spark reads all files
    for the rest of this run of the query; it is None while tasks read files. Spark may also have to read a single
    DataFrame; then only the reason is logged. `said` is the reason that was logged last.
    """

    reason: str | None = None
    said: str | None = None


@dataclass(frozen=True, slots=True)
class ParquetReader:
    """Says how the tasks of a job read Parquet files themselves, instead of Spark. One object is used for one run of
    the job's query.

    - `is_required` is true if Spark must never read instead of the tasks.
    - `takes_any_frame` is true if a caller passes the DataFrames. These may hold anything, so the plan of each
      DataFrame is checked.
    - `given_up` is the only value that changes. It is set after a file that only Spark can read; then Spark reads all
      files for the rest of the run.
    """

    is_required: bool
    takes_any_frame: bool = False
    given_up: GivenUp = field(default_factory=GivenUp, compare=False)

    def give_up(self, error: UnfitFileError) -> None:
        """Lets Spark read all files for the rest of this run, and logs the reason. Raises UnfitFileError if Spark must
        not read.
        """
        if self.is_required:
            raise error.reworded(
                f"source.reader = native: tasks cannot read the files exactly as Spark does: {error.message}; nothing "
                "of the batch was written; set source.reader to auto or spark"
            ) from error
        self.given_up.reason = error.message
        setting = FRAME_READER.key if self.takes_any_frame else SOURCE_READER.key
        _LOG.warning(
            "from now on Spark reads the files instead of bucketline's tasks (%s = auto): %s", setting, error.message
        )

    def pass_over(self, error: UnfitFileError) -> None:
        """Lets Spark read one DataFrame. Logs the reason if it differs from the last logged reason."""
        if error.message != self.given_up.said:
            self.given_up.said = error.message
            _LOG.info(
                "Spark reads this DataFrame instead of bucketline's tasks (%s = auto): %s",
                FRAME_READER.key,
                error.message,
            )


def files_of(fitting: Frame, frame: Any, identity: BatchIdentity, reader: ParquetReader | None) -> Records:
    """Returns the source from which the tasks of a batch get rows: parts of Parquet files if `reader` can use the
    files, otherwise the DataFrame `fitting`. If `reader` is None, `fitting` is returned.

    `frame` is the DataFrame of the source. `fitting` has exactly the table's columns, with nulls for columns that
    `frame` lacks. If it is not certain that tasks read the same rows as Spark, and the job's options forbid that Spark
    reads the batch instead, UnfitFileError is raised.
    """
    if reader is None or reader.given_up.reason is not None:
        return fitting
    if not reader.takes_any_frame:
        try:
            return _planned(fitting, _own_scan(frame))
        except UnfitFileError as e:
            reader.give_up(e)
        return fitting
    if not reads_one_file_source(identity) or fitting.decode is not None:
        return fitting
    try:
        return _planned(fitting, given_scan(frame, running_query(frame.sparkSession, identity.query_id)))
    except UnfitFileError as e:
        reader.pass_over(e)
    return fitting


def reads_one_file_source(identity: BatchIdentity) -> bool:
    """Returns True if a batch reads one source, and this source is a file source. The offsets of the batch show this
    without a call to Spark.
    """
    ends = json.loads(identity.end_offsets or "[]")
    return len(ends) == 1 and isinstance(ends[0], dict) and _LOG_OFFSET in ends[0]


def _own_scan(frame: Any) -> FileColumns:
    """Returns the columns of a DataFrame that consists only of the source's files. Each of its columns is a column of
    the files.
    """
    return FileColumns(
        frame.schema, {name: name for name in frame.columns}, lambda: frame._jdf.queryExecution().toRdd()
    )


def _planned(fitting: Frame, scan: FileColumns) -> Records:
    spark = fitting.frame.sparkSession
    conf = spark.conf
    for key in _FOR_SPARK:
        if parse_bool(conf.get(key)):
            raise UnfitFileError(f"{key} is {conf.get(key)}")
    local = spark.sparkContext._jsc.hadoopConfiguration().get("fs.file.impl", _LOCAL_CLASS)
    if local != _LOCAL_CLASS:
        raise UnfitFileError(f"tasks read local files only if fs.file.impl is {_LOCAL_CLASS}, but it is {local}")
    zone = conf.get(_TIME_ZONE)
    for column in scan.declared:
        if not _TYPES.fullmatch(column.dataType.simpleString()) or "." in column.name:
            raise UnfitFileError(
                f"column {column.name} has the type {column.dataType.simpleString()}, which tasks do not read"
            )
    shares = shares_of(planned_parts(spark, scan))
    if not shares or not shares[0]:
        return fitting
    return ParquetFiles(
        shares,
        _in_zone(arrow_schema(scan.declared), zone),
        _in_zone(frame_schema(fitting.frame), zone),
        scan.columns,
        ignores_case=not parse_bool(conf.get(_CASE_SENSITIVE)),
        accepts_old_dates=conf.get(_REBASE).strip().upper() == _CORRECTED,
        reject_limit=fitting.reject_limit,
    )


def _in_zone(schema: pa.Schema, zone: str) -> pa.Schema:
    """Returns the schema with the session's time zone in the type of each timestamp that has a time zone. Spark passes
    columns with these types to tasks.
    """
    return pa.schema(
        f.with_type(pa.timestamp(f.type.unit, zone)) if pa.types.is_timestamp(f.type) and f.type.tz is not None else f
        for f in schema
    )


def planned_parts(spark: Any, scan: FileColumns) -> list[list[FilePart]]:
    """Returns the parts of files that Spark's file source has planned for a scan, as one list for each task.

    Raises UnfitFileError if the plan has anything but local files, and the errors of Spark's planning.
    """
    scala = spark.sparkContext._jvm.scala.runtime.ScalaRunTime
    try:
        tasks = list(scan.rdd().partitions())
        if any(str(task.getClass().getSimpleName()) != _TASK for task in tasks):
            raise UnfitFileError(f"Spark's plan contains a {tasks[0].getClass().getSimpleName()}, which is unknown")
        return parts_in([str(scala.stringOf(task.files())) for task in tasks])
    except Py4JJavaError:
        raise
    except Py4JError as e:
        # Py4J raises this error if this version of Spark lacks a method.
        raise UnfitFileError(f"Spark's plan has an unknown form: {e}".strip().splitlines()[0][:200]) from e


def parts_in(texts: list[str]) -> list[list[FilePart]]:
    """Spark prints for each task, in one text, which parts of files (byte ranges) the task reads. Parses these texts,
    and returns for each task the list of its parts. Raises UnfitFileError for a text that is not understood.
    """
    tasks = [[(m[1], int(m[2]), int(m[3])) for m in _files_in(text)] for text in texts]
    sizes: dict[str, int] = {}
    for parts in tasks:
        for path, _, end in parts:
            sizes[path] = max(end, sizes.get(path, 0))
    return [[FilePart(_local_path(path), start, end, sizes[path]) for path, start, end in parts] for parts in tasks]


def _files_in(text: str) -> list[re.Match[str]]:
    inner, matches, at = text.removeprefix(_BEFORE).removesuffix(_AFTER), list[re.Match[str]](), 0
    while at < len(inner):
        match = _FILE.match(inner, at)
        if match is None:
            raise UnfitFileError(f"Spark's plan describes a file in an unknown form: {inner[at : at + 200]}")
        if match[4] != _NO_PARTITION:
            raise UnfitFileError(f"tasks do not read partition columns from paths, but {match[1]} has some in its path")
        matches.append(match)
        at = match.end()
    return matches


def _local_path(uri: str) -> str:
    split = urlsplit(uri)
    if split.scheme != _LOCAL or split.netloc or split.query or split.fragment:
        raise UnfitFileError(f"tasks themselves read only local files, and {uri} is not a local file")
    return unquote(split.path, errors="strict")
