"""The commit loop: plan, write, publish, and return the outcome.

A commit is up to two snapshots: what was written (APPEND, or OVERWRITE), then what was compacted (COMPACT). Each is
tried until it is published, refused by a rule, or out of retries. A lost race is a Conflict. An unclear outcome is
Unknown, and then no file is deleted.
Source: Paimon 2.0 FileStoreCommitImpl; unlike there, tries that lost for certain leave no files behind.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from bucketline.conf.errors import BucketlineError
from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.commit.changes import Changes, collect_changes
from bucketline.state.commit.conflict import CommonKeyTest, Conflict
from bucketline.state.commit.file_age import is_fresh
from bucketline.state.commit.manifest_merge import ManifestMergeOptions
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import CommitResult, Committed, Unknown, outcome_unknown
from bucketline.state.commit.plan import CommitIdentity, SnapshotPlan, WrittenList, plan_snapshot
from bucketline.state.commit.replay import commit_user
from bucketline.state.determinism import (
    SYSTEM_CLOCK,
    SYSTEM_IDS,
    SYSTEM_PAUSE,
    SYSTEM_RANDOM,
    Clock,
    IdSource,
    Pause,
    Random,
)
from bucketline.state.errors import CorruptFileError, SchemaMismatchError, StorageError
from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, CommitKind, ManifestFileMeta, Operation, Snapshot
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.catalog.live_files import TableView
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.owned import check_owned
from bucketline.state.store.catalog.rollback import newest_to_write
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.table_handle import branch_path
from bucketline.state.store.commit.commit_base import CommitBase, PartitionTest
from bucketline.state.store.commit.commit_check import (
    AppendCheck,
    CommitChecks,
    Half,
    PlannedOn,
    append_half,
    compact_half,
)
from bucketline.state.store.commit.commit_proof import FilesProof, brought_files, files_gone
from bucketline.state.store.commit.commit_retry import Retries, RetrySettings
from bucketline.state.store.commit.discard import discard_manifests, discard_outputs, names_since
from bucketline.state.store.commit.fate import Fate
from bucketline.state.store.commit.publication import publish_snapshot
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.storage.queued_writes import QueuedWrites

__all__ = ["AppendCheck", "CommitResult", "Committed", "Committer", "Conflict", "PlannedOn", "Unknown"]

_LOOKS = 5


class Committer:
    """Commits to the table at `path`, one at a time; `schema` is any of its schemas, with the current options. One of
    these names the branch."""

    def __init__(
        self,
        io: FileIO,
        path: str,
        schema: TableSchema,
        *,
        clock: Clock = SYSTEM_CLOCK,
        ids: IdSource = SYSTEM_IDS,
        random: Random = SYSTEM_RANDOM,
        pause: Pause = SYSTEM_PAUSE,
    ) -> None:
        self._io, self._path, self._schema = io, path, schema
        self._clock, self._ids, self._random, self._pause = clock, ids, random, pause
        partition_types = [f.type for f in schema.select(schema.partition_keys)]
        merging = ManifestMergeOptions.of(schema.settings.commit)
        codec = schema.settings.commit.manifest_codec
        self._manifests = Manifests(io, path, partition_types, ids=ids, merging=merging, codec=codec)
        root = branch_path(path, schema.settings.reading)
        self._snapshots, self._schemas = Snapshots(io, root), Schemas(io, root)
        self._checks = CommitChecks(schema, self._snapshots, self._manifests)
        self._settings = RetrySettings.of(schema.settings.commit)
        self._planned_ms = 0
        self._is_fresh = False
        self._vectors_by_file = not bucket_mode(schema).has_buckets

    def commit(
        self,
        messages: Iterable[CommitMessage],
        *,
        user: str,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
        watermark: int | None = None,
        operation: Operation | None = None,
        kind: CommitKind = CommitKind.APPEND,
        overwrite: PartitionTest | None = None,
        append_check: AppendCheck = AppendCheck.BUCKET_COUNT,
        common_keys: CommonKeyTest | None = None,
        ignore_empty: bool | None = None,
        based_on: int | None = None,
        view: TableView | None = None,
        planned_ms: int | None = None,
        planned: PlannedOn | None = None,
    ) -> CommitResult:
        """Publishes the messages' files; Conflict and Unknown are about the first snapshot, see Committed.dropped.

        `user` is the writer's name: the commit user is the table's `commit.user-prefix` and this name.
        `kind` COMPACT commits compactions only, under an identifier that was used before. OVERWRITE replaces all live
        files of the partitions that pass `overwrite`, found anew at each try. `based_on` is the id of the snapshot the
        work was planned on (0: the empty table): a commit of the same user and identifier after it is recognised as
        this one; index files, and with OVERWRITE all files, of what is changed must be as they were then. `view` saves
        reading the table's manifests. `planned_ms` is when the work began, by this committer's clock (None: now), and
        when the view was refreshed: files that may be old by then are looked for before a snapshot is published, and a
        missing one is a Conflict. With COMPACT `planned` is what the table held at `based_on`: the commit comes through
        also when that snapshot has expired meanwhile.

        `operation` is written into the first snapshot, for people. `common_keys` says for ROWS_READ whether two files
        hold a key in common; without it their ranges of keys decide.

        Without changes there is a snapshot all the same, to show that the identifier is done, unless `ignore_empty`;
        None takes that from the table's options, and ignores empty batch commits (identifier 2^63-1).

        Raises SchemaMismatchError for new files outside the partitions to overwrite; StorageError when storage fails
        before anything could be published (what was written for the snapshots is removed); UnsupportedTableError where
        no commit is safe.
        """
        check_owned(self._schema, self._io, self._snapshots.root)
        self._io.require_publish()
        user = commit_user(self._schema.settings.commit.user_prefix, user)
        identity = CommitIdentity(
            user, identifier, dict(properties or {}), watermark, None if operation is None else operation.value
        )
        now_ms = self._clock.now_ms()
        self._planned_ms = now_ms if planned_ms is None else planned_ms
        # A view that was refreshed a moment ago is refreshed again only if the first try loses. On a local disk asking
        # is quick.
        was_seen = planned_ms is not None and view is not None and view.live.snapshot is not None
        self._is_fresh = was_seen and is_fresh(now_ms - self._planned_ms) and not isinstance(self._io, LocalIO)
        listed = list(messages)
        changes = collect_changes(listed)
        assert (overwrite is not None) == (kind is CommitKind.OVERWRITE), "OVERWRITE goes with its partitions"
        assert kind is not CommitKind.COMPACT or not changes.has_append, "a COMPACT commit cannot append"
        if overwrite is not None:
            _check_inside(overwrite, changes)
        made: tuple[Snapshot, ...] = ()
        if kind is not CommitKind.COMPACT and (overwrite is not None or self._appends(changes, identity, ignore_empty)):
            outcome = self._commit_half(
                append_half(changes, overwrite, append_check, common_keys), identity, based_on, view
            )
            if not isinstance(outcome, Snapshot):
                return outcome
            made = (outcome,)
        if not changes.has_compact:
            return Committed(made)
        return self._commit_compaction(listed, changes, identity, made, based_on, view, planned)

    def _appends(self, changes: Changes, identity: CommitIdentity, ignore_empty: bool | None) -> bool:
        if changes.has_append or self._schema.settings.commit.force_snapshot:
            return True
        if ignore_empty is None:
            ignore_empty = self._schema.settings.commit.ignore_empty
        if ignore_empty is None:
            ignore_empty = identity.identifier == BATCH_COMMIT_IDENTIFIER
        # A commit that only compacts shows its identifier by the COMPACT snapshot, but that may be dropped.
        return not ignore_empty

    def _commit_compaction(
        self,
        messages: Sequence[CommitMessage],
        changes: Changes,
        identity: CommitIdentity,
        made: tuple[Snapshot, ...],
        based_on: int | None,
        view: TableView | None,
        planned: PlannedOn | None,
    ) -> CommitResult:
        own = made[0].id if made else None
        outcome: Snapshot | Committed | Conflict | Unknown | BucketlineError
        try:
            half = compact_half(changes, None if made else planned)
            outcome = self._commit_half(half, replace(identity, operation=None), based_on, view, own)
        except BucketlineError as e:
            outcome = e
        if isinstance(outcome, Snapshot):
            return Committed((*made, outcome))
        assert not isinstance(outcome, Committed), "compactions have no twins"
        since = based_on if based_on is not None or not made else made[0].id - 1
        if isinstance(outcome, Conflict) and since is not None:
            with suppress(BucketlineError):
                self._discard_outputs(messages, since)
        if made:
            # What was written is in the table; only the compaction has to be done again.
            return Committed(made, outcome)
        if isinstance(outcome, BucketlineError):
            raise outcome
        return outcome

    def _commit_half(
        self,
        half: Half,
        identity: CommitIdentity,
        based_on: int | None,
        view: TableView | None,
        own: int | None = None,
    ) -> Snapshot | Committed | Conflict | Unknown:
        """The new snapshot, or why there is none; Committed when another run with the same commit user published it."""
        retries = Retries(self._settings, self._clock, self._random, self._pause)
        of_half: list[str] = []
        delta: list[ManifestFileMeta] | None = None
        seen = based_on
        tried: CommitBase | None = None
        missed = 0
        brought = brought_files(self._path, self._schema, half)
        proof = FilesProof(self._io, self._schema, brought, self._clock, planned_ms=self._planned_ms)
        while True:
            of_try: list[str] = []
            of_delta: list[str] = []
            base: CommitBase | None = None
            try:
                base = self._base(view, retries)
                if tried is not None:
                    seen = self._checks.looked_at(tried.latest, base.latest, based_on)
                plan = self._plan(half, identity, base, based_on, seen, own)
                if not isinstance(plan, SnapshotPlan):
                    discard_manifests(self._manifests, of_half)
                    return plan
                queue = QueuedWrites(self._io)
                written = delta
                if written is None or half.overwrite is not None:
                    written = self._manifests.recording(of_delta, queue).write(plan.delta_entries, plan.schema_id)
                snapshot = self._write(plan, base, written, self._manifests.recording(of_try, queue), retries)
                queue.flush()
                delta = written
                (of_half if half.overwrite is None else of_try).extend(of_delta)
                of_delta.clear()
                proof.add_manifests([self._manifests.path(name) for name in (*of_half, *of_try)])
                gone = proof.first_gone()
            except BucketlineError as e:
                # Nothing of this half was published: every earlier try is known to have lost.
                discard_manifests(self._manifests, [*of_delta, *of_try])
                missed += bool(e.fields.get("missing"))
                if self._may_come_right(base, e, missed) and retries.wait():
                    tried = base or tried
                    continue
                discard_manifests(self._manifests, of_half)
                raise
            if gone is not None:
                discard_manifests(self._manifests, of_half + of_try)
                return files_gone(gone)
            publication = publish_snapshot(self._snapshots, self._manifests, snapshot, retries, proof, base.latest)
            if publication.fate is Fate.UNKNOWN:
                return outcome_unknown(snapshot, str(publication.error))
            if publication.fate is Fate.WON:
                if view is not None:
                    view.follow(snapshot, plan.delta_entries)
                self._write_hints(snapshot, proof)
                return snapshot
            discard_manifests(self._manifests, of_try)
            if publication.gone is not None:
                discard_manifests(self._manifests, of_half)
                return files_gone(publication.gone)
            if publication.error is not None:
                discard_manifests(self._manifests, of_half)
                raise publication.error
            if not retries.wait():
                discard_manifests(self._manifests, of_half)
                return _gave_up(snapshot, retries.done)
            tried = base

    def _may_come_right(self, base: CommitBase | None, error: BucketlineError, missed: int) -> bool:
        """Whether a file is missing because its snapshot expired, or was taken back, before all of it was read.

        A file can also be missing for a moment, of the newest snapshot: while its writer takes it back, or a removal
        of orphans has put it aside. So it is looked for `_LOOKS` times.
        """
        if not isinstance(error, StorageError) or not error.fields.get("missing"):
            return False
        latest = None if base is None else base.latest
        return missed <= _LOOKS or (latest is not None and self._snapshots.is_gone(latest, error))

    def _base(self, view: TableView | None, retries: Retries) -> CommitBase:
        """The newest snapshot, as the base of a try."""
        if view is None:
            return CommitBase(newest_to_write(self._snapshots), self._manifests, None)
        if retries.done > 0:
            self._is_fresh = False
        live = view.live if self._is_fresh else view.refresh()
        return CommitBase(live.snapshot, self._manifests, live)

    def _plan(
        self,
        half: Half,
        identity: CommitIdentity,
        base: CommitBase,
        based_on: int | None,
        seen: int | None,
        own: int | None,
    ) -> SnapshotPlan | Committed | Conflict:
        """The next snapshot, checked by the rules; `seen` is the newest snapshot known to be no commit of this one."""
        twin = self._checks.find_twin(half, identity, base.latest, seen)
        if isinstance(twin, Snapshot):
            return Committed((twin,), replayed=True)
        stranger = None
        if half.check is AppendCheck.ONE_WRITER and based_on is not None and own is None:
            stranger = self._checks.find_stranger(identity, base.latest, based_on)
        fit = twin or stranger or self._checks.fit(half, base, based_on, own)
        if isinstance(fit, Conflict):
            return fit
        return plan_snapshot(
            base.latest,
            kind=half.kind,
            entries=fit.entries,
            changelog=half.changelog,
            base_index=fit.base_index,
            delta_index=fit.index,
            vectors_by_file=self._vectors_by_file,
            identity=identity,
            schema_id=self._newest_schema_id(base.latest),
            uuid=self._ids.new_uuid(),
            now_ms=self._clock.now_ms(),
        )

    def _newest_schema_id(self, latest: Snapshot | None) -> int:
        if self._is_fresh:
            return max(self._schema.id, 0 if latest is None else latest.schema_id)
        newest_id = self._schemas.latest_id()
        if newest_id is None:
            raise CorruptFileError(f"{self._path} has no schema any more: the table was dropped", path=self._path)
        return newest_id

    def _write(
        self,
        plan: SnapshotPlan,
        base: CommitBase,
        delta: Sequence[ManifestFileMeta],
        store: Manifests,
        retries: Retries,
    ) -> Snapshot:
        """Writes the lists that the snapshot names into `store`."""
        before = base.manifests()
        # Under contention the merge would probably be lost again; a later commit does it.
        after = store.merge(before, plan.schema_id) if retries.done == 0 else before
        base_list = WrittenList(*store.write_list(after))
        delta_list = WrittenList(*store.write_list(delta))
        changelog = None
        if plan.changelog_entries:
            changelog = WrittenList(*store.write_list(store.write(plan.changelog_entries, plan.schema_id)))
        index = None if plan.index_entries is None else store.write_index(plan.index_entries)
        return plan.snapshot(base=base_list, delta=delta_list, changelog=changelog, index_manifest=index)

    def _write_hints(self, snapshot: Snapshot, proof: FilesProof) -> None:
        """Hints are optional: readers find the snapshot without them. Paimon believes one that names a snapshot without
        a follower, so a writer that was stopped until both had expired corrects what it wrote."""
        with suppress(StorageError):
            self._snapshots.write_latest_hint(snapshot.id)
            if not proof.is_certain and not self._snapshots.exists(snapshot.id):
                self._snapshots.write_latest_hint(max(self._snapshots.ids(), default=snapshot.id))
            if snapshot.id == 1:
                self._snapshots.write_earliest_hint(1)

    def _discard_outputs(self, messages: Sequence[CommitMessage], since: int) -> None:
        """Removes the files of lost compactions, after it is certain that no snapshot names them."""
        taken_names = names_since(self._snapshots, self._manifests, since)
        if taken_names is not None:
            discard_outputs(self._io, self._path, self._schema, messages, taken_names)


def _check_inside(target: PartitionTest, changes: Changes) -> None:
    for entry in (*changes.append_entries, *changes.compact_entries):
        if not target(entry.partition):
            raise SchemaMismatchError(
                f"{entry.file.file_name} lies in a partition that is not being overwritten",
                file=entry.file.file_name,
                partition=entry.partition.hex(),
            )


def _gave_up(snapshot: Snapshot, retries: int) -> Conflict:
    return Conflict(
        "retries",
        f"other writers took snapshot {snapshot.id} and those before it, and {retries} retries did not help: raise "
        "commit.max-retries or commit.timeout, or let fewer jobs write the table",
        {"snapshot": snapshot.id, "retries": retries},
    )
