"""The options that only the table may set, and not a job.

Source: Paimon 2.0 CoreOptions.IMMUTABLE_OPTIONS. The list in this module is longer: in Paimon, a job can set some
options that change the order of rows; here only the table may set them.
"""

from collections.abc import Mapping

from bucketline.conf.durations import check_given_durations
from bucketline.conf.errors import OptionError
from bucketline.conf.table.changelog_options import ROW_DEDUPLICATE_IGNORE_FIELDS
from bucketline.conf.table.expiry_options import RECORD_LEVEL_TIME_FIELD
from bucketline.conf.table.merge_options import REMOVE_RECORD_ON_SEQUENCE_GROUP, ROWKIND_FIELD, SEQUENCE_FIELD
from bucketline.conf.table.table_options import BUCKET_KEY, HONOURED

FIXED_BY_TABLE = frozenset(
    {
        "type",
        "primary-key",
        "partition",
        "bucket",
        "bucket-key",
        "bucket-function.type",
        "merge-engine",
        "sequence.field",
        "sequence.field.sort-order",
        "sequence.snapshot-ordering",
        "rowkind.field",
        "ignore-delete",
        "first-row.ignore-delete",
        "deduplicate.ignore-delete",
        "partial-update.ignore-delete",
        "ignore-update-before",
        "aggregation.remove-record-on-delete",
        "partial-update.remove-record-on-delete",
        "partial-update.remove-record-on-sequence-group",
        "partition.default-name",
        "partition.legacy-name",
        "deletion-vectors.enabled",
        "dynamic-bucket.initial-buckets",
        "force-lookup",
        "index-file-in-data-file-dir",
        "pk-clustering-override",
        "row-tracking.enabled",
        "data-evolution.enabled",
        "data-file.path-directory",
        "path",
        "branch",
    }
)
"""Options whose change would make new rows inconsistent with existing rows."""

FIXED_BY_FILES = frozenset(
    {
        "type",
        "bucket-key",
        "bucket-function.type",
        "merge-engine",
        "rowkind.field",
        "data-file.path-directory",
        "index-file-in-data-file-dir",
        "row-tracking.enabled",
        "data-evolution.enabled",
        "sequence.snapshot-ordering",
        "dynamic-bucket.initial-buckets",
        "force-lookup",
        "pk-clustering-override",
        "blob-field",
        "blob-descriptor-field",
        "blob-view-field",
        "aggregation.remove-record-on-delete",
        "partial-update.remove-record-on-delete",
        "partial-update.remove-record-on-sequence-group",
    }
)
"""Options that cannot change once the table has files, because the files depend on them."""

NAMING_COLUMNS = frozenset(
    {
        BUCKET_KEY.key,
        SEQUENCE_FIELD.key,
        ROWKIND_FIELD.key,
        REMOVE_RECORD_ON_SEQUENCE_GROUP.key,
        ROW_DEDUPLICATE_IGNORE_FIELDS.key,
        RECORD_LEVEL_TIME_FIELD.key,
    }
)
"""Options that name columns, so that they change when a column is renamed. The `fields.<column>.` options change,
too.
"""

_FIXED_FAMILY = "fields."


def is_fixed_by_table(key: str) -> bool:
    """Returns True if a job cannot change this option of the table, so that only the value in the table's schema
    counts. This includes all options `fields.<column>.…`.
    """
    return key in FIXED_BY_TABLE or key.startswith(_FIXED_FAMILY)


def check_job_options(job: Mapping[str, str], table: Mapping[str, str], *, origin: str = "the job's options") -> None:
    """Checks that the options of a job may override the table's options. A job may repeat the table's value. `origin`
    says in the error where the job's options come from.

    Raises OptionError, which names both values, if the job changes an option that only the table may set. Also raises
    OptionError for a value that is not valid, and for a duration without a unit.
    """
    check_given_durations(job, origin=origin)
    for key, text in job.items():
        if is_fixed_by_table(key) and not _says_the_same(key, job, table):
            stored = table.get(key)
            raise OptionError(
                f"option '{key}' = {text!r} in {origin} cannot be set by a job: the table has "
                f"{_default(key) if stored is None else repr(stored)}; remove it from the job, or set it for a "
                f"new table (create.options.{key} in a job file)",
                key=key,
            )


def _says_the_same(key: str, job: Mapping[str, str], table: Mapping[str, str]) -> bool:
    option = HONOURED.get(key)
    if option is None:
        return job[key] == table.get(key)
    return option.find({key: job[key]}) == option.find(table)


def _default(key: str) -> str:
    option = HONOURED.get(key)
    if option is None or option.default is None:
        return "none"
    return f"no value, which means {getattr(option.default, 'value', option.default)!r}"
