"""The options of the Spark reader: `spark.read.format("bucketline")` and `spark.readStream.format("bucketline")`.

Spark converts the names of options to lower case, so upper and lower case are the same.
Source: Paimon 2.0 CoreOptions.StartupMode, SparkConnectorOptions; Spark's CaseInsensitiveStringMap.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.conf.option import (
    Option,
    did_you_mean,
    parse_bool,
    parse_enum,
    parse_given_text,
    parse_int,
    parse_name_part,
    parse_names,
    parse_size,
    whole_number,
)
from bucketline.conf.storage_options import STORAGE_OPTIONS, check_storage_options, is_storage_key
from bucketline.conf.table.read_options import (
    GIVEN_WHEN_OPENED,
    SCAN_MODE_KEY,
    SCAN_TIMESTAMP_MILLIS,
    VERSIONS,
    check_open_options,
)

MB = 1 << 20


class ScanMode(Enum):
    """What a stream reads first."""

    DEFAULT = "default"
    LATEST_FULL = "latest-full"
    LATEST = "latest"
    COMPACTED_FULL = "compacted-full"
    FROM_SNAPSHOT = "from-snapshot"
    FROM_SNAPSHOT_FULL = "from-snapshot-full"
    FROM_TIMESTAMP = "from-timestamp"


class ChangeColumns(Enum):
    """The values of the option `read.changelog`: whether changes are returned with columns that say how each row
    changed.
    """

    AUTO = "auto"
    TRUE = "true"
    FALSE = "false"


def parse_version(text: str) -> int | str:
    """Returns a snapshot id if the text is a number, and otherwise the text, which is the name of a tag."""
    version = parse_given_text(text)
    return whole_number(version) if version.isascii() and version.isdigit() else version


def parse_time_ms(text: str) -> int:
    """Parses a number of milliseconds since 1970, or an ISO time, and returns the time in milliseconds since 1970. An
    ISO time without an offset is in UTC.
    """
    stripped = parse_given_text(text)
    if re.fullmatch(r"-?\d+", stripped):
        return whole_number(stripped)
    try:
        at = datetime.fromisoformat(stripped)
    except ValueError as e:
        raise OptionError(
            "must be milliseconds since 1970, or a time such as '2026-01-31 12:30:00+01:00'", value=text
        ) from e
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1000)


PATH = Option("path", parse_given_text, None, "path or URI of the table; `load(path)` sets it")
COLUMNS: Option[tuple[str, ...]] = Option(
    "columns", parse_names, None, "columns to read, separated by commas; default: all"
)
FILTER = Option(
    "filter", parse_given_text, None, "SQL condition on the table's columns; only rows that meet it are read"
)
SNAPSHOT: Option[int] = Option(
    "snapshot", parse_int, None, "id of the snapshot to read; for streams the first snapshot"
)
TAG = Option("tag", parse_given_text, None, "tag to read; for streams the first snapshot")
TIMESTAMP = Option(
    "timestamp",
    parse_time_ms,
    None,
    "read the newest snapshot committed at this time or before; for streams start with the first snapshot committed "
    "from then on; milliseconds since 1970, or a time such as `2026-01-31 12:30:00`, in UTC unless it has an offset",
)
READ_OPTIMIZED = Option("read-optimized", parse_bool, False, "only files of the last level are read, without merging")
CHANGES_SINCE: Option[int | str] = Option(
    "changes-since", parse_version, None, "changes after this snapshot or tag are read; `0`: all changes"
)
CHANGES_UNTIL: Option[int | str] = Option(
    "changes-until", parse_version, None, "last snapshot or tag whose changes are read; default: the newest"
)
READ_CHANGELOG = Option(
    "read.changelog",
    parse_enum(ChangeColumns),
    ChangeColumns.AUTO,
    "true: changes have the columns `_row_kind`, `_change_type`, `_commit_version` and `_commit_timestamp`; false: "
    "changes have neither these columns nor the rows that were removed or replaced; auto: true for `changes-since` on "
    "tables with a primary key; a stream of such a table needs true or false",
)
SCAN_MODE = Option(
    SCAN_MODE_KEY,
    parse_enum(ScanMode),
    ScanMode.DEFAULT,
    "what a stream reads first. latest-full: the whole newest snapshot; compacted-full: the whole snapshot of the "
    "newest compaction; from-snapshot-full: the whole snapshot that `snapshot` or `tag` names; changes follow. "
    "latest, from-snapshot, from-timestamp: only changes. default: latest-full",
)
MAX_FILES: Option[int] = Option(
    "read.stream.maxFilesPerTrigger", parse_int, None, "largest number of files in a micro-batch; default: no limit"
)
MAX_BYTES: Option[int] = Option(
    "read.stream.maxBytesPerTrigger", parse_size, None, "a micro-batch takes no further file after this number of bytes"
)
MAX_ROWS: Option[int] = Option(
    "read.stream.maxRowsPerTrigger",
    parse_int,
    None,
    "a micro-batch takes no further file after this number of stored rows",
)
CONSUMER_ID: Option[str] = Option(
    "consumer-id",
    parse_name_part,
    None,
    "name under which a stream stores its progress in the table, so that expiry keeps the snapshots that the stream "
    "has not read",
)
CONSUMER_IGNORE_PROGRESS = Option(
    "consumer.ignore-progress",
    parse_bool,
    False,
    "a new stream starts as `scan.mode` says, even if its consumer has progress in the table",
)
SPLIT_TARGET_SIZE = Option(
    "source.split.target-size", parse_size, 128 * MB, "largest number of bytes of files that a task reads"
)
SPLIT_OPEN_COST = Option(
    "source.split.open-file-cost",
    parse_size,
    4 * MB,
    "a file counts as at least this number of bytes when tasks are planned",
)

READER_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option
    for option in tuple(globals().values())
    if isinstance(option, Option) and option not in GIVEN_WHEN_OPENED
}
"""A mapping of all options above by key, in the order of this file."""

_ONLY_BATCH = (READ_OPTIMIZED, CHANGES_SINCE, CHANGES_UNTIL)
_ONLY_STREAM = (SCAN_MODE, MAX_FILES, MAX_BYTES, MAX_ROWS, CONSUMER_ID, CONSUMER_IGNORE_PROGRESS)
_STARTS = (SNAPSHOT, TAG, TIMESTAMP, *VERSIONS)
_OPENING = {option.key.lower(): option.key for option in GIVEN_WHEN_OPENED}
_OWN = {key.lower(): key for key in READER_OPTIONS}
_STORAGE = {key.lower(): key for key in (*STORAGE_OPTIONS, "fs.s3.accessKeyId", "fs.s3.accessKeySecret")}
_STORAGE["fs.s3.securitytoken"] = "fs.s3.securityToken"


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """The options of a reader. Sizes are in bytes, and times in milliseconds since 1970. None means that an option is
    not set.

    There is one attribute for each option of the reader.
    """

    path: str
    columns: tuple[str, ...] | None
    filter: str | None
    snapshot: int | None
    tag: str | None
    time_ms: int | None
    read_optimized: bool
    changes_since: int | str | None
    changes_until: int | str | None
    change_columns: ChangeColumns
    scan_mode: ScanMode
    limits: tuple[int | None, int | None, int | None]
    """The largest number of files, bytes and rows in a micro-batch."""
    consumer_id: str | None
    ignores_progress: bool
    split_sizes: Mapping[str, str]
    """The options for the size of splits that the user has set."""
    opening: Mapping[str, str]
    """The options for `open_table`, with Paimon's names."""
    given: tuple[str, ...]
    """The names of all options that the user has set."""
    storage: Mapping[str, str] = field(repr=False)

    @property
    def version(self) -> int | str | None:
        """Returns the snapshot or tag to read."""
        return self.tag if self.snapshot is None else self.snapshot

    @property
    def asks_for_changes(self) -> bool:
        """Returns True if the reader returns changes with the columns that describe them, in a batch or a stream."""
        return self.change_columns is ChangeColumns.TRUE or any(n in CHANGE_COLUMNS for n in self.columns or ())

    @property
    def is_stream(self) -> bool:
        """Returns True if an option is set that only streams may have."""
        return any(option.key in self.given for option in _ONLY_STREAM)

    def split_bytes(self, table_options: Mapping[str, str]) -> tuple[int, int]:
        """Returns two sizes in bytes for the planning of splits: the target size of a split, and the open cost. A file
        that is smaller than the open cost counts as a file of this size.

        Options of the reader override options of the table.
        """
        options = {**table_options, **self.split_sizes}
        return SPLIT_TARGET_SIZE.get(options), SPLIT_OPEN_COST.get(options)


