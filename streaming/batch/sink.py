"""TableSink: the function for Spark's foreachBatch.

The sink is a frozen value, so that it can be pickled. The state that the next batch needs is kept in this process under
the table's path (`live_table`); the steps of a batch are in `write_batch`.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.conf.option import check_texts
from bucketline.conf.secrets import MaskedOptions
from bucketline.conf.sink_options import FrameReader, refuse_unknown_options
from bucketline.conf.storage_options import check_storage_options, refuse_storage_keys
from bucketline.conf.table.table_settings import ReadSettings
from bucketline.state.store.catalog.table_handle import branch_path
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.storage.objects.object_io import requests_sent
from bucketline.state.store.storage.wrapped_io import bare
from bucketline.streaming.batch.async_compaction import finish_async, stop_async
from bucketline.streaming.batch.batch_metrics import measure
from bucketline.streaming.batch.failure import explained_in_one_line
from bucketline.streaming.batch.files.parquet_batch import ParquetReader
from bucketline.streaming.batch.finish import finish_stream
from bucketline.streaming.batch.identity import BatchIdentity, commit_user
from bucketline.streaming.batch.live_table import LiveTable, forget_table, live_table
from bucketline.streaming.batch.make_visible import hidden_rows
from bucketline.streaming.batch.progress import tell
from bucketline.streaming.batch.write_batch import Job, identify, write_batch
from bucketline.streaming.decode.decoder import Decoder
from bucketline.streaming.log import log_to_standard_error
from bucketline.streaming.tasks.read_task import ReadTask
from bucketline.streaming.tasks.spark_engine import SparkEngine
from bucketline.streaming.tasks.start_workers import session_of_program, start_workers_beside
from bucketline.streaming.tasks.write_task import WriteTask

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableSink:
    """Writes micro-batches into one table, each exactly once; use it as `foreachBatch(sink)`.

    `options` override the table's options for this job. `storage_options` (`s3.endpoint`, ...) say how to reach the
    table's storage, and are never stored. `sink_id` distinguishes two sinks of one query. `checkpoint` is the query's
    checkpoint location, needed only if Spark does not tell it. `decode` turns records into rows (the job's `decode:`).
    `source` is a name for the cluster that is read, and `cluster` the cluster's id. `allow_reprocess` allows a batch
    about which checkpoint and table disagree.

    If a Spark session is active, Spark's Python workers start in the background when the first sink is made, so that
    the first batch need not wait for them.

    Raises BucketlineError before anything is written if the table cannot take the batch, or if the checkpoint disagrees
    with the table.
    """

    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    sink_id: str | None = None
    checkpoint: str | None = None
    decode: Decoder | None = None
    source: str | None = None
    cluster: str | None = None
    allow_reprocess: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_storage_keys(self.options, "the sink's options")
        check_texts(self.options, "the sink's options")
        refuse_unknown_options(self.options)
        # The settings are replaced by objects that do not show secrets when they are printed.
        object.__setattr__(self, "options", MaskedOptions(self.options))
        object.__setattr__(self, "storage_options", check_storage_options(self.storage_options))
        if self.sink_id is not None and not self.sink_id.replace("-", "").replace("_", "").isalnum():
            raise OptionError(
                f"sink_id {self.sink_id!r} becomes part of file names: use only letters, digits, '-' and '_'",
                sink_id=self.sink_id,
            )
        decoders = () if self.decode is None else (type(self.decode),)
        start_workers_beside(session_of_program(), (ReadTask, WriteTask, *decoders))

    def __call__(self, batch: Any, batch_id: int) -> None:
        log_to_standard_error()
        with explained_in_one_line():
            self.write(batch, identify(batch, batch_id, self._job()))

    def write(self, batch: Any, identity: BatchIdentity) -> None:
        """Writes a batch with a known identity. (If Spark calls the sink, the identity is found out first.)"""
        user = identity.commit_user(self.sink_id)
        # The table is used without its catalog wrapper, because after a commit no catalog may be asked for new keys.
        store = bare(file_io_for(self.path, self.storage_options)[0])
        sent = requests_sent(store)
        table = live_table(self.path, self.options, user, self.storage_options)
        try:
            with table.batch(identity):
                job = replace(self._job(), parquet=self._parquet_reader(table))
                target, report = write_batch(table.target, identity, batch, job)
                table.keep(target)
                report = replace(report, storage_requests=requests_sent(store).since(sent).total)
                tell(report)
                measure(report, user, target.at.plan.sink.metrics)
        except BaseException:
            # After an error the remembered state of the table is not trusted: the next batch reads the table again.
            forget_table(self.path, user)
            raise

    def stop(self, query_id: str) -> None:
        """Ends the asynchronous compaction of a query that is being stopped (with `compaction` = `async`).

        The call waits up to `async-compaction.stop-timeout` for running compactions. Compactions that are not finished
        by then are given up, and their files are removed.
        """
        stop_async(self._root, commit_user(query_id, self.sink_id))

    def finish(self, spark: Any, query_id: str, is_ending: Callable[[], bool] = lambda: False) -> int:
        """Does the compactions that are still due after a query has ended. Returns the number of rows that readers do
        not see even after these compactions.

        Call this method for bounded queries; for other queries, the next start does these compactions. A failure is
        logged as a warning. With `compaction` = `async` the call waits until everything due is compacted, or until
        `is_ending` returns true; it raises CompactionFailedError if the compaction thread has failed.
        """
        user = commit_user(query_id, self.sink_id)
        finish_async(self._root, user, is_ending)
        try:
            table = live_table(self.path, self.options, user, self.storage_options)
            table.keep(finish_stream(table.target, SparkEngine(spark)))
            return hidden_rows(table.target).rows
        except BucketlineError as e:
            _LOG.warning(
                "%s: compactions that are still due have failed; the next start repeats them: %s", self.path, e
            )
            return 0

    @property
    def _root(self) -> str:
        """The folder whose metadata this sink writes: the folder of its table, or the folder of the branch that the
        options set.
        """
        return branch_path(file_io_for(self.path, self.storage_options)[1], ReadSettings(self.options))

    def _parquet_reader(self, table: LiveTable) -> ParquetReader | None:
        """Returns the reader with which tasks read DataFrames that consist only of columns of Parquet files; None if
        Spark reads all DataFrames.
        """
        reads = table.target.at.plan.sink.frame_reader is FrameReader.AUTO
        return table.frame_reader if reads else None

    def _job(self) -> Job:
        return Job(self.decode, self.checkpoint, self.source, self.cluster, self.allow_reprocess)
