"""Paimon's options for rows with the same key: which row is the newest, and how the rows are merged. Source: Paimon 2.0
CoreOptions.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from bucketline.conf.option import Option, parse_bool, parse_enum, parse_names, parse_text
from bucketline.conf.table.choices import SortOrder


class MergeEngine(Enum):
    """How rows with the same key are merged. Code outside this module uses the properties below, and does not compare
    members.

    The merge itself is in `state/lsm/merge`.
    DEDUPLICATE: the newest row is kept.
    PARTIAL_UPDATE: each column has its newest value that is not null.
    AGGREGATION: a function combines the values of each column.
    FIRST_ROW: the first row is kept.
    """

    DEDUPLICATE = "deduplicate"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATION = "aggregation"
    FIRST_ROW = "first-row"

    @property
    def keeps_newest(self) -> bool:
        """Returns True if the newest row of a key is kept unchanged. Then older rows are not needed."""
        return self is MergeEngine.DEDUPLICATE

    @property
    def keeps_first(self) -> bool:
        """Returns True for the merge engine `first-row`, which keeps the first row of a key unchanged.

        With this engine, a compaction looks up each new key before it moves the row from level 0 to a higher level, and
        readers skip level 0. Above level 0 each key has one row, which is never changed or removed.
        """
        return self is MergeEngine.FIRST_ROW

    @property
    def builds_rows(self) -> bool:
        """Returns True if the row of a key is computed from several stored rows.

        Then a stored row may be incomplete, a sum may overflow its column, and an update must contain the old row that
        it takes back.
        """
        return not (self.keeps_newest or self.keeps_first)


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
    "partial-update.remove-record-on-delete", parse_bool, False, "partial-update: a -D row removes the whole row"
)
REMOVE_RECORD_ON_SEQUENCE_GROUP: Option[tuple[str, ...]] = Option(
    "partial-update.remove-record-on-sequence-group",
    parse_names,
    (),
    "sequence columns: a -D row of their group removes the whole row",
)
AGGREGATION_REMOVE_RECORD_ON_DELETE = Option(
    "aggregation.remove-record-on-delete", parse_bool, False, "aggregation: a -D row removes the whole row"
)

MERGE_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
}
"""A mapping of all options above by key, in the order of this file."""