CHANGE_COLUMNS = ("_row_kind", "_change_type", "_commit_version", "_commit_timestamp")
"""The columns that `read.changelog` adds to the rows."""


def reader_options(options: Mapping[str, str]) -> ReaderOptions:
    """Returns the options of a reader.

    Raises OptionError for an unknown option (the message names the most similar known option), and for values that are
    not valid or exclude each other.
    """
    own: dict[str, str] = {}
    opening: dict[str, str] = {}
    storage: dict[str, str] = {}
    for key, text in options.items():
        lowered = key.lower()
        if lowered in _OWN:
            own[_OWN[lowered]] = text
        elif lowered in _OPENING:
            opening[_OPENING[lowered]] = text
        elif is_storage_key(lowered):
            storage[_STORAGE.get(lowered, lowered)] = text
        else:
            known = (*READER_OPTIONS, *_OPENING.values())
            raise OptionError(
                f"'{key}' is not an option of the reader{did_you_mean(key, known)}; its options are "
                f"{', '.join(known)}, and storage options such as 's3.endpoint'",
                key=key,
            )
    for option in (SPLIT_TARGET_SIZE, SPLIT_OPEN_COST):
        option.get(own)
    check_open_options(opening)
    _check_together({**own, **opening})
    path = PATH.find(own)
    if path is None:
        raise OptionError('the reader needs the path of a table: load("<warehouse>/<database>.db/<table>")', key="path")
    return ReaderOptions(
        path=path,
        columns=COLUMNS.find(own),
        filter=FILTER.find(own),
        snapshot=SNAPSHOT.find(own),
        tag=TAG.find(own),
        time_ms=TIMESTAMP.find(own),
        read_optimized=READ_OPTIMIZED.get(own),
        changes_since=CHANGES_SINCE.find(own),
        changes_until=CHANGES_UNTIL.find(own),
        change_columns=READ_CHANGELOG.get(own),
        scan_mode=SCAN_MODE.get(own),
        limits=(_limit(MAX_FILES, own), _limit(MAX_BYTES, own), _limit(MAX_ROWS, own)),
        consumer_id=CONSUMER_ID.find(own),
        ignores_progress=CONSUMER_IGNORE_PROGRESS.get(own),
        split_sizes={o.key: own[o.key] for o in (SPLIT_TARGET_SIZE, SPLIT_OPEN_COST) if o.is_set(own)},
        opening=_with_time(opening, TIMESTAMP.find(own)),
        given=(*own, *opening),
        storage=check_storage_options(storage),
    )


