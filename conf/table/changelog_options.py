"""Paimon's options for changelogs and deletion vectors.

Source: Paimon 2.0 CoreOptions, SchemaValidation, LookupStrategy.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, parse_bool, parse_enum, parse_name_part, parse_names, parse_size, parse_text
from bucketline.conf.table.choices import FileFormat
from bucketline.conf.table.compaction_options import FULL_COMPACTION_DELTA_COMMITS
from bucketline.conf.table.file_options import (
    DATA_FILE_PREFIX,
    FILE_COMPRESSION,
    FILE_COMPRESSION_PER_LEVEL,
    FILE_FORMAT,
    FILE_FORMAT_PER_LEVEL,
    METADATA_STATS_MODE,
    METADATA_STATS_MODE_PER_LEVEL,
    check_file_options,
)
from bucketline.conf.table.index_options import PREFIX
from bucketline.conf.table.merge_options import MERGE_ENGINE, SEQUENCE_FIELD
from bucketline.conf.table.stats_mode import StatsMode, parse_stats_mode


class ChangelogProducer(Enum):
    """Where changelog files come from. Code outside this module uses the properties below, and does not compare
    members.

    NONE: there are no changelog files; the new data files of a write are its changes.
    INPUT: a write logs all its rows unchanged.
    FULL_COMPACTION: a full compaction logs what it changes on the last level.
    LOOKUP: a compaction that moves rows from level 0 to higher levels logs what it changes.
    """

    NONE = "none"
    INPUT = "input"
    FULL_COMPACTION = "full-compaction"
    LOOKUP = "lookup"

    @property
    def writes_files(self) -> bool:
        """Returns True if the table has changelog files."""
        return self is not ChangelogProducer.NONE

    @property
    def logs_input(self) -> bool:
        """Returns True if a write logs all its rows unchanged. Then the write must not merge rows before it logs
        them, and an update in the input must also contain the old row.
        """
        return self is ChangelogProducer.INPUT

    @property
    def logs_full_compactions(self) -> bool:
        """Returns True if full compactions log how they change the rows of the last level."""
        return self is ChangelogProducer.FULL_COMPACTION

    @property
    def logs_lookups(self) -> bool:
        """Returns True if a compaction looks up the older row of each key on level 0, and logs how the row of the key
        changes.
        """
        return self is ChangelogProducer.LOOKUP

    @property
    def logs_compactions(self) -> bool:
        """Returns True if compactions log the changes of rows. Then the writes of these rows log nothing."""
        return self.logs_full_compactions or self.logs_lookups


CHANGELOG_PRODUCER = Option(
    "changelog-producer",
    parse_enum(ChangelogProducer),
    ChangelogProducer.NONE,
    "which operation writes changelog files",
)
ROW_DEDUPLICATE = Option(
    "changelog-producer.row-deduplicate", parse_bool, False, "updates that change nothing are not logged"
)
ROW_DEDUPLICATE_IGNORE_FIELDS: Option[tuple[str, ...]] = Option(
    "changelog-producer.row-deduplicate-ignore-fields", parse_names, (), "columns whose changes are not logged"
)
CHANGELOG_FILE_PREFIX = Option("changelog-file.prefix", parse_name_part, "changelog-", "prefix of changelog file names")
CHANGELOG_FILE_FORMAT: Option[FileFormat] = Option(
    "changelog-file.format",
    parse_enum(FileFormat),
    None,
    "format of changelog files; default: the format of data files",
)
CHANGELOG_FILE_COMPRESSION: Option[str] = Option(
    "changelog-file.compression", parse_text, None, "codec of changelog files; default: the codec of data files"
)
CHANGELOG_FILE_STATS_MODE: Option[StatsMode] = Option(
    "changelog-file.stats-mode",
    parse_stats_mode,
    None,
    "statistics mode of changelog files; default: the mode of data files",
)
DELETION_VECTORS = Option(
    "deletion-vectors.enabled", parse_bool, False, "deletion vectors mark rows that were replaced"
)
DELETION_VECTORS_BITMAP64 = Option(
    "deletion-vectors.bitmap64", parse_bool, False, "deletion vectors have positions of 64 bits"
)
DELETION_VECTORS_MODIFIABLE = Option(
    "deletion-vectors.modifiable", parse_bool, False, "deletion-vectors.enabled may be changed in a table that has rows"
)
DELETION_VECTOR_INDEX_TARGET = Option(
    "deletion-vector.index-file.target-size",
    parse_size,
    2 << 20,
    "largest size in bytes of the deletion vectors in one index file of an append table without buckets",
)
FORCE_LOOKUP = Option(
    "force-lookup", parse_bool, False, "compactions look up older values even if the changelog does not need it"
)
STREAMING_READ_OVERWRITE = Option(
    "streaming-read-overwrite", parse_bool, False, "streaming readers see the changes of an overwrite"
)

CHANGELOG_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
}
"""A mapping of all options above by key, in the order of this file."""


def changelog_file_options(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options with which a table's changelog files are written. These options have the same keys as the
    options of data files. Changelog files have no file indexes.
    """
    of_changelog = {key: value for key, value in options.items() if not key.startswith(PREFIX)}
    of_changelog[DATA_FILE_PREFIX.key] = CHANGELOG_FILE_PREFIX.get(options)
    _take_over(of_changelog, CHANGELOG_FILE_FORMAT, FILE_FORMAT, FILE_FORMAT_PER_LEVEL)
    _take_over(of_changelog, CHANGELOG_FILE_COMPRESSION, FILE_COMPRESSION, FILE_COMPRESSION_PER_LEVEL)
    _take_over(of_changelog, CHANGELOG_FILE_STATS_MODE, METADATA_STATS_MODE, METADATA_STATS_MODE_PER_LEVEL)
    return of_changelog


