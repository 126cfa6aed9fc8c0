"""Paimon's options that bucketline does not follow. A table may have such options for other writers and readers.

Files and rows are correct all the same, so bucketline accepts these options. When a table with such an option is
opened, a message says once that the option has no effect; `--print-config` shows the message, too. Options that only
tune an engine need no message, and are in `other_options`.
Source: Paimon 2.0 CoreOptions, SparkConnectorOptions.
"""

from collections.abc import Mapping

from bucketline.conf.table.index_options import BLOOM_FILTER, INDEX_OPTIONS, PREFIX, READ_ENABLED

_INDEXES = "no index of this kind is written; queries read more than they would with one"
_NO_COLUMN = "rows are read without their sequence numbers"
_STOPS = "a read stops at a file that is corrupt or lost; 'bucketline doctor' lists all of them"
_CLUSTERS = "writes do not sort rows; 'bucketline compact --order-by' sorts them"
_EVOLVES = "a write takes only the columns of the table; jobs add new columns with 'schema-evolution' = 'evolve'"

_KEPT = (*INDEX_OPTIONS, READ_ENABLED.key, f"{PREFIX}{BLOOM_FILTER}.")

OF_READS: Mapping[str, str] = {
    **dict.fromkeys(("table-read.sequence-number.enabled", "key-value.sequence_number.enabled"), _NO_COLUMN),
    **dict.fromkeys(("scan.ignore-corrupt-files", "scan.ignore-lost-files"), _STOPS),
}
"""Options for readers, and why bucketline does not follow them."""

OF_WRITES: Mapping[str, str] = {
    **dict.fromkeys(("clustering.columns", "sink.clustering.by-columns"), _CLUSTERS),
    **dict.fromkeys(
        ("write.merge-schema", "write.merge-schema.type-widening", "write.merge-schema.explicit-cast"), _EVOLVES
    ),
}
"""Options for writers, and why bucketline does not follow them."""


def unkept_by_reads(key: str, options: Mapping[str, str]) -> str | None:
    """Returns why bucketline does not follow an option for reads. Returns None for an option that bucketline follows,
    and for an option that is off.
    """
    return None if _is_off(options.get(key, "")) else OF_READS.get(key)


def unkept_by_writes(key: str, options: Mapping[str, str]) -> str | None:
    """Returns why bucketline does not follow an option for writes. Returns None for an option that bucketline follows,
    and for an option that is off.
    """
    if _is_off(options.get(key, "")):
        return None
    return _INDEXES if key.startswith(PREFIX) and not key.startswith(_KEPT) else OF_WRITES.get(key)


def _is_off(text: str) -> bool:
    return text.strip().lower() == "false"
