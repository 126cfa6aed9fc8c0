"""Decides by the settings of a job whether its tasks can read the source themselves. If the tasks cannot, Spark reads
the source. Source: Spark 4.0 FileStreamOptions, ParquetOptions.
"""

from collections.abc import Mapping
from typing import Final

from bucketline.conf.errors import OptionError
from bucketline.conf.job import SOURCE_READER, ReaderChoice, RecordFormat, SourceConfig
from bucketline.conf.sources.kafka_client import kafka_client
from bucketline.conf.sources.known_options import LISTING_OPTIONS
from bucketline.conf.sources.source_options import KAFKA, PARQUET, SCHEMA, find_option

_PATH = "path"
OF_LISTING: Final = frozenset(name.lower() for name in (*LISTING_OPTIONS, SCHEMA))
"""Options that select the files of a batch, but do not change how the files are read."""


def check_reader(source: SourceConfig, options: Mapping[str, str]) -> None:
    """Raises OptionError if the reader that a job asks for cannot read its source."""
    if source.reader is not ReaderChoice.NATIVE:
        return
    why = obstacles(source, options)
    if why:
        raise not_native(why[0])


def not_native(why: str) -> OptionError:
    """Returns the error for a job that sets `source.reader` to native although its tasks cannot read the source. `why`
    is the reason.
    """
    return OptionError(f"source.reader = native: {why}; use auto or spark", key=SOURCE_READER.key)


def who_reads(source: SourceConfig, options: Mapping[str, str]) -> str:
    """Returns a text that says who reads the source of a job with these options, and why; an empty string if the job
    asks for Spark.
    """
    if source.reader is ReaderChoice.SPARK:
        return ""
    why = obstacles(source, options)
    if why:
        return f"Spark reads: {'; '.join(why)}"
    if source.format == KAFKA:
        return "tasks read, if they and the driver have confluent-kafka"
    if source.reader is ReaderChoice.NATIVE:
        return "tasks read"
    return "tasks read each file that gives the same rows as Spark; Spark reads the other files"


def obstacles(source: SourceConfig, options: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the reasons why the tasks of a job with these options cannot read the source themselves; empty if they
    can.
    """
    if source.format == PARQUET:
        return _of_files(options)
    if source.format != KAFKA:
        return (f"the source is {source.format!r}, and tasks can read only Kafka and Parquet files themselves",)
    if source.decode is RecordFormat.NONE:
        return ("without source.decode, Spark itself computes the table's rows from the records",)
    return kafka_client(options, source.token_provider).obstacles


def _of_files(options: Mapping[str, str]) -> tuple[str, ...]:
    path = find_option(options, _PATH) or ""
    scheme = path.partition(":")[0] if ":" in path.partition("/")[0] else "file"
    elsewhere = (
        [] if scheme == "file" else [f"tasks can read only local files themselves, but the path begins with {scheme}:"]
    )
    unknown = [key for key in options if key.lower() not in OF_LISTING]
    return (*elsewhere, *(f"source.options.{key} says how Spark reads the files" for key in sorted(unknown)))
