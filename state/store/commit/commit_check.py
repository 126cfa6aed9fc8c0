"""Checks whether one snapshot of a commit may follow the newest snapshot: reads what the conflict rules need, and
applies the rules.

A commit has up to two snapshots. Each of them is checked separately.

Source: Paimon 2.0 ConflictDetection, StrictModeChecker, OverwriteChangesProvider, FileStoreCommitImpl.tryCommitOnce.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Append, AppendCheck, PartitionTest, Replace
from bucketline.state.commit.changes import Changes, changed_buckets
from bucketline.state.commit.conflict import (
    HISTORY_GONE,
    CommonKeyTest,
    Conflict,
    check_bucket_counts,
    check_conflicts,
    check_index_deletes,
    check_index_unchanged,
    check_looked_up,
    check_rows_unchanged,
    check_unmarked,
)
from bucketline.state.commit.live_files import BucketId, LiveFiles
from bucketline.state.commit.plan import overwrite_entries
from bucketline.state.commit.replay import find_replayed, writer_of
from bucketline.state.format.entries import (
    BATCH_COMMIT_IDENTIFIER,
    CommitKind,
    FileKind,
    IndexManifestEntry,
    ManifestEntry,
    Snapshot,
)
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.commit.commit_base import CommitBase, changes_since
from bucketline.state.store.read.bucket_deletions import VectorFiles, deletion_entries
from bucketline.state.types.order import key_order


@dataclass(frozen=True, slots=True)
class PlannedOn:
    """The state of a table when a compaction was planned: its live files, and its deletion-vector files by bucket.

    The snapshot on which the compaction was planned can expire while the compaction runs. The conflict rules then use
    this object.
    """

    live: LiveFiles
    vectors: Mapping[BucketId, VectorFiles]


@dataclass(frozen=True, slots=True)
class SnapshotChanges:
    """The changes of one snapshot of a commit.

    `overwrite` is a test for the partitions whose live files are replaced. `moves_rows` says that the new files have
    the same rows as the replaced files. `planned` is set for a compaction that is committed alone: it is the state of
    the table when the compaction was planned.
    """

    kind: CommitKind
    entries: tuple[ManifestEntry, ...]
    changelog: tuple[ManifestEntry, ...]
    index: tuple[IndexManifestEntry, ...]
    check: AppendCheck
    overwrite: PartitionTest | None = None
    moves_rows: bool = False
    common_keys: CommonKeyTest | None = None
    planned: PlannedOn | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """Changes that have passed the conflict rules for a base snapshot. The commit applies these changes to the base.

    `entries` are the manifest entries of the changes, and `index` are the index entries of the changes. `base_index`
    holds all index entries of the base snapshot; it may be empty if the changes neither add nor remove index files.
    """

    entries: tuple[ManifestEntry, ...]
    index: tuple[IndexManifestEntry, ...]
    base_index: tuple[IndexManifestEntry, ...]


def append_changes(change: Append | Replace, changes: Changes) -> SnapshotChanges:
    """Returns the changes of the first snapshot of a commit. If the commit replaces files or deletes rows, every
    conflict rule is checked.
    """
    if isinstance(change, Replace):
        # Source: Paimon 2.0 overwritePartition drops the changelog, because readers of a changelog cannot follow an
        # overwrite.
        return SnapshotChanges(
            CommitKind.OVERWRITE,
            changes.append_entries,
            (),
            changes.append_index,
            AppendCheck.ALL_RULES,
            change.target,
            moves_rows=change.moves_rows,
        )
    kind = changes.append_kind
    as_asked = kind is CommitKind.APPEND or change.check is AppendCheck.ONE_WRITER
    return SnapshotChanges(
        kind,
        changes.append_entries,
        changes.append_changelog,
        changes.append_index,
        change.check if as_asked else AppendCheck.ALL_RULES,
        common_keys=change.common_keys,
    )


def compact_changes(changes: Changes, planned: PlannedOn | None) -> SnapshotChanges:
    """Returns the changes of the COMPACT snapshot of a commit. `planned` is the state of the table when the compaction
    was planned. `planned` is None if this state is not known, or if the commit also makes another snapshot, which
    changes the state.
    """
    return SnapshotChanges(
        CommitKind.COMPACT,
        changes.compact_entries,
        changes.compact_changelog,
        changes.compact_index,
        AppendCheck.ALL_RULES,
        planned=planned,
    )


class CommitChecks:
    """The conflict rules of one table, which each try of a commit checks against the newest snapshot."""

    def __init__(self, schema: TableSchema, snapshots: Snapshots, manifests: Manifests) -> None:
        self._snapshots, self._manifests = snapshots, manifests
        self._has_postponed_rows = bucket_mode(schema).postpones
        key_types = [f.type for f in schema.select(schema.trimmed_primary_key)]
        self._key_order = key_order(key_types) if schema.primary_keys else None
        self._has_vectors = schema.settings.changelog.deletion_vectors
        self._looks_up = bool(schema.primary_keys) and schema.settings.lookup_cause is not None

    def looked_at(self, before: Snapshot | None, latest: Snapshot | None, based_on: int | None) -> int | None:
        """Returns the id up to which no snapshot belongs to this commit; None if this is not known.

        The result is the id of `before`, the base snapshot of the previous try; 0 if there was no previous try. If
        `before` was taken back since then, by its writer or by a rollback, another snapshot may have the same id. In
        this case the result is `based_on`, the id of the snapshot on which the work was planned.
        """
        latest_id = 0 if latest is None else latest.id
        if before is None:
            return 0
        if before.id > latest_id:
            return based_on
        current = latest if before.id == latest_id else self._snapshots.get(before.id)
        return before.id if current is None or current.is_same_as(before) else based_on

    def find_replayed(
        self, wanted: SnapshotChanges, author: Author, latest: Snapshot | None, seen: int | None
    ) -> Snapshot | Conflict | None:
        """Looks for a snapshot after the id `seen` in which another run with the commit user of `author` has committed
        the identifier of `author`, and returns this snapshot. Returns None if there is no such snapshot, or if the
        commit `wanted` has no identifier to compare. Returns a Conflict if some of these snapshots can no longer be
        read.
        """
        if wanted.kind is CommitKind.COMPACT or author.identifier == BATCH_COMMIT_IDENTIFIER or seen is None:
            return None
        latest_id = 0 if latest is None else latest.id
        newer = list(self._snapshots.newest_first(latest or 0, seen))
        replayed = find_replayed(newer, author.user, author.identifier)
        if replayed is None and len(newer) != latest_id - seen:
            return history_gone(seen, latest_id)
        return replayed

    def find_other_writer(self, author: Author, latest: Snapshot | None, seen: int) -> Conflict | None:
        """Returns a Conflict, by the rule `second-writer`, if a writer other than `author` has written rows since the
        snapshot id `seen`; otherwise None. Compactions and statistics of other writers are allowed.

        The rule applies to tables whose buckets depend on their rows, because two writers would put one key into two
        buckets.
        """
        latest_id = 0 if latest is None else latest.id
        newer = list(self._snapshots.newest_first(latest or 0, seen))
        if len(newer) != latest_id - seen:
            return history_gone(seen, latest_id)
        own = writer_of(author.user)
        for snapshot in newer:
            if snapshot.commit_kind.moves_rows and writer_of(snapshot.commit_user) != own:
                return Conflict(
                    "second-writer",
                    f"{snapshot.commit_user} wrote snapshot {snapshot.id} at the same time, but a table with "
                    "'bucket' = -1 allows only one writer at a time, because two writers would put a key into two "
                    "buckets. Stop one of the two, or give the table fixed or postponed buckets",
                    {"snapshot": snapshot.id, "user": snapshot.commit_user},
                )
        return None

    def find_replaced(self, wanted: SnapshotChanges, planned_on: Snapshot | None) -> Conflict | None:
        """Returns a Conflict, by the rule `target-changed`, if the snapshot on which an overwrite was planned is no
        longer in the history; otherwise None. After a rollback or a fast-forward, another snapshot may have the same
        id. Then the changes of later snapshots do not show everything that has changed.
        """
        if wanted.overwrite is None or planned_on is None:
            return None
        current = self._snapshots.get(planned_on.id)
        if current is None or current.is_same_as(planned_on):
            return None
        return Conflict(
            "target-changed",
            f"snapshot {planned_on.id}, on which the work was planned, was taken back meanwhile; plan the work again "
            "on the newest snapshot",
            {"snapshot": planned_on.id},
        )

    def fit(self, wanted: SnapshotChanges, base: CommitBase, based_on: int | None, own: int | None) -> Fit | Conflict:
        """Checks all rules for the changes `wanted` against the newest snapshot, `base`. Returns the manifest entries
        and index entries to commit; a Conflict if the changes break a rule.

        `based_on` is the id of the snapshot on which the changes were planned. `own` is the id of the snapshot that
        this commit has already published; None if there is none.
        """
        if wanted.overwrite is not None:
            return self._fit_overwrite(wanted, wanted.overwrite, base, based_on)
        base_index = base.index() if wanted.index else []
        conflict = None
        if based_on is not None:
            latest_id = 0 if base.latest is None else base.latest.id
            spans = [(based_on, latest_id)] if own is None else [(based_on, own - 1), (own, latest_id)]
            spans = [(before, after) for before, after in spans if before != after]
            conflict = self._check_planned_index(spans, wanted)
            if wanted.kind is CommitKind.COMPACT and self._looks_up:
                conflict = conflict or self._check_looked_up(spans, wanted.entries)
            if wanted.check is AppendCheck.ROWS_READ:
                conflict = conflict or self._check_rows_unchanged(spans, wanted)
            # After a rollback, the snapshot on which the work was planned is not an older state of the table.
            has_expired = conflict is not None and conflict.rule == HISTORY_GONE and based_on <= latest_id
            if has_expired and wanted.planned is not None:
                conflict = self._check_since(wanted.planned, wanted, base)
        if wanted.kind is CommitKind.APPEND and wanted.check not in (AppendCheck.ALL_RULES, AppendCheck.ROWS_READ):
            conflict = (
                conflict
                or check_bucket_counts(self._totals(base, wanted.entries, ()), wanted.entries, wanted.kind)
                or check_index_deletes(base_index, wanted.index)
            )
        elif conflict is None:
            live = base.entries(changed_buckets(wanted.entries, wanted.index))
            conflict = check_conflicts(
                live,
                wanted.entries,
                # Only an overwrite of whole partitions may change the bucket count of a partition.
                CommitKind.APPEND if wanted.kind is CommitKind.OVERWRITE else wanted.kind,
                self._key_order,
                partition_totals=self._totals(base, wanted.entries, live),
                base_index=base_index,
                delta_index=wanted.index,
            )
        return conflict or Fit(wanted.entries, wanted.index, tuple(base_index))

    def _fit_overwrite(
        self, wanted: SnapshotChanges, target: PartitionTest, base: CommitBase, based_on: int | None
    ) -> Fit | Conflict:
        takes_postponed = self._has_postponed_rows and not wanted.moves_rows
        conflict = None if based_on is None else self._check_target(target, base.latest, based_on, takes_postponed)
        if conflict is not None:
            return conflict
        live = [e for e in base.entries_in(target) if e.bucket >= 0 or takes_postponed]
        entries = overwrite_entries(live, wanted.entries)
        if based_on is not None:
            # A rescale writes the rows of these files again.
            spans = [(based_on, 0 if base.latest is None else base.latest.id)]
            conflict = self._check_planned_index(spans, replace(wanted, entries=tuple(entries), index=()))
            if conflict is not None:
                return conflict
        base_index = base.index()
        gone = [replace(e, kind=FileKind.DELETE) for e in base_index if target(e.partition)]
        index = (*gone, *(e for e in wanted.index if e.kind is FileKind.ADD))
        return check_conflicts(
            live, entries, wanted.kind, self._key_order, base_index=base_index, delta_index=index
        ) or Fit(entries, index, tuple(base_index))

    def _totals(
        self, base: CommitBase, entries: tuple[ManifestEntry, ...], live: list[ManifestEntry] | tuple[()]
    ) -> dict[bytes, int]:
        """Returns the bucket counts of partitions in the snapshot `base`, with which the bucket counts of the commit
        (`entries`) are compared. Only partitions with fixed buckets are in the result. Partitions in `live` are left
        out, because the entries in `live` tell their bucket counts.
        """
        known = {e.partition for e in live}
        return base.totals({e.partition for e in entries if e.total_buckets > 0} - known)

    def _check_planned_index(self, spans: Sequence[tuple[int, int]], wanted: SnapshotChanges) -> Conflict | None:
        """Compares the index files of two snapshots, for each pair of ids in `spans`. Returns a Conflict if the rule
        `index-changed` or `rows-deleted` is broken; otherwise None. The id 0 stands for the empty table.
        """
        takes_away = self._has_vectors and any(e.kind is FileKind.DELETE for e in wanted.entries)
        if not wanted.index and not takes_away:
            return None
        for before_id, after_id in spans:
            if before_id == after_id:
                continue
            before, after = (self._snapshots.get(i) if i > 0 else None for i in (before_id, after_id))
            if (before is None and before_id > 0) or (after is None and after_id > 0):
                return history_gone(before_id, after_id)
            names = [None if s is None else s.index_manifest for s in (before, after)]
            if names[0] == names[1]:
                continue
            planned, current = (self._manifests.read_index(name) for name in names)
            conflict = check_index_unchanged(planned, current, wanted.index) or check_unmarked(
                planned, current, wanted.entries
            )
            if conflict is not None:
                return conflict
        return None

    def _check_looked_up(
        self, spans: Sequence[tuple[int, int]], delta_entries: tuple[ManifestEntry, ...]
    ) -> Conflict | None:
        """Checks the rule `levels-changed`: the files in which a compaction has looked up its keys are still the files
        of its bucket. Returns the conflict if the commit breaks the rule; otherwise None.

        For each pair of snapshot ids in `spans`, the changes of all snapshots after the first id up to the second id
        are checked. Also returns a conflict if these changes can no longer be read.
        """
        assert self._key_order is not None, "only tables with keys look them up"
        for before_id, after_id in spans:
            changes = changes_since(self._snapshots, self._manifests, before_id, after_id)
            if changes is None:
                return history_gone(before_id, after_id)
            for _, delta in changes:
                conflict = check_looked_up(delta, delta_entries, self._key_order)
                if conflict is not None:
                    return conflict
        return None

    def _check_since(self, planned: PlannedOn, wanted: SnapshotChanges, base: CommitBase) -> Conflict | None:
        """Compares the state of the table at planning with its present state. Returns a Conflict if the rule
        `index-changed`, `rows-deleted` or `levels-changed` is broken; otherwise None.
        """
        places = changed_buckets(wanted.entries, wanted.index)
        before = [e for place in sorted(places) for e in planned.vectors.get(place, ())]
        now = [e for place, files in deletion_entries(base.index()).items() if place in places for e in files]
        conflict = check_index_unchanged(before, now, wanted.index) or check_unmarked(before, now, wanted.entries)
        if conflict is not None or not self._looks_up:
            return conflict
        assert self._key_order is not None, "only tables with keys look them up"
        known = {(*place, f.file_name, f.level): (place, f) for place in places for f in planned.live.files(place)}
        live = {(e.partition, e.bucket, e.file.file_name, e.file.level): e for e in base.entries(places)}
        newer = [e for name, e in live.items() if name not in known]
        newer += [
            ManifestEntry(FileKind.DELETE, *place, 0, f) for name, (place, f) in known.items() if name not in live
        ]
        return check_looked_up(newer, wanted.entries, self._key_order)

    def _check_rows_unchanged(self, spans: Sequence[tuple[int, int]], wanted: SnapshotChanges) -> Conflict | None:
        """Looks at the changes of all snapshots after the first id up to the second id, for each pair of ids in
        `spans`. Returns a Conflict if the changes break the rule `rows-changed`; otherwise None.

        A compaction moves rows and changes none, except a compaction of the postpone bucket: that compaction makes the
        waiting rows visible.
        """
        if self._key_order is None:
            return None
        for before_id, after_id in spans:
            changes = changes_since(self._snapshots, self._manifests, before_id, after_id)
            if changes is None:
                return history_gone(before_id, after_id)
            for snapshot, delta in changes:
                if not snapshot.commit_kind.moves_rows and all(e.bucket >= 0 for e in delta):
                    continue
                conflict = check_rows_unchanged(
                    delta, wanted.entries, self._key_order, wanted.common_keys or _may_hold_common_keys
                )
                if conflict is not None:
                    return conflict
        return None

    def _check_target(
        self, target: PartitionTest, latest: Snapshot | None, based_on: int, takes_postponed: bool
    ) -> Conflict | None:
        """Returns a Conflict, by the rule `target-changed`, if another writer has changed a replaced partition since
        the overwrite was planned; otherwise None. Changes of a postpone bucket count only if `takes_postponed` is true.
        """
        latest_id = 0 if latest is None else latest.id
        changes = changes_since(self._snapshots, self._manifests, based_on, latest_id)
        if changes is None:
            return history_gone(based_on, latest_id)
        for snapshot, delta in changes:
            for entry in delta:
                if target(entry.partition) and (entry.bucket >= 0 or takes_postponed):
                    return Conflict(
                        "target-changed",
                        f"snapshot {snapshot.id} ({snapshot.commit_kind.value} by {snapshot.commit_user}) changed a "
                        "partition that is being overwritten; plan the overwrite again on the newest snapshot",
                        {"partition": entry.partition.hex(), "bucket": entry.bucket, "snapshot": snapshot.id},
                    )
        return None


def _may_hold_common_keys(one: ManifestEntry, other: ManifestEntry) -> bool:
    del one, other
    return True


def history_gone(since: int, latest: int) -> Conflict:
    """Returns the conflict which says that work cannot be committed, because the snapshots since the work was planned
    can no longer be read.
    """
    return Conflict(
        HISTORY_GONE,
        f"the work was planned on snapshot {since}, but some of the snapshots from there to {latest} cannot be read: "
        "they have expired meanwhile, or the table was rolled back; plan the work again on the newest snapshot",
        {"found": latest, "expected": since},
    )