def _take_over(options: dict[str, str], changelog: Option[Any], own: Option[Any], per_level: Option[Any]) -> None:
    """Gives the option `own` of data files the value of its counterpart for changelog files, `changelog`, and removes
    the option `per_level`. Does nothing if the counterpart is not set.
    """
    value = changelog.find(options)
    if value is not None:
        options[own.key] = changelog.text_of(value)
        options.pop(per_level.key, None)


def check_changelog_options(
    options: Mapping[str, str], primary_key: Sequence[str], columns: Sequence[str] | None = None
) -> None:
    """Raises OptionError, which names one of the options, if the options for changelogs contradict each other.
    `columns` are the table's columns, if they are known.

    Source: Paimon 2.0 SchemaValidation, FlinkSink. Messages that Paimon's users know are the same as Paimon's.
    """
    clash = _clash(options, primary_key)
    if clash is not None:
        raise OptionError(clash[1], key=clash[0])
    try:
        check_file_options(changelog_file_options(options))
    except OptionError as e:
        raise e.reworded(f"for changelog files: {e.message}") from e
    for name in ROW_DEDUPLICATE_IGNORE_FIELDS.get(options) if columns is not None else ():
        if columns is not None and name not in columns:
            raise OptionError(
                f"'{ROW_DEDUPLICATE_IGNORE_FIELDS.key}' names {name!r}, which is not a column of the table",
                key=ROW_DEDUPLICATE_IGNORE_FIELDS.key,
                column=name,
            )


def _clash(options: Mapping[str, str], primary_key: Sequence[str]) -> tuple[str, str] | None:
    """Returns the first contradiction between the options: the key of an option and the reason. Returns None if there
    is no contradiction.
    """
    producer = CHANGELOG_PRODUCER.get(options)
    engine = MERGE_ENGINE.get(options)
    has_vectors = DELETION_VECTORS.get(options)
    if not primary_key and producer.writes_files:
        return CHANGELOG_PRODUCER.key, (
            "Can not set changelog-producer on table without primary keys, please define primary keys."
        )
    if engine.keeps_first and producer.writes_files and not producer.logs_lookups:
        return CHANGELOG_PRODUCER.key, ("Only support 'none' and 'lookup' changelog-producer on FIRST_ROW merge engine")
    if engine.keeps_first and SEQUENCE_FIELD.get(options):
        return SEQUENCE_FIELD.key, "Do not support using sequence field on FIRST_ROW merge engine."
    if has_vectors and engine.keeps_first:
        return DELETION_VECTORS.key, (
            "First row merge engine does not need deletion vectors because there is no deletion of old data in this "
            "merge engine."
        )
    if has_vectors and producer.logs_full_compactions:
        return DELETION_VECTORS.key, (
            "Deletion vectors mode is only supported for NONE/INPUT/LOOKUP changelog producer now."
        )
    if producer.logs_lookups and FULL_COMPACTION_DELTA_COMMITS.is_set(options):
        return FULL_COMPACTION_DELTA_COMMITS.key, (
            "'full-compaction.delta-commits' cannot be used with 'changelog-producer' = 'lookup', which logs the "
            "changes "
            "of a batch at once; remove one of the two"
        )
    if not primary_key and STREAMING_READ_OVERWRITE.get(options):
        return STREAMING_READ_OVERWRITE.key, (
            "Doesn't support streaming read the changes from overwrite when the primary keys are not defined. Please "
            "use streaming-read-append-overwrite to enable the streaming read overwrite commit for append table."
        )
    if producer.logs_compactions and STREAMING_READ_OVERWRITE.get(options):
        return STREAMING_READ_OVERWRITE.key, (
            "Cannot set streaming-read-overwrite to true when changelog producer is full-compaction or lookup because "
            "it will read duplicated changes."
        )
    if producer.logs_full_compactions and FORCE_LOOKUP.get(options):
        return FORCE_LOOKUP.key, (
            "'force-lookup' cannot be used with 'changelog-producer' = 'full-compaction'; remove one of the two"
        )
    return None
