"""Paimon's options that decide what a read returns: which snapshot, which branch, which changes.

These options may be set in the table, or when the table is opened. Options that would change the rows in a way that
bucketline does not support are refused.
Source: Paimon 2.0 CoreOptions, TimeTravelUtil.
"""

from collections.abc import Mapping

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, did_you_mean, parse_bool, parse_count, parse_enum, parse_int, parse_text
from bucketline.conf.storage_options import refuse_storage_keys
from bucketline.conf.table.choices import ChangeFiles
from bucketline.conf.table.index_options import READ_ENABLED


def _folder(text: str) -> str:
    return text.strip("/")


BRANCH = Option("branch", parse_text, "main", "branch to read")
SCAN_SNAPSHOT_ID: Option[int] = Option("scan.snapshot-id", parse_count, None, "id of the snapshot to read")
SCAN_TAG_NAME: Option[str] = Option("scan.tag-name", parse_text, None, "tag to read")
SCAN_TIMESTAMP_MILLIS: Option[int] = Option(
    "scan.timestamp-millis",
    parse_int,
    None,
    "the newest snapshot committed at this time or before is read; milliseconds since 1970",
)
SCAN_VERSION: Option[str] = Option(
    "scan.version", parse_text, None, "tag or snapshot id to read; if both exist, the tag is read"
)
INCREMENTAL_BETWEEN_SCAN_MODE = Option(
    "incremental-between-scan-mode",
    parse_enum(ChangeFiles),
    ChangeFiles.AUTO,
    "which files a read of changes reads; auto: changelog files if the table has them, else new data files",
)
TAG_TO_SNAPSHOT = Option(
    "incremental-between-tag-to-snapshot",
    parse_bool,
    False,
    "two tags in incremental-between stand for their snapshots, and the changes between these are read",
)
DV_MERGE_ON_READ = Option("deletion-vectors.merge-on-read", parse_bool, False, "readers see rows of level 0 too")
POSTPONE_MERGE_ON_READ = Option("postpone.merge-on-read", parse_bool, False, "readers see postponed rows too")
STREAMING_READ_APPEND_OVERWRITE = Option(
    "streaming-read-append-overwrite", parse_bool, False, "streams see the files that overwrites of append tables add"
)

SCAN_FALLBACK_BRANCH: Option[str] = Option(
    "scan.fallback-branch",
    parse_text,
    None,
    "branch that is read for partitions that the table's own branch does not have",
)
SCAN_PRIMARY_BRANCH: Option[str] = Option(
    "scan.primary-branch",
    parse_text,
    None,
    "branch that is read first; the table's own branch is read for partitions that it does not have",
)

DATA_FILE_DIRECTORY = Option("data-file.path-directory", _folder, "", "folder of the table that holds its data files")
INDEX_IN_DATA_DIRECTORY = Option(
    "index-file-in-data-file-dir", parse_bool, False, "index files are stored in the folders of their buckets"
)
ROW_TRACKING_ENABLED = Option("row-tracking.enabled", parse_bool, False, "every row has an id that never changes")
DATA_EVOLUTION_ENABLED = Option(
    "data-evolution.enabled", parse_bool, False, "the columns of a row may be in several files"
)

VERSIONS = (SCAN_SNAPSHOT_ID, SCAN_TAG_NAME, SCAN_TIMESTAMP_MILLIS, SCAN_VERSION)
"""The options that choose the version to read. At most one of them may be set."""

GIVEN_WHEN_OPENED = (
    BRANCH,
    *VERSIONS,
    INCREMENTAL_BETWEEN_SCAN_MODE,
    DV_MERGE_ON_READ,
    POSTPONE_MERGE_ON_READ,
    SCAN_FALLBACK_BRANCH,
    SCAN_PRIMARY_BRANCH,
    READ_ENABLED,
)
"""Options that may be set when a table is opened."""

READ_OPTIONS = (
    *GIVEN_WHEN_OPENED,
    DATA_FILE_DIRECTORY,
    INDEX_IN_DATA_DIRECTORY,
    ROW_TRACKING_ENABLED,
    DATA_EVOLUTION_ENABLED,
)
"""All options for reads: those in `GIVEN_WHEN_OPENED`, and those that only the table itself may have."""

