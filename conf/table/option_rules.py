"""Checks options that need a table with a primary key or with partition columns.

Source: Paimon 1.4 and 2.0 SchemaValidation (validateChangelogReadSequenceNumber, validateManifestSort).
"""

from collections.abc import Iterator, Mapping, Sequence

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, parse_bool, parse_text
from bucketline.conf.table.table_options import listed

_SEQUENCE_NUMBERS = Option(
    "table-read.sequence-number.enabled", parse_bool, False, "readers see the sequence numbers of rows"
)
_SORTED = Option("manifest-sort.enabled", parse_bool, False, "manifests are sorted by a partition column")
_SORTED_BY: Option[str] = Option(
    "manifest-sort.partition-field", parse_text, None, "the partition column by which manifests are sorted"
)


def sequence_number_problems(options: Mapping[str, str], primary_key: Sequence[str]) -> Iterator[OptionError]:
    """Yields an error if the options show sequence numbers to readers although the table has no primary key, so that
    its rows have no sequence numbers.
    """
    key = _SEQUENCE_NUMBERS.key
    if not primary_key and _SEQUENCE_NUMBERS.get(options):
        yield OptionError(
            f"Cannot enable '{key}' for non-primary-key table: its rows have no sequence numbers; remove it", key=key
        )


def manifest_sort_problems(options: Mapping[str, str], partition_keys: Sequence[str]) -> Iterator[OptionError]:
    """Yields an error if the options ask for manifests that are sorted by a column which is no partition column."""
    if not _SORTED.get(options):
        return
    column = _SORTED_BY.find(options)
    if not partition_keys:
        yield OptionError(f"Cannot enable '{_SORTED.key}' for non-partition table; remove it", key=_SORTED.key)
    elif column and column not in partition_keys:
        yield OptionError(
            f"'{_SORTED_BY.key}' = '{column}' is not a partition field. Available partition fields: "
            f"{listed(partition_keys)}.",
            key=_SORTED_BY.key,
        )
