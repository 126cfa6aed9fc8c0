"""The rules that decide whether a commit conflicts with what other writers have committed. Each rule is a function that
returns a Conflict or None; it raises no exception.

The live files to compare with may be limited to the changed buckets, because each rule compares files of one bucket.
The one exception is the rule about the number of buckets, which is the same in a whole partition. If not all files of a
partition are given, this number must be given separately.
Source: Paimon 2.0 ConflictDetection, FileEntry.mergeEntries.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bucketline.conf.wording import counted
from bucketline.state.errors import CommitConflictError, FilesGoneError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import (
    CommitKind,
    EntryIdentity,
    FileKind,
    IndexManifestEntry,
    ManifestEntry,
)
from bucketline.state.format.index.deletion_vector import DELETION_VECTORS

ALREADY_ADDED = "already-added"
"""The name of the rule that a commit breaks if another commit has already added its files. After any other conflict,
the files of the commit are not in the table.
"""

FILES_GONE = "files-gone"
"""The name of the rule that a commit breaks if some of its own new files were removed before it was published. The
files must be written again.
"""

HISTORY_GONE = "history-gone"
ROWS_CHANGED = "rows-changed"
"""The name of the rule that a commit breaks if other writers have changed rows that it read, or if the snapshots since
then can no longer be read. The work must be planned again.
"""

ToComparable = Callable[[bytes], Any]
"""A function that converts a key (bytes of a BinaryRow) to a value that Python compares in Paimon's key order."""

CommonKeyTest = Callable[[ManifestEntry, ManifestEntry], bool]
"""A function that returns True if two files of a bucket have a key in common."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The reason why changes cannot be committed after the table's newest snapshot. `rule` is the name of the broken
    rule, which is the same in all releases. `fields` has the details.
    """

    rule: str
    message: str
    fields: Mapping[str, object] = field(default_factory=dict)

    def error(self, message: str | None = None) -> CommitConflictError:
        """Returns the exception for callers that cannot try again. If `message` is given, it replaces the message of
        the conflict.
        """
        kind = FilesGoneError if self.rule == FILES_GONE else CommitConflictError
        return kind(self.message, rule=self.rule).reworded(message or self.message, **self.fields)


def check_conflicts(
    base_entries: Iterable[ManifestEntry],
    delta_entries: Sequence[ManifestEntry],
    kind: CommitKind,
    key_order: ToComparable | None,
    *,
    partition_totals: Mapping[bytes, int] | None = None,
    base_index: Sequence[IndexManifestEntry] = (),
    delta_index: Sequence[IndexManifestEntry] = (),
) -> Conflict | None:
    """Checks the rules that apply to every commit, and returns the conflict for the first broken rule; None if the
    changes may be published.

    `base_entries` are the ADD entries of the live files, at least of the changed buckets. If `base_entries` lacks other
    buckets of a partition, `partition_totals` must have the number of buckets of the partition. `key_order` is None for
    tables without a primary key.
    """
    base = list(base_entries)
    live = {e.identity: e for e in base}
    conflict = (
        check_bucket_counts({**_totals(base), **(partition_totals or {})}, delta_entries, kind)
        or check_delta(delta_entries)
        or check_adds(live, delta_entries)
        or check_deletes(live, delta_entries)
    )
    if conflict is not None:
        return conflict
    after = apply_delta(live, delta_entries)
    return (
        (check_key_ranges(after, delta_entries, key_order) if key_order is not None else None)
        or check_index_deletes(base_index, delta_index)
        or check_deletion_vectors(after, delta_index)
    )


def check_bucket_counts(
    partition_totals: Mapping[bytes, int], delta_entries: Iterable[ManifestEntry], kind: CommitKind
) -> Conflict | None:
    """Checks the rule `bucket-count`, and returns the conflict if the commit breaks it. The rule: all files of a
    partition were written for the same number of buckets.

    The number is compared for each partition, so that the rule also covers a bucket that has no files yet.
    `partition_totals` has the number of each partition that has files. An OVERWRITE may change the number. Numbers that
    are not positive (dynamic, unaware and postpone tables) are not compared.
    """
    if kind is CommitKind.OVERWRITE:
        return None
    totals = dict(partition_totals)
    for entry in delta_entries:
        if entry.total_buckets <= 0:
            continue
        known = totals.setdefault(entry.partition, entry.total_buckets)
        if known > 0 and known != entry.total_buckets:
            return Conflict(
                "bucket-count",
                f"the partition has {counted(known, 'bucket')}, but these files were written for "
                f"{entry.total_buckets}: "
                f"if a rescale to {known} was cut short, finish it by the same `rescale({known})`; if the table's "
                f"`bucket` was changed, move the rows by `rescale({entry.total_buckets})`",
                {"partition": entry.partition.hex(), "found": known, "expected": entry.total_buckets},
            )
    return None


