"""Publishes one snapshot of a commit: tries until the snapshot is published, a conflict rule refuses it, or no retries
are left.

Each try plans on the newest snapshot, writes the files that the new snapshot names, and publishes it.

Source: Paimon 2.0 FileStoreCommitImpl. Unlike in Paimon, tries that have certainly lost leave no files.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from bucketline.conf.errors import BucketlineError
from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import AppendCheck
from bucketline.state.commit.changes import combine_index
from bucketline.state.commit.conflict import Conflict, check_new_totals
from bucketline.state.commit.manifest_merge import ManifestMergeOptions
from bucketline.state.commit.outcome import Committed, Unknown, outcome_unknown
from bucketline.state.commit.plan import SnapshotPlan, WrittenList, plan_snapshot
from bucketline.state.determinism import World
from bucketline.state.errors import BranchNotFoundError, CorruptFileError, SchemaMismatchError, StorageError
from bucketline.state.format.entries import ManifestFileMeta, Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.metadata_records import Encoding
from bucketline.state.format.row_ranges import tracks_rows
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.commit.commit_base import Bases, CommitBase
from bucketline.state.store.commit.commit_check import CommitChecks, Fit, SnapshotChanges
from bucketline.state.store.commit.commit_proof import (
    FilesProof,
    brought_files,
    check_own_schema,
    check_published,
    files_gone,
)
from bucketline.state.store.commit.commit_retry import Retries, RetrySettings
from bucketline.state.store.commit.discard import discard_manifests
from bucketline.state.store.commit.publication import publish_snapshot
from bucketline.state.store.commit.publish_outcome import Publication, PublishOutcome
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.parallel import QueuedWrites

_LOOKS = 5

Ended = Snapshot | Committed | Conflict | Unknown
"""How the tries ended: the snapshot, or why there is none; Committed if another run with the same commit user has
already published the snapshot.
"""


@dataclass(frozen=True, slots=True)
class TableStores:
    """Access to the metadata of the table to which a commit writes, the number of tries of a commit, and the `world`
    that supplies time, ids and random numbers.
    """

    io: FileIO
    path: str
    schema: TableSchema
    snapshots: Snapshots
    schemas: Schemas
    manifests: Manifests
    retries: RetrySettings
    world: World

    @classmethod
    def of(cls, table: TableHandle) -> "TableStores":
        """Returns the objects with which a commit reads and writes the table's metadata (snapshots, schemas,
        manifests). They follow the options that the table's schema sets for commits.
        """
        schema, root = table.table_schema, table.metadata_path
        settings = schema.settings.commit
        return cls(
            io=table.io,
            path=table.path,
            schema=schema,
            snapshots=Snapshots(table.io, root),
            schemas=Schemas(table.io, root),
            manifests=Manifests(
                table.io,
                table.path,
                [f.type for f in schema.select(schema.partition_keys)],
                world=table.world,
                merging=ManifestMergeOptions.of(settings),
                encoding=Encoding(settings.manifest_format, settings.manifest_codec),
            ),
            retries=RetrySettings.of(settings),
            world=table.world,
        )


@dataclass(frozen=True, slots=True)
class CommitWork:
    """What both snapshots of a commit have in common: the author, the reader of base snapshots (`bases`), the time at
    which the work was planned, and the id `based_on` of the snapshot on which the work was planned (None: any
    snapshot).
    """

    author: Author
    bases: Bases
    based_on: int | None
    planned_ms: int
    planned_on: Snapshot | None = None
    """The snapshot with the id `based_on`; None if it is not known."""

    def of_compaction(self) -> "CommitWork":
        """Returns a copy for the second snapshot of the commit, which has the compactions. The copy lacks the author's
        operation (a note for people), because only the first snapshot records it.
        """
        return replace(self, author=replace(self.author, operation=None))


class SnapshotCommit:
    """The commit of one snapshot, which makes the changes `wanted`. If this is the second snapshot of a commit, `own`
    is the id of the first.

    The attributes belong together because the tries of one snapshot share them: a try must know what earlier tries have
    seen, which files it may use again, and which files have to be removed if it loses.
    """

    def __init__(
        self,
        table: TableStores,
        checks: CommitChecks,
        wanted: SnapshotChanges,
        work: CommitWork,
        own: int | None = None,
    ) -> None:
        self.table, self._checks, self._wanted, self.work, self._own = table, checks, wanted, work, own
        self._retries = Retries(table.retries, table.world)
        brought = brought_files(table.path, table.schema, wanted)
        self._proof = FilesProof(table.io, table.schema, brought, table.world, planned_ms=work.planned_ms)
        # The newest snapshot that is known not to belong to this commit.
        self._seen = work.based_on
        self._delta: list[ManifestFileMeta] | None = None
        self._last_base: CommitBase | None = None
        self._missed = 0
        # Files of the manifest folder that all tries use, and files that one try uses.
        self._kept: list[str] = []
        self._of_try: list[str] = []

    def publish(self) -> Ended:
        """Tries to publish the snapshot until it is published, a rule refuses it, or no retries are left. Returns the
        published snapshot, or a value that says why there is none. Raises the errors of the function `publish`.
        """
        while True:
            ended = self._try_once()
            if ended is not None:
                return ended

    def _try_once(self) -> Ended | None:
        """Tries once to publish the snapshot. Returns the snapshot, or the reason why it was not published; None if
        another writer was faster and another try is due.
        """
        self._of_try = []
        base: CommitBase | None = None
        try:
            base = self.work.bases.newest(is_retry=self._retries.done > 0)
            plan = self._plan(base)
            if not isinstance(plan, SnapshotPlan):
                self._discard_kept()
                return plan
            snapshot = self._write(plan, base)
            gone = self._proof.first_gone()
        except BucketlineError as e:
            # No snapshot was published: every earlier try is known to have lost.
            self._discard_try()
            self._missed += isinstance(e, StorageError) and e.missing
            if self._may_come_right(base, e) and self._retries.wait():
                self._last_base = base or self._last_base
                return None
            self._discard_kept()
            raise
        if gone is not None:
            self._discard_try()
            self._discard_kept()
            return files_gone(gone)
        publication = publish_snapshot(
            self.table.snapshots, self.table.manifests, snapshot, self._retries, self._proof, base.latest
        )
        if publication.outcome is PublishOutcome.UNKNOWN:
            return outcome_unknown(snapshot, str(publication.error))
        if publication.outcome is PublishOutcome.WON:
            self.work.bases.follow(snapshot, plan.delta_entries)
            self._write_hints(snapshot)
            return self._checked(snapshot)
        self._last_base = base
        return self._lost(snapshot, publication)

    def _plan(self, base: CommitBase) -> SnapshotPlan | Committed | Conflict:
        """Checks the conflict rules against the newest snapshot (`base`), and returns the plan of the next snapshot. If
        there is nothing to publish, returns the result of the commit instead; if a rule refuses the snapshot, returns
        the Conflict.
        """
        wanted, table, based_on, author = self._wanted, self.table, self.work.based_on, self.work.author
        if self._last_base is not None:
            self._seen = self._checks.looked_at(self._last_base.latest, base.latest, based_on)
        replayed = self._checks.find_replayed(wanted, author, base.latest, self._seen)
        if isinstance(replayed, Snapshot):
            return Committed((replayed,), replayed=True)
        second_writer = None
        if wanted.check is AppendCheck.ONE_WRITER and based_on is not None and self._own is None:
            second_writer = self._checks.find_other_writer(author, base.latest, based_on)
        replaced = self._checks.find_replaced(wanted, self.work.planned_on)
        fit = replayed or second_writer or replaced or self._checks.fit(wanted, base, based_on, self._own)
        if isinstance(fit, Conflict):
            return fit
        newest_id = self._newest_schema_id(base.latest)
        other = self._other_bucket_count(fit, base, newest_id)
        if other is not None:
            return other
        vectors_by_file = not bucket_mode(table.schema).has_buckets
        index = combine_index(fit.base_index, fit.index, vectors_by_file=vectors_by_file) if fit.index else None
        return plan_snapshot(
            base.latest,
            kind=wanted.kind,
            entries=fit.entries,
            changelog=wanted.changelog,
            index=index,
            author=author,
            schema_id=newest_id,
            uuid=table.world.ids.new_uuid(),
            now_ms=table.world.clock.now_ms(),
            tracks_rows=tracks_rows(table.schema),
        )

    def _other_bucket_count(self, fit: Fit, base: CommitBase, newest_id: int) -> Conflict | None:
        """Returns a Conflict if files for a new or replaced partition were written for another number of buckets than
        the newest schema has; otherwise None.
        """
        schema, wanted = self.table.schema, self._wanted
        if newest_id <= schema.id or wanted.moves_rows or schema.settings.bucket.count <= 0:
            return None
        count = self.table.schemas.get(newest_id).settings.bucket.count
        if count == schema.settings.bucket.count or count <= 0:
            return None
        partitions = {e.partition for e in wanted.entries}
        replaced = wanted.overwrite
        kept = partitions if replaced is None else {p for p in partitions if not replaced(p)}
        return check_new_totals(wanted.entries, base.totals(kept), count)

    def _newest_schema_id(self, latest: Snapshot | None) -> int:
        table = self.table
        if self.work.bases.is_fresh:
            return max(table.schema.id, 0 if latest is None else latest.schema_id)
        newest_id = table.schemas.latest_id()
        if newest_id is None:
            raise CorruptFileError(
                f"{table.path} has no schema any more, because the table was dropped", path=table.path
            )
        based_on = self.work.based_on
        has_moved = based_on is not None and (0 if latest is None else latest.id) != based_on
        if has_moved or self._retries.done > 0 or table.schema.id > newest_id:
            check_own_schema(table.snapshots, table.schema)
        return newest_id

    def _checked(self, snapshot: Snapshot) -> Snapshot | Unknown:
        """Checks, after a snapshot was published, that its branch and its schema still exist. Returns the snapshot, or
        Unknown if the storage does not answer. If the branch or the schema is gone, removes the files of the commit,
        and raises BranchNotFoundError or SchemaMismatchError.
        """
        try:
            check_published(self.table.snapshots, snapshot, self.table.schema)
        except (BranchNotFoundError, SchemaMismatchError):
            self._discard_try()
            self._discard_kept()
            raise
        except StorageError as e:
            return outcome_unknown(snapshot, str(e))
        return snapshot

    def _write(self, plan: SnapshotPlan, base: CommitBase) -> Snapshot:
        """Writes the files that the snapshot names, and returns the snapshot."""
        queue = QueuedWrites(self.table.io)
        store = self.table.manifests.recording(self._of_try, queue)
        delta, is_of_try = self._delta, self._wanted.overwrite is not None or tracks_rows(self.table.schema)
        if delta is None or is_of_try:
            delta = store.write(plan.delta_entries, plan.schema_id)
        delta_files = len(self._of_try)
        snapshot = self._write_lists(plan, base, delta, store)
        queue.flush()
        if not is_of_try:
            # The next try has the same delta. There are two exceptions: an overwrite deletes the files that it finds in
            # that try, and with row tracking the row ids are the ids that are free in that try.
            self._delta = delta
            self._kept += self._of_try[:delta_files]
            del self._of_try[:delta_files]
        self._proof.add_manifests([store.path(name) for name in (*self._kept, *self._of_try)])
        return snapshot

    def _write_lists(
        self, plan: SnapshotPlan, base: CommitBase, delta: Sequence[ManifestFileMeta], store: Manifests
    ) -> Snapshot:
        before = base.manifests()
        # If several writers compete, this try would probably lose, and the merge would be wasted; a later commit does
        # it.
        after = store.merge(before, plan.schema_id) if self._retries.done == 0 else before
        base_list = WrittenList(*store.write_list(after))
        delta_list = WrittenList(*store.write_list(delta))
        changelog = None
        if plan.changelog_entries:
            changelog = WrittenList(*store.write_list(store.write(plan.changelog_entries, plan.schema_id)))
        index = None if plan.index_entries is None else store.write_index(plan.index_entries)
        return plan.snapshot(base=base_list, delta=delta_list, changelog=changelog, index_manifest=index)

    def _lost(self, snapshot: Snapshot, publication: Publication) -> Conflict | None:
        """Waits before the next try and returns None. Returns a Conflict if there is no next try."""
        self._discard_try()
        if publication.gone is None and publication.error is None and self._retries.wait():
            return None
        self._discard_kept()
        if publication.gone is not None:
            return files_gone(publication.gone)
        if publication.error is not None:
            raise publication.error
        return _gave_up(snapshot, self._retries.done)

    def _may_come_right(self, base: CommitBase | None, error: BucketlineError) -> bool:
        """Returns True if the commit may be tried again after this error: a file was missing, perhaps only because its
        snapshot expired, or was taken back, while a try was reading the snapshot.

        A file of the newest snapshot can also be missing for a moment: while its writer takes the snapshot back, or
        while orphan removal has hidden the file. So the commit is tried again up to `_LOOKS` times.
        """
        if not isinstance(error, StorageError) or not error.missing:
            return False
        latest = None if base is None else base.latest
        return self._missed <= _LOOKS or (latest is not None and self.table.snapshots.is_gone(latest, error))

    def _discard_try(self) -> None:
        discard_manifests(self.table.manifests, self._of_try)

    def _discard_kept(self) -> None:
        discard_manifests(self.table.manifests, self._kept)

    def _write_hints(self, snapshot: Snapshot) -> None:
        """Writes the hint that names the newest snapshot, and after the first commit the hint that names the oldest.
        Readers do not need the hints. But if the hint names a snapshot and the next snapshot does not exist, Paimon
        takes the named snapshot for the newest. A writer that was paused may name a snapshot in the hint that has
        expired or was rolled back. In that case the writer corrects the hint.
        """
        snapshots = self.table.snapshots
        with suppress(StorageError):
            snapshots.write_latest_hint(snapshot.id)
        with suppress(StorageError):
            # The hint may have been written although the storage answered with an error.
            if not self._proof.is_prompt and not snapshots.exists(snapshot.id):
                snapshots.write_latest_hint(max(snapshots.ids(), default=snapshot.id))
            if snapshot.id == 1:
                snapshots.write_earliest_hint(1)


def _gave_up(snapshot: Snapshot, retries: int) -> Conflict:
    return Conflict(
        "retries",
        f"other writers took the id {snapshot.id} and the ids before it, and {retries} retries did not help: raise "
        "commit.max-retries or commit.timeout, or let fewer jobs write the table",
        {"snapshot": snapshot.id, "retries": retries},
    )
