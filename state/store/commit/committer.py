"""A commit: what was written becomes a snapshot, then what was compacted.

A commit is up to two snapshots: what was written (APPEND, or OVERWRITE), then what was compacted (COMPACT); each is one
half of it (`half_commit`). A lost race is a Conflict. An unclear outcome is Unknown, and then no file is deleted.
Source: Paimon 2.0 FileStoreCommitImpl.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from bucketline.conf.errors import BucketlineError
from bucketline.state.commit.changes import Changes, collect_changes
from bucketline.state.commit.conflict import CommonKeyTest, Conflict
from bucketline.state.commit.file_age import is_fresh
from bucketline.state.commit.manifest_merge import ManifestMergeOptions
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import CommitResult, Committed, Unknown
from bucketline.state.commit.plan import CommitIdentity
from bucketline.state.commit.replay import commit_user
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, CommitKind, Operation, Snapshot
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.catalog.live_files import TableView
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.owned import check_owned
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.table_handle import branch_path
from bucketline.state.store.commit.commit_base import Bases, PartitionTest
from bucketline.state.store.commit.commit_check import (
    AppendCheck,
    CommitChecks,
    Half,
    PlannedOn,
    append_half,
    compact_half,
)
from bucketline.state.store.commit.commit_retry import RetrySettings
from bucketline.state.store.commit.discard import discard_outputs, names_since
from bucketline.state.store.commit.half_commit import HalfCommit, TableStores, Work
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.local_io import LocalIO

__all__ = ["AppendCheck", "CommitResult", "Committed", "Committer", "Conflict", "PlannedOn", "Unknown"]


class Committer:
    """Commits to the table at `path`, one at a time; `schema` is any of its schemas, with the current options. One of
    these names the branch."""

    def __init__(self, io: FileIO, path: str, schema: TableSchema, world: World = SYSTEM_WORLD) -> None:
        partition_types = [f.type for f in schema.select(schema.partition_keys)]
        merging = ManifestMergeOptions.of(schema.settings.commit)
        codec = schema.settings.commit.manifest_codec
        manifests = Manifests(io, path, partition_types, ids=world.ids, merging=merging, codec=codec)
        root = branch_path(path, schema.settings.reading)
        self._table = TableStores(
            io=io,
            path=path,
            schema=schema,
            snapshots=Snapshots(io, root),
            schemas=Schemas(io, root),
            manifests=manifests,
            retries=RetrySettings.of(schema.settings.commit),
            world=world,
        )
        self._checks = CommitChecks(schema, self._table.snapshots, manifests)

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
        table, settings = self._table, self._table.schema.settings.commit
        check_owned(table.schema, table.io, table.snapshots.root)
        table.io.require_publish()
        operation_name = None if operation is None else operation.value
        user = commit_user(settings.user_prefix, user)
        identity = CommitIdentity(user, identifier, dict(properties or {}), watermark, operation_name)
        now_ms = table.world.clock.now_ms()
        if planned_ms is None:
            planned_ms, is_seen = now_ms, False
        else:
            is_seen = view is not None and view.live.snapshot is not None and is_fresh(now_ms - planned_ms)
        # On a local disk asking is quick.
        bases = Bases(table.snapshots, table.manifests, view, is_fresh=is_seen and not isinstance(table.io, LocalIO))
        work = Work(identity, bases, based_on, planned_ms)
        listed = list(messages)
        changes = collect_changes(listed)
        assert (overwrite is not None) == (kind is CommitKind.OVERWRITE), "OVERWRITE goes with its partitions"
        assert kind is not CommitKind.COMPACT or not changes.has_append, "a COMPACT commit cannot append"
        if overwrite is not None:
            _check_inside(overwrite, changes)
        made: tuple[Snapshot, ...] = ()
        if kind is not CommitKind.COMPACT and (overwrite is not None or self._appends(changes, identity, ignore_empty)):
            half = append_half(changes, overwrite, append_check, common_keys)
            outcome = HalfCommit(table, self._checks, half, work).publish()
            if not isinstance(outcome, Snapshot):
                return outcome
            made = (outcome,)
        if not changes.has_compact:
            return Committed(made)
        return self._commit_compaction(listed, compact_half(changes, None if made else planned), work, made)

    def _appends(self, changes: Changes, identity: CommitIdentity, ignore_empty: bool | None) -> bool:
        if changes.has_append or self._table.schema.settings.commit.force_snapshot:
            return True
        if ignore_empty is None:
            ignore_empty = self._table.schema.settings.commit.ignore_empty
        if ignore_empty is None:
            ignore_empty = identity.identifier == BATCH_COMMIT_IDENTIFIER
        # A commit that only compacts shows its identifier by the COMPACT snapshot, but that may be dropped.
        return not ignore_empty

    def _commit_compaction(
        self, messages: Sequence[CommitMessage], half: Half, work: Work, made: tuple[Snapshot, ...]
    ) -> CommitResult:
        own, based_on = made[0].id if made else None, work.based_on
        work = replace(work, identity=replace(work.identity, operation=None))
        outcome: Snapshot | Committed | Conflict | Unknown | BucketlineError
        try:
            outcome = HalfCommit(self._table, self._checks, half, work, own).publish()
        except BucketlineError as e:
            outcome = e
        if isinstance(outcome, Snapshot):
            return Committed((*made, outcome))
        assert not isinstance(outcome, Committed), "compactions have no twins"
        since = based_on if based_on is not None or own is None else own - 1
        if isinstance(outcome, Conflict) and since is not None:
            with suppress(BucketlineError):
                self._discard_outputs(messages, since)
        if made:
            # What was written is in the table; only the compaction has to be done again.
            return Committed(made, outcome)
        if isinstance(outcome, BucketlineError):
            raise outcome
        return outcome

    def _discard_outputs(self, messages: Sequence[CommitMessage], since: int) -> None:
        """Removes the files of lost compactions, after it is certain that no snapshot names them."""
        table = self._table
        taken_names = names_since(table.snapshots, table.manifests, since)
        if taken_names is not None:
            discard_outputs(table.io, table.path, table.schema, messages, taken_names)


def _check_inside(target: PartitionTest, changes: Changes) -> None:
    for entry in (*changes.append_entries, *changes.compact_entries):
        if not target(entry.partition):
            raise SchemaMismatchError(
                f"{entry.file.file_name} lies in a partition that is not being overwritten",
                file=entry.file.file_name,
                partition=entry.partition.hex(),
            )