_REFUSED: Mapping[str, tuple[str, ...]] = {
    "type": ("table", "materialized-table"),
    "sequence.snapshot-ordering": ("false",),
    "pk-clustering-override": ("false",),
    "query-auth.enabled": ("false",),
    "chain-table.enabled": ("false",),
    "batch-scan-mode": ("none",),
    "scan.fallback-delta-branch": (),
    "scan.fallback-snapshot-branch": (),
    "scan.timestamp": (),
    "scan.watermark": (),
    "scan.creation-time-millis": (),
    "scan.file-creation-time-millis": (),
    "scan.bucket": (),
    "scan.partitions": (),
    "incremental-between": (),
    "incremental-between-timestamp": (),
    "incremental-to-auto-tag": (),
}
"""Options that can change the rows of a read. Each has the values, in lower case, that do not change them and are
accepted.
"""

SCAN_MODE_KEY = "scan.mode"
_PLAIN_SCAN_MODES = ("default", "full", "latest-full", "latest")
_VERSION_SCAN_MODES = ("from-timestamp", "from-snapshot", "from-snapshot-full")


_OTHER_FOLDERS = frozenset(
    ("schema", "snapshot", "manifest", "index", "statistics", "tag", "branch", "consumer", "changelog", "compaction")
)


def check_data_folder(options: Mapping[str, str]) -> None:
    """Raises OptionError if the folder in the option `data-file.path-directory` cannot be used for data files."""
    folder = DATA_FILE_DIRECTORY.get(options)
    parts = folder.split("/") if folder else []
    if any(part in ("", ".", "..") or "=" in part or part.startswith("bucket-") for part in parts):
        why = (
            "must be a path below the table's folder, such as 'data' or 'files/data', and no part of it may look like "
            "the folder of a partition or bucket"
        )
        raise OptionError(f"'{DATA_FILE_DIRECTORY.key}' = {folder!r} {why}", key=DATA_FILE_DIRECTORY.key)
    if parts and parts[0] in _OTHER_FOLDERS:
        raise OptionError(
            f"'{DATA_FILE_DIRECTORY.key}' = {folder!r}: the table has other files in {parts[0]}; choose another name",
            key=DATA_FILE_DIRECTORY.key,
        )


def is_read_option(key: str) -> bool:
    """Returns True if the option decides what a read returns, so that it may be set when a table is opened."""
    return key in _REFUSED or any(option.key == key for option in GIVEN_WHEN_OPENED)


def named_branch(options: Mapping[str, str]) -> dict[str, str]:
    """Returns a dict with the option `branch` if it is set, and an empty dict otherwise. The option `branch` is the
    only read option that also applies to writes.
    """
    return {BRANCH.key: options[BRANCH.key]} if BRANCH.key in options else {}


def tags_mean_snapshots(options: Mapping[str, str]) -> bool:
    """Returns True if two tags in `incremental-between` stand for their snapshots, so that the changes between the
    snapshots are read. Raises OptionError for a value that is not valid.
    """
    return TAG_TO_SNAPSHOT.get(options)


def refused_option(options: Mapping[str, str]) -> tuple[str, str] | None:
    """Returns the first option, with its value, that would make a read return wrong rows; None if there is none."""
    for key, accepted in _REFUSED.items():
        value = options.get(key)
        if value is not None and value.strip().lower() not in accepted:
            return key, value
    mode = options.get(SCAN_MODE_KEY)
    names_one = any(option.is_set(options) for option in VERSIONS)
    accepted = (*_PLAIN_SCAN_MODES, *_VERSION_SCAN_MODES) if names_one else _PLAIN_SCAN_MODES
    return None if mode is None or mode.strip().lower() in accepted else (SCAN_MODE_KEY, mode)


def check_open_options(options: Mapping[str, str]) -> None:
    """Raises OptionError for an option that cannot be set when a table is opened; the message names the most similar
    option that can be set. Also raises the errors of `check_read_options`.
    """
    refuse_storage_keys(options, "the read options")
    known = [option.key for option in GIVEN_WHEN_OPENED]
    for key in options:
        if not is_read_option(key):
            raise OptionError(
                f"'{key}' is not a read option{did_you_mean(key, known)}; read options are {', '.join(known)}",
                key=key,
            )
    check_read_options(options)


def check_read_options(options: Mapping[str, str]) -> None:
    """Raises OptionError for a read option that is not valid, or if two options choose a snapshot."""
    for option in GIVEN_WHEN_OPENED:
        option.find(options)
    named = [option.key for option in VERSIONS if option.is_set(options)]
    if len(named) > 1:
        raise OptionError(f"'{named[0]}' and '{named[1]}' both say which snapshot to read; set one", key=named[1])
