"""Reads Paimon's option `incremental-between` and similar options. They are for queries that read the changes between
two snapshots, or compare the rows of two tags.

Source: Paimon 2.0 AbstractDataTableScan.createIncrementalStartingScanner, IncrementalDeltaStartingScanner.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bucketline.conf.option import whole_number
from bucketline.conf.table.read_options import TAG_TO_SNAPSHOT, tags_mean_snapshots
from bucketline.state.sql.dialect import refused
from bucketline.state.sql.relations import local_ms
from bucketline.state.sql.table_functions import BETWEEN, BETWEEN_TIMES, TO_AUTO_TAG
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.versions import Versions
from bucketline.state.store.read.difference import plan_difference
from bucketline.state.store.read.table_read import ReadRows
from bucketline.state.store.system.changes import changes_between, differing_rows

RANGE_KEYS = frozenset((BETWEEN, BETWEEN_TIMES, TO_AUTO_TAG, TAG_TO_SNAPSHOT.key))
"""The options that say which snapshots or tags a query of changes is about."""

AUDIT_LOG = "audit_log"
"""The only system table that shows changes between snapshots."""


@dataclass(frozen=True, slots=True)
class Between:
    """A range of changes: the changes after the snapshot `since`, up to and including the snapshot `until`."""

    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Differing:
    """The rows in which the snapshots of two tags differ. `since` and `until` are the names of the tags."""

    since: str
    until: str


def changed_between(table: TableHandle, options: Mapping[str, str], system: str | None) -> Between | Differing | None:
    """Returns the range of changes, or the tags to compare, that the options name; None if the options name neither.
    `system` is the name of the system table that is queried; None for the table itself. Raises OptionError for options
    that contradict each other or are not supported.
    """
    ranges = [key for key in (BETWEEN, BETWEEN_TIMES, TO_AUTO_TAG) if key in options]
    if not ranges:
        if TAG_TO_SNAPSHOT.key in options:
            raise refused(
                f"'{TAG_TO_SNAPSHOT.key}' has no effect without '{BETWEEN}'; set both, or neither",
                option=TAG_TO_SNAPSHOT.key,
            )
        return None
    named = (*ranges, *table.table_schema.settings.reading.named_versions)
    if len(named) > 1:
        raise refused(
            f"'{named[0]}' and '{named[1]}' both say which changes are read; set only one of them", option=named[1]
        )
    (key,) = ranges
    if key == TO_AUTO_TAG:
        raise refused(f"'{key}' is not supported: name the tag and the tag before it in '{BETWEEN}'", option=key)
    if system is not None and system.lower() != AUDIT_LOG:
        raise refused(f"'{key}' is not supported for ${system}; read the table, or its ${AUDIT_LOG}", option=key)
    first, _, second = (part.strip() for part in options[key].partition(","))
    if not first or not second or "," in second:
        raise refused(
            f"'{key}' = {options[key]!r} is not valid: give the start, which is not included, and the end, as in "
            f"'{key}' = '{'1,3' if key == BETWEEN else '2026-01-31 12:00:00,2026-01-31 13:00:00'}'",
            option=key,
        )
    versions = Versions(table.io, table.metadata_path)
    if key == BETWEEN_TIMES:
        return _between_times(table, versions, _ms(first), _ms(second))
    return _between(versions, first, second, as_snapshots=tags_mean_snapshots(options))


def changed_rows(table: TableHandle, between: Between | Differing, *, as_log: bool) -> ReadRows:
    """Returns the columns and rows of a query of changes, or of a comparison of two tags. If `as_log` is true, the rows
    are those of the system table `$audit_log`: the first column is `rowkind`, and removed rows are included.
    """
    if isinstance(between, Differing):
        return differing_rows(plan_difference(table, between.since, between.until), as_log=as_log)
    return changes_between(table, between.since, between.until, as_log=as_log)


def _between(versions: Versions, first: str, second: str, *, as_snapshots: bool) -> Between | Differing:
    if versions.has_tag(first) and versions.has_tag(second):
        since, until = versions.by_tag(first, BETWEEN).id, versions.by_tag(second, BETWEEN).id
        if as_snapshots:
            return _checked(versions, since, until)
        if until < since:
            raise refused(
                f"the end, tag {second} of snapshot {until}, is older than the start, tag {first} of snapshot {since}; "
                "name the older tag first",
                option=BETWEEN,
            )
        return Differing(first, second)
    if not (first.isascii() and first.isdigit() and second.isascii() and second.isdigit()):
        raise refused(
            f"the start '{first}' and the end '{second}' are neither two tags of the table nor two snapshot ids; give "
            "two tags, or two snapshot ids",
            option=BETWEEN,
        )
    return _checked(versions, whole_number(first), whole_number(second))


def _checked(versions: Versions, since: int, until: int) -> Between:
    if until < since:
        raise refused(
            f"the end, snapshot {until}, is before the start, snapshot {since}; give the earlier snapshot first",
            option=BETWEEN,
        )
    if until > since:
        versions.by_id(until, BETWEEN)
    return Between(since, until)


def _between_times(table: TableHandle, versions: Versions, first_ms: int, second_ms: int) -> Between:
    """Returns the changes from the newest snapshot at or before the first time to the newest snapshot at or before the
    second time.
    """
    if second_ms < first_ms:
        raise refused(
            f"the end {second_ms} is before the start {first_ms}; give the earlier time first", option=BETWEEN_TIMES
        )
    start, end = versions.at_time(first_ms), versions.at_time(second_ms)
    if end is None or first_ms == second_ms:
        return Between(0, 0)
    if start is not None:
        return Between(start.id, end.id)
    return Between((table.snapshot_store.earliest_id() or 1) - 1, end.id)


def _ms(text: str) -> int:
    return whole_number(text) if text.removeprefix("-").isdecimal() else local_ms(text)
