"""Chooses who reads the Kafka records or Parquet files of a job, Spark's source or bucketline's tasks, and logs the
choice. The choice is made once for each run of the job.

Only a task can find out whether tasks can read, and Spark takes seconds to start the first tasks. So tasks are started
while the query starts, which takes seconds too, and the first batch finds running workers. The tasks are started even
if there is nothing to find out.
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from bucketline.conf.job import ReaderChoice, SourceConfig
from bucketline.conf.sources.kafka_client import kafka_client
from bucketline.conf.sources.reader_choice import not_native, obstacles
from bucketline.conf.sources.source_options import KAFKA, PARQUET, find_option
from bucketline.streaming.bad_records.place import BadRecordsPlace
from bucketline.streaming.batch.files.parquet_batch import ParquetReader
from bucketline.streaming.batch.inputs.kafka_batch import KafkaReader
from bucketline.streaming.batch.inputs.topic_watch import TopicWatch
from bucketline.streaming.batch.live_table import LiveTable
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.batch.write_batch import Job
from bucketline.streaming.job.background import InThread
from bucketline.streaming.tasks.first_tasks import LOADED, client_error, try_tasks
from bucketline.streaming.tasks.start_workers import start_workers

_LOG = logging.getLogger("bucketline.job")
_SPLITS = ("minPartitions", "maxRecordsPerPartition")
_TOKENS = "spark.kafka.clusters."

ChosenReader = Callable[[], KafkaReader | None]
"""A function that returns how tasks read Kafka themselves; None if Spark reads. A call waits until the choice is made,
and raises OptionError if tasks must read and cannot.
"""


@dataclass(frozen=True, slots=True)
class JobSink(TableSink):
    """The sink of a job. The job has created the stream itself, so the records of the stream are known to be unchanged
    records of the source. Therefore tasks may read these records themselves, and may divide the records among tasks in
    another way than Spark does.

    `joins_partitions`, `topics`, `most_records` and `bad_records` mean the same as in `Job`.
    """

    kafka: ChosenReader | None = None
    joins_partitions: bool = False
    parquet: ParquetReader | None = None
    topics: TopicWatch | None = None
    most_records: int | None = None
    bad_records: BadRecordsPlace | None = None

    def stop(self, query_id: str) -> None:
        """Ends the asynchronous compaction, like `TableSink.stop`, and closes the client that asked for the ids of
        topics.
        """
        TableSink.stop(self, query_id)
        if self.topics is not None:
            self.topics.ask.close()

    def _parquet_reader(self, table: LiveTable) -> ParquetReader | None:
        """Returns how tasks read the Parquet files of the job; None if Spark reads the files. The choice was made when
        the job started, so it does not depend on the DataFrame of the batch.
        """
        return self.parquet

    def _job(self) -> Job:
        return replace(
            TableSink._job(self),
            kafka=None if self.kafka is None else self.kafka(),
            joins_partitions=self.joins_partitions,
            topics=self.topics,
            most_records=self.most_records,
            bad_records=self.bad_records,
        )


def splits(options: Mapping[str, str]) -> bool:
    """Returns True if the options of a Kafka source set how Spark divides a batch among tasks, for example by
    `minPartitions`.
    """
    return any(find_option(options, name) is not None for name in _SPLITS)


def choose_reader(
    spark: Any, source: SourceConfig, options: Mapping[str, str], in_thread: InThread
) -> ChosenReader | None:
    """Starts Python workers. Returns a function that the first batch calls to get the reader with which tasks read
    Kafka themselves; None if Spark reads.

    Raises OptionError if `source.reader` is `native` and tasks are known to be unable to read.
    """
    is_choice = source.format == KAFKA and source.reader is not ReaderChoice.SPARK
    why = obstacles(source, options) or _obstacles_here(spark, source, options) if is_choice else ()
    if why:
        _settle(source, *why)
    if why or not is_choice:
        in_thread(lambda: start_workers(spark, LOADED))
        return None
    settings = kafka_client(options, source.token_provider).settings
    reader = KafkaReader(
        settings,
        is_required=source.reader is ReaderChoice.NATIVE,
        keeps_split=splits(options),
    )
    return _Tried(reader, source, in_thread(lambda: try_tasks(spark, settings)))


def choose_file_reader(source: SourceConfig, options: Mapping[str, str]) -> ParquetReader | None:
    """Returns the settings with which tasks read the Parquet files of a source themselves. Returns None if Spark reads
    the files, or if the source has another format.

    Raises OptionError if `source.reader` is `native` and the options do not allow that tasks read the files.
    """
    if source.format != PARQUET or source.reader is ReaderChoice.SPARK:
        return None
    why = obstacles(source, options)
    _settle(source, *why)
    return None if why else ParquetReader(source.reader is ReaderChoice.NATIVE)


class _Tried:
    """A function that returns how tasks read Kafka. A call waits for the tasks that try to read, and returns the reader
    if they succeeded; otherwise None.
    """

    def __init__(self, reader: KafkaReader, source: SourceConfig, trial: "Future[str]") -> None:
        self._source, self._trial = source, trial
        self._reader: KafkaReader | None = reader
        self._is_settled = False

    def __call__(self) -> KafkaReader | None:
        why = self._trial.result()
        if not self._is_settled:
            _settle(self._source, *([why] if why else []))
            self._reader = None if why else self._reader
            self._is_settled = True
        return self._reader


def _settle(source: SourceConfig, *why: str) -> None:
    """Logs who reads the source. `why` are the reasons for which tasks cannot read the source: with reasons Spark
    reads, without reasons bucketline's tasks read. Raises OptionError if there are reasons, but the job requires that
    tasks read.
    """
    source_name = "Kafka" if source.format == KAFKA else "the files"
    if not why:
        _LOG.info("tasks read %s themselves (source.reader = %s)", source_name, source.reader.value)
    elif source.reader is ReaderChoice.NATIVE:
        raise not_native(why[0])
    else:
        _LOG.info("Spark reads %s (source.reader = auto): %s", source_name, "; ".join(why))


def _obstacles_here(spark: Any, source: SourceConfig, options: Mapping[str, str]) -> tuple[str, ...]:
    """Returns reasons why tasks of this application cannot read Kafka, although the options allow it. Only reasons that
    this process can find are returned.
    """
    tokens = [key for key, _ in spark.sparkContext.getConf().getAll() if key.startswith(_TOKENS)]
    if tokens:
        return (f"{tokens[0]} makes Spark log in with delegation tokens",)
    obstacle = client_error(kafka_client(options, source.token_provider).settings)
    return (obstacle,) if obstacle else ()
