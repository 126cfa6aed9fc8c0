"""The tables that this process streams into: one open table for each stream, which is kept from batch to batch.

So a batch reads only the snapshots since the last batch. The sink itself stays a frozen value; the state that it needs
between batches is found here, by table path, commit user and job options.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

from bucketline.conf.table.read_options import named_branch
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.store.catalog.table_handle import TableHandle, open_handle
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.batch.files.parquet_batch import ParquetReader
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.target import Target
from bucketline.streaming.metrics.outlets import open_outlets


class _Turn:
    """A lock for one table: a writer does one batch at a time. The lock is the same for all calls of the writer, even
    for calls with other options or another spelling of the table's path.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.last_call: tuple[str, int] | None = None


class LiveTable:
    """The target of a stream as its last batch has left it, and a lock that lets one batch in at a time.

    `frame_reader` says how tasks read DataFrames that hold nothing but Parquet files. `frame_reader` also remembers
    whether Spark has to read all files for the rest of the run.
    """

    def __init__(
        self,
        path: str,
        options: Mapping[str, str],
        user: str,
        storage: Mapping[str, str] | None = None,
        *,
        table: TableHandle | None = None,
    ) -> None:
        opened = open_handle(path, storage, named_branch(options)) if table is None else table
        at = table_at(opened, options, is_stream=True)
        at.table.io.require_publish()
        open_outlets(at.plan.sink.metrics)
        self._target = Target(at, user)
        self.frame_reader = ParquetReader(is_required=False, takes_any_frame=True)
        with _turns_lock:
            self._turn = _turns.setdefault((self._target.at.table.metadata_path, user), _Turn())

    @property
    def target(self) -> Target:
        """The target with which the next batch begins."""
        return self._target

    def keep(self, target: Target) -> None:
        """Stores the target as a batch has left it, for the next batch."""
        self._target = target

    @contextmanager
    def batch(self, identity: BatchIdentity) -> Iterator[None]:
        """Locks the table while the caller writes one batch. Raises UnsupportedTableError if another batch is being
        written, and for a second call with the same batch.
        """
        if not self._turn.lock.acquire(blocking=False):
            raise UnsupportedTableError(
                f"two calls of the sink for {self.target.at.table.path} run at the same time and have the same "
                "sink_id; "
                "give each sink its own sink_id",
                user=self.target.user,
            )
        try:
            call = None if identity.run_id is None else (identity.run_id, identity.batch_id)
            if call is not None and call == self._turn.last_call:
                raise UnsupportedTableError(
                    f"the sink was called twice for {self.target.at.table.path} in batch {identity.batch_id}, and "
                    "the second call would be taken for a replay of the first; join the data (union), or give each "
                    "sink its own sink_id",
                    user=self.target.user,
                    batch_id=identity.batch_id,
                )
            yield
            self._turn.last_call = call
        finally:
            self._turn.lock.release()


_Options = tuple[tuple[str, str], ...]
_turns: dict[tuple[str, str], _Turn] = {}
_turns_lock = Lock()
_tables: dict[tuple[str, str, _Options, _Options], LiveTable] = {}
_tables_lock = Lock()


def live_table(
    path: str,
    options: Mapping[str, str],
    user: str,
    storage: Mapping[str, str] | None = None,
    *,
    table: TableHandle | None = None,
) -> LiveTable:
    """Returns the open table of a writer. If the table is not open yet, it is opened by its path, or `table` is used if
    the caller passes it.

    Raises the errors of `open_handle` and `table_at`, and OptionError if the metrics of the table cannot be shown.
    """
    key = (path, user, tuple(sorted(options.items())), tuple(sorted((storage or {}).items())))
    with _tables_lock:
        live = _tables.get(key)
        if live is None:
            live = _tables[key] = LiveTable(path, options, user, storage, table=table)
        return live


def forget_table(path: str, user: str) -> None:
    """Forgets a table, so that the next batch reads it from storage. Called after an error."""
    with _tables_lock:
        for key in [k for k in _tables if k[:2] == (path, user)]:
            del _tables[key]