def check_new_totals(
    delta_entries: Iterable[ManifestEntry], kept_totals: Mapping[bytes, int], newest_count: int
) -> Conflict | None:
    """Checks the rule `bucket-count` for partitions that only have files of this commit, and returns the conflict if
    the commit breaks it. The rule: new files were written for `newest_count` buckets, the number in the newest schema.
    A rescale may have changed this number since the files were planned.

    `kept_totals` has the partitions whose files stay; these partitions are not checked. Paimon 2.0 does not have this
    rule, and cannot write to a partition that breaks the rule.
    """
    for entry in delta_entries:
        is_new = entry.kind is FileKind.ADD and entry.total_buckets > 0 and entry.partition not in kept_totals
        if is_new and entry.total_buckets != newest_count:
            return Conflict(
                "bucket-count",
                f"the table got {counted(newest_count, 'bucket')} meanwhile, but these files were written for "
                f"{entry.total_buckets}; write them again",
                {"partition": entry.partition.hex(), "found": newest_count, "expected": entry.total_buckets},
            )
    return None


def check_delta(delta_entries: Iterable[ManifestEntry]) -> Conflict | None:
    """Checks the rule `delta`, and returns the conflict if the commit breaks it. The rule: a commit adds a file at most
    once, or deletes it at most once, but does not do both.
    """
    seen: set[EntryIdentity] = set()
    for entry in delta_entries:
        if entry.identity in seen:
            return Conflict(
                "delta",
                f"the commit names {entry.file.file_name} at level {entry.file.level} twice: "
                "two tasks worked on one bucket, or a message was collected twice; commit each message once",
                _evidence(entry),
            )
        seen.add(entry.identity)
    return None


def check_adds(live: Mapping[EntryIdentity, ManifestEntry], delta_entries: Iterable[ManifestEntry]) -> Conflict | None:
    """Checks the rule `already-added`, and returns the conflict if the commit breaks it. The rule: an added file is not
    live yet. If the file is live already, the same files were committed before.
    """
    for entry in delta_entries:
        if entry.kind is FileKind.ADD and entry.identity in live:
            return Conflict(
                ALREADY_ADDED,
                f"{entry.file.file_name} is in the table already: the same messages were committed before; do not "
                "commit them again",
                _evidence(entry),
            )
    return None


def check_deletes(
    live: Mapping[EntryIdentity, ManifestEntry], delta_entries: Iterable[ManifestEntry]
) -> Conflict | None:
    """Checks the rule `file-deleted`, and returns the conflict if the commit breaks it. The rule: every file that the
    commit deletes is live, and on the same level.
    """
    for entry in delta_entries:
        if entry.kind is FileKind.DELETE and entry.identity not in live:
            return Conflict(
                "file-deleted",
                f"{entry.file.file_name} is no longer live at level {entry.file.level}: another writer compacted or "
                "overwrote its bucket meanwhile; plan again from the newest snapshot",
                _evidence(entry),
            )
    return None


def check_key_ranges(
    after: Iterable[ManifestEntry], delta_entries: Iterable[ManifestEntry], key_order: ToComparable
) -> Conflict | None:
    """Checks the rule `key-range`, and returns the conflict if the commit breaks it. The rule: on each level of a
    bucket above level 0, the key ranges of the files do not overlap.

    `after` are the files that would be live after the commit. Only levels to which the commit adds files are checked.
    Key ranges include both ends.
    """
    touched = {
        (e.partition, e.bucket, e.file.level) for e in delta_entries if e.kind is FileKind.ADD and e.file.level >= 1
    }
    levels: dict[tuple[bytes, int, int], list[ManifestEntry]] = defaultdict(list)
    for entry in after:
        place = (entry.partition, entry.bucket, entry.file.level)
        if place in touched:
            levels[place].append(entry)
    for place in sorted(levels):
        ordered = sorted(levels[place], key=lambda e: key_order(e.file.min_key))
        for left, right in pairwise(ordered):
            if key_order(left.file.max_key) >= key_order(right.file.min_key):
                return Conflict(
                    "key-range",
                    f"{left.file.file_name} and {right.file.file_name} would overlap on level {place[2]}: another "
                    "writer compacted the bucket meanwhile; plan again from the newest snapshot",
                    {**_evidence(left), "other": right.file.file_name},
                )
    return None


