"""Paimon's options for the rows of one key: which counts as the newest, and what they become.

Source: Paimon 2.0 CoreOptions.
"""

from collections.abc import Mapping
from typing import Any

from bucketline.conf.option import Option, parse_bool, parse_enum, parse_names, parse_text
from bucketline.conf.table.choices import MergeEngine, SortOrder

SEQUENCE_FIELD: Option[tuple[str, ...]] = Option(
    "sequence.field", parse_names, (), "columns that order the rows of one key"
)
SEQUENCE_SORT_ORDER = Option(
    "sequence.field.sort-order", parse_enum(SortOrder), SortOrder.ASCENDING, "direction of sequence.field"
)
ROWKIND_FIELD = Option("rowkind.field", parse_text, None, "column that holds the row kind as +I, -U, +U or -D")
IGNORE_DELETE = Option(
    "ignore-delete",
    parse_bool,
    False,
    "drop -D and -U rows",
    ("first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"),
)
IGNORE_UPDATE_BEFORE = Option("ignore-update-before", parse_bool, False, "drop -U rows")
MERGE_ENGINE = Option(
    "merge-engine", parse_enum(MergeEngine), MergeEngine.DEDUPLICATE, "what the rows of one key become"
)
PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE = Option(
    "partial-update.remove-record-on-delete", parse_bool, False, "a -D row removes the whole row"
)
RETRACTS_OF_PARTIAL_UPDATE = (
    "a table with merge-engine partial-update takes no -D and -U rows as it is; set 'ignore-delete' = 'true' to skip "
    "them, 'partial-update.remove-record-on-delete' = 'true' to let -D remove the row, or give the columns a "
    "'fields.<sequence column>.sequence-group' to take back values"
)
REMOVE_RECORD_ON_SEQUENCE_GROUP: Option[tuple[str, ...]] = Option(
    "partial-update.remove-record-on-sequence-group", parse_names, (), "sequence columns whose -D removes the whole row"
)
AGGREGATION_REMOVE_RECORD_ON_DELETE = Option(
    "aggregation.remove-record-on-delete", parse_bool, False, "a -D row removes the whole row"
)

MERGE_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
}
"""Every option above by its key, in the order of this file."""