def check_batch(options: ReaderOptions) -> None:
    """Raises OptionError if a batch read has an option that only streams may have."""
    _refuse(options, _ONLY_STREAM, "is an option of streams: use spark.readStream, or remove it")
    if options.asks_for_changes and options.changes_since is None:
        raise OptionError(
            f"a batch read of a snapshot returns no changes: '{READ_CHANGELOG.key}' and the columns "
            f"{', '.join(CHANGE_COLUMNS)} need '{CHANGES_SINCE.key}', or a stream (spark.readStream)",
            key=READ_CHANGELOG.key,
        )


def check_stream(options: ReaderOptions) -> None:
    """Raises OptionError if a stream has an option of batch reads, or an option for the start of the stream that
    does not fit `scan.mode`.
    """
    _refuse(options, _ONLY_BATCH, "is an option of batch reads: use spark.read, or remove it")
    mode = options.scan_mode
    named = [o.key for o in _STARTS if o.key in options.given]
    by_time = [key for key in named if "time" in key]
    if mode is ScanMode.DEFAULT and named:
        right = ScanMode.FROM_TIMESTAMP if by_time else ScanMode.FROM_SNAPSHOT
        raise OptionError(
            f"'{named[0]}' of a stream needs '{SCAN_MODE.key}' = {right.value}, or another start mode that uses this "
            "option",
            key=SCAN_MODE.key,
        )
    if mode in (ScanMode.LATEST_FULL, ScanMode.LATEST, ScanMode.COMPACTED_FULL) and named:
        raise OptionError(
            f"'{named[0]}' and '{SCAN_MODE.key}' = {mode.value} both say where to start; set one of them", key=named[0]
        )
    if mode in (ScanMode.FROM_SNAPSHOT, ScanMode.FROM_SNAPSHOT_FULL) and (not named or by_time):
        raise OptionError(f"'{SCAN_MODE.key}' = {mode.value} needs '{SNAPSHOT.key}' or '{TAG.key}'", key=SCAN_MODE.key)
    if mode is ScanMode.FROM_TIMESTAMP and not by_time:
        raise OptionError(f"'{SCAN_MODE.key}' = {mode.value} needs '{TIMESTAMP.key}'", key=SCAN_MODE.key)
    if options.consumer_id == "":
        raise OptionError(f"option '{CONSUMER_ID.key}' must not be empty", key=CONSUMER_ID.key)
    if options.ignores_progress and options.consumer_id is None:
        raise OptionError(f"'{CONSUMER_IGNORE_PROGRESS.key}' needs '{CONSUMER_ID.key}'", key=CONSUMER_ID.key)


