"""Finds where a new stream of changes starts, and refuses streams that would give wrong rows.
Source: Paimon 2.0 AbstractDataTableScan.createStartingScanner, ContinuousFromTimestampStartingScanner,
CompactedStartingScanner, FlinkSourceBuilder.
"""

from bucketline.conf.errors import OptionError
from bucketline.conf.reader_options import CONSUMER_ID, SCAN_MODE, ChangeColumns, ReaderOptions, ScanMode
from bucketline.conf.table.changelog_options import STREAMING_READ_OVERWRITE
from bucketline.conf.table.read_options import STREAMING_READ_APPEND_OVERWRITE, VERSIONS
from bucketline.conf.table.table_settings import ReadSettings
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.entries import CommitKind
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.catalog.consumers import next_of_consumers
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.versions import Versions
from bucketline.streaming.reader.stream_position import StreamPosition

_USUAL_STARTS = ("default", "full", "latest-full")


def check_streamable(schema: TableSchema, options: ReaderOptions) -> None:
    """Checks that changes of the table can be streamed. Raises OptionError or UnsupportedTableError with the remedy."""
    _check_own_options(schema, options)
    if not schema.primary_keys:
        return
    if options.change_columns is ChangeColumns.AUTO and not options.asks_for_changes:
        raise OptionError(
            "a stream of a table with a primary key contains rows that were changed or removed: set 'read.changelog' "
            "= true to get columns that show the kind of change, or = false to leave removed rows out",
            key="read.changelog",
        )
    engine = schema.settings.merge.engine
    if not schema.settings.changelog.producer.writes_files and not engine.keeps_newest:
        raise UnsupportedTableError(
            f"the table has 'merge-engine' = '{engine.value}' and no changelog, so a stream would give the written "
            "rows and not the merged rows that the table shows; set 'changelog-producer' = 'lookup' or "
            "'full-compaction' on the table",
            option="changelog-producer",
        )


def _check_own_options(schema: TableSchema, options: ReaderOptions) -> None:
    """Refuses a table with options that are meant for streams, but that this stream would ignore. An example is
    `consumer-id` in the table's options: bucketline takes the consumer only from the reader's options. Raises
    UnsupportedTableError or OptionError, as `check_streamable` does.
    """
    overwrites = STREAMING_READ_OVERWRITE if schema.primary_keys else STREAMING_READ_APPEND_OVERWRITE
    if overwrites.get(schema.options):
        raise UnsupportedTableError(
            f"the table has '{overwrites.key}' = 'true', but streams of bucketline leave out what an "
            "overwrite changes; "
            "set the option to false on the table",
            option=overwrites.key,
        )
    said = schema.options
    has_mode = said.get(SCAN_MODE.key, "default").strip().lower() not in _USUAL_STARTS
    start = SCAN_MODE.key if has_mode else next((o.key for o in VERSIONS if o.key in said), None)
    if start is not None and SCAN_MODE.key not in options.given:
        raise OptionError(
            f"the table has '{start}' = '{said[start]}', which streams ignore: choose the start of the stream with "
            f"the reader's option '{SCAN_MODE.key}'",
            key=SCAN_MODE.key,
        )
    if CONSUMER_ID.key in said and CONSUMER_ID.key not in options.given:
        raise OptionError(
            f"the table has '{CONSUMER_ID.key}' = '{said[CONSUMER_ID.key]}', which streams ignore: set the "
            "reader's option of that name instead",
            key=CONSUMER_ID.key,
        )


def start_of(table: TableHandle, options: ReaderOptions, newest_id: int | None) -> StreamPosition:
    """Returns the position at which a stream with these options starts. `newest_id` is the id of the newest snapshot.

    Raises OptionError for a version that does not exist.
    """
    if options.consumer_id is not None and not options.ignores_progress:
        progress = next_of_consumers(table.io, table.metadata_path).get(options.consumer_id)
        if progress is not None:
            return StreamPosition(progress)
    mode = options.scan_mode
    versions = Versions(table.io, table.metadata_path)
    if mode is ScanMode.LATEST:
        return StreamPosition((newest_id or 0) + 1)
    if mode is ScanMode.FROM_TIMESTAMP:
        return StreamPosition(_first_since(table, versions, options))
    if mode in (ScanMode.FROM_SNAPSHOT, ScanMode.FROM_SNAPSHOT_FULL):
        return StreamPosition(_named(versions, options), is_full=mode is ScanMode.FROM_SNAPSHOT_FULL)
    if newest_id is None:
        return StreamPosition(1)
    if mode is ScanMode.COMPACTED_FULL:
        compacted = (s.id for s in table.snapshot_store.newest_first(newest_id) if s.commit_kind is CommitKind.COMPACT)
        return StreamPosition(next(compacted, newest_id), is_full=True)
    return StreamPosition(newest_id, is_full=True)


def _named(versions: Versions, options: ReaderOptions) -> int:
    version = options.version
    if isinstance(version, int):
        return version
    snapshot = versions.find(version, ReadSettings(dict(options.opening)))
    assert snapshot is not None
    return snapshot.id


def _first_since(table: TableHandle, versions: Versions, options: ReaderOptions) -> int:
    """Returns the id of the first snapshot that was committed at `scan.timestamp` or later."""
    time_ms = ReadSettings(dict(options.opening)).time_ms
    assert time_ms is not None
    before = versions.at_time(time_ms - 1)
    return before.id + 1 if before is not None else table.snapshot_store.earliest_id() or 1