def check_index_deletes(
    base_index: Iterable[IndexManifestEntry], delta_index: Iterable[IndexManifestEntry]
) -> Conflict | None:
    """Checks the rule `index-replaced`, and returns the conflict if the commit breaks it. The rule: every index file
    that the commit deletes is live. `base_index` are the live index files, and `delta_index` are the changes of the
    commit.
    Paimon does not check this rule: the last writer of a bucket's HASH file wins, and the keys of the other writer are
    lost.
    """
    live = {(e.partition, e.bucket, e.index_type, e.file_name) for e in base_index}
    for entry in delta_index:
        place = (entry.partition, entry.bucket, entry.index_type, entry.file_name)
        if entry.kind is FileKind.DELETE and place not in live:
            return Conflict(
                "index-replaced",
                f"the {entry.index_type} file {entry.file_name} is no longer live: another writer changed the index of "
                "the bucket meanwhile; plan again from the newest snapshot",
                {"partition": entry.partition.hex(), "bucket": entry.bucket, "file": entry.file_name},
            )
    return None


def check_index_unchanged(
    planned_index: Iterable[IndexManifestEntry],
    base_index: Iterable[IndexManifestEntry],
    delta_index: Iterable[IndexManifestEntry],
) -> Conflict | None:
    """Checks the rule `index-changed`, and returns the conflict if the commit breaks it. The rule: the index files of a
    changed bucket are the same as when the change was planned.

    `planned_index` are the index files when the change was planned, `base_index` are the live index files, and
    `delta_index` are the changes of the commit. A new HASH or deletion-vector file replaces the whole old file of its
    bucket, so the writer must have read the current file.
    """
    places = {(e.partition, e.bucket, e.index_type) for e in delta_index}
    planned, now = (
        {(e.partition, e.bucket, e.index_type, e.file_name) for e in index} for index in (planned_index, base_index)
    )
    for partition, bucket, index_type, name in sorted(planned ^ now):
        if (partition, bucket, index_type) in places:
            return Conflict(
                "index-changed",
                f"another writer changed the {index_type} index of bucket {bucket} meanwhile ({name}); "
                "plan again from the newest snapshot",
                {"partition": partition.hex(), "bucket": bucket, "file": name},
            )
    return None


def check_unmarked(
    planned_index: Iterable[IndexManifestEntry],
    base_index: Iterable[IndexManifestEntry],
    delta_entries: Sequence[ManifestEntry],
) -> Conflict | None:
    """Checks the rule `rows-deleted`, and returns the conflict if the commit breaks it. The rule: since the files that
    the commit deletes were read, nobody has deleted more rows of these files. Otherwise a compaction would bring the
    deleted rows back. `planned_index` are the index files at the time of the read, and `base_index` are the live index
    files. Paimon 2.0 does not have this rule.
    """
    kept = {(e.partition, e.bucket, e.file.file_name) for e in delta_entries if e.kind is FileKind.ADD}
    gone = {(e.partition, e.bucket, e.file.file_name) for e in delta_entries if e.kind is FileKind.DELETE} - kept
    planned, now = (
        {
            (e.partition, e.bucket, vector.data_file_name): (e.file_name, vector.cardinality)
            for e in index
            if e.index_type == DELETION_VECTORS
            for vector in e.deletion_vector_ranges or ()
        }
        for index in (planned_index, base_index)
    )
    for place in sorted(gone & now.keys()):
        known, current = planned.get(place), now[place]
        # The number of rows in a deletion vector only grows. File names cannot be compared, because a change of one
        # vector
        # rewrites the index file of the bucket.
        unchanged = known is not None and (
            known[0] == current[0] or (known[1] == current[1] and current[1] is not None)
        )
        if not unchanged:
            partition, bucket, name = place
            return Conflict(
                "rows-deleted",
                f"rows of {name} were deleted after it was read ({current[0]}): another writer changed the bucket "
                "meanwhile; plan again from the newest snapshot",
                {"partition": partition.hex(), "bucket": bucket, "file": name},
            )
    return None