def _limit(option: Option[int], options: Mapping[str, str]) -> int | None:
    limit = option.find(options)
    if limit is not None and limit < 1:
        raise OptionError(f"'{option.key}' must be at least 1", key=option.key, value=limit)
    return limit


def _with_time(opening: Mapping[str, str], time_ms: int | None) -> Mapping[str, str]:
    return opening if time_ms is None else {**opening, SCAN_TIMESTAMP_MILLIS.key: str(time_ms)}


def _check_together(options: Mapping[str, str]) -> None:
    named = [option.key for option in _STARTS if option.is_set(options)]
    if len(named) > 1:
        raise OptionError(f"'{named[0]}' and '{named[1]}' both say which snapshot is meant; set one", key=named[1])
    since = CHANGES_SINCE.is_set(options)
    if CHANGES_UNTIL.is_set(options) and not since:
        raise OptionError(f"'{CHANGES_UNTIL.key}' needs '{CHANGES_SINCE.key}'", key=CHANGES_UNTIL.key)
    if since and named:
        raise OptionError(
            f"'{named[0]}' names one snapshot, '{CHANGES_SINCE.key}' asks for changes; use '{CHANGES_UNTIL.key}'",
            key=named[0],
        )
    if since and READ_OPTIMIZED.find(options):
        raise OptionError(
            f"'{READ_OPTIMIZED.key}' and '{CHANGES_SINCE.key}' exclude each other: compacted files alone do not hold "
            "all changes",
            key=READ_OPTIMIZED.key,
        )


def _refuse(options: ReaderOptions, others: tuple[Option[Any], ...], why: str) -> None:
    for option in others:
        if option.key in options.given:
            raise OptionError(f"'{option.key}' {why}", key=option.key)