def check_looked_up(
    newer_entries: Iterable[ManifestEntry], delta_entries: Iterable[ManifestEntry], key_order: ToComparable
) -> Conflict | None:
    """Checks the rule `levels-changed`, and returns the conflict if the commit breaks it. A compaction looks up the
    keys of level 0 in the files of higher levels. The rule: no other writer has added or removed such a file since
    then.

    `newer_entries` are the changes of other writers since the compaction was planned. Only changes of files above level
    0 count, and only if the key range of the file overlaps the key range of a file that the compaction takes from level
    0. Key ranges include both ends. Paimon 2.0 does not have this rule.

    If a file was added, the compaction has not looked up its keys in this file. The old row of such a key would be
    neither marked as deleted nor written to the changelog, and the key would exist twice. If a file was removed, the
    compaction may have found rows in this file. Under `first-row`, the compaction has dropped new rows with the keys of
    the found rows, and these keys would be lost.
    """
    inputs: dict[tuple[bytes, int], list[ManifestEntry]] = defaultdict(list)
    for entry in delta_entries:
        if entry.kind is FileKind.DELETE and entry.file.level == 0:
            inputs[entry.partition, entry.bucket].append(entry)
    for newer in newer_entries:
        if newer.file.level == 0:
            continue
        is_new = newer.kind is FileKind.ADD
        low, high = key_order(newer.file.min_key), key_order(newer.file.max_key)
        for entry in inputs.get((newer.partition, newer.bucket), ()):
            if key_order(entry.file.min_key) <= high and low <= key_order(entry.file.max_key):
                return Conflict(
                    "levels-changed",
                    f"{newer.file.file_name} {'came to' if is_new else 'went from'} level {newer.file.level} after the "
                    f"keys of {entry.file.file_name} were looked up: another writer compacted or overwrote the bucket "
                    "meanwhile; plan again from the newest snapshot",
                    {**_evidence(entry), "other": newer.file.file_name},
                )
    return None


def check_rows_unchanged(
    newer_entries: Iterable[ManifestEntry],
    delta_entries: Sequence[ManifestEntry],
    key_order: ToComparable,
    common_keys: CommonKeyTest,
) -> Conflict | None:
    """Checks the rule `rows-changed`, and returns the conflict if the commit breaks it. The rule: no other writer has
    written a key of the new files since the old rows of these keys were read. Otherwise a row that was computed from an
    older row would overwrite a newer row.

    `newer_entries` are the changes of other writers, without compactions. `common_keys` is called for two files whose
    key ranges overlap; a file that was deleted meanwhile counts with its whole key range. Files of the postpone bucket
    are not compared, because rows of different writers have no order there. Key ranges include both ends. Paimon 2.0
    does not have this rule.
    """
    added: dict[tuple[bytes, int], list[ManifestEntry]] = defaultdict(list)
    for entry in delta_entries:
        if entry.kind is FileKind.ADD and entry.bucket >= 0:
            added[entry.partition, entry.bucket].append(entry)
    for newer in newer_entries:
        if not (own := added.get((newer.partition, newer.bucket))):
            continue
        low, high = key_order(newer.file.min_key), key_order(newer.file.max_key)
        for entry in own:
            overlaps = key_order(entry.file.min_key) <= high and low <= key_order(entry.file.max_key)
            if overlaps and (newer.kind is FileKind.DELETE or common_keys(newer, entry)):
                return Conflict(
                    ROWS_CHANGED,
                    f"{newer.file.file_name} has rows that another writer changed after they were read for "
                    f"{entry.file.file_name}; plan again from the newest snapshot",
                    {**_evidence(entry), "other": newer.file.file_name},
                )
    return None


def check_deletion_vectors(
    after: Iterable[ManifestEntry], delta_index: Iterable[IndexManifestEntry]
) -> Conflict | None:
    """Checks the rule `deletion-vector`, and returns the conflict if the commit breaks it. The rule: the data file of a
    new deletion vector is live after the commit. `after` are the files that would be live then.
    """
    added = [e for e in delta_index if e.kind is FileKind.ADD and e.index_type == DELETION_VECTORS]
    if not added:
        return None
    names = {(e.partition, e.bucket, e.file.file_name) for e in after}
    for entry in added:
        for vector in entry.deletion_vector_ranges or ():
            if (entry.partition, entry.bucket, vector.data_file_name) not in names:
                return Conflict(
                    "deletion-vector",
                    f"{entry.file_name} deletes rows of {vector.data_file_name}, which is not live: another writer "
                    "rewrote that file meanwhile; plan again from the newest snapshot",
                    {"partition": entry.partition.hex(), "bucket": entry.bucket, "file": vector.data_file_name},
                )
    return None


def apply_delta(
    live: Mapping[EntryIdentity, ManifestEntry], delta_entries: Iterable[ManifestEntry]
) -> list[ManifestEntry]:
    """Applies a delta to the entries of live files. Returns the entries that are live afterwards: first the old entries
    that stay, then the new entries. A DELETE of a file that is not live is ignored.
    """
    delta = list(delta_entries)
    gone = {e.identity for e in delta if e.kind is FileKind.DELETE}
    return [e for i, e in live.items() if i not in gone] + [e for e in delta if e.kind is FileKind.ADD]


def _totals(entries: Iterable[ManifestEntry]) -> dict[bytes, int]:
    return {e.partition: e.total_buckets for e in entries if e.total_buckets > 0}


def _evidence(entry: ManifestEntry) -> dict[str, object]:
    file: DataFileMeta = entry.file
    return {
        "partition": entry.partition.hex(),
        "bucket": entry.bucket,
        "level": file.level,
        "file": file.file_name,
    }
