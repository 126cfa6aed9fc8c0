"""One writer's hold on a table between its commits: newest schema, write plan, view of the live files, committer.

A stream keeps one open for as long as it runs, so that a batch reads what has changed and nothing else; a single write
opens one and drops it. Not shared between threads.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from bucketline.conf.advice import advise_write
from bucketline.conf.table.read_options import named_branch
from bucketline.conf.table.table_options import BUCKET
from bucketline.state.commit.conflict import ALREADY_ADDED
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.partition_age import partition_time
from bucketline.state.errors import SchemaMismatchError, StorageError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, CommitKind, Operation, Snapshot
from bucketline.state.format.paths import partition_path
from bucketline.state.lsm.merge.overflow_risk import may_overflow
from bucketline.state.store.catalog.external_folders import claim_folders
from bucketline.state.store.catalog.live_files import BucketId, LiveFiles, TableView
from bucketline.state.store.catalog.owned import check_partitions_kept
from bucketline.state.store.catalog.table_handle import TableHandle, open_handle
from bucketline.state.store.commit.commit_check import AppendCheck
from bucketline.state.store.commit.committer import CommitResult, Committed, Committer, Conflict, PlannedOn
from bucketline.state.store.commit.discard import discard_made
from bucketline.state.store.commit.overflow_check import refuse_overflow
from bucketline.state.store.compact.append_compact import append_options
from bucketline.state.store.compact.common_keys import hold_common_keys
from bucketline.state.store.index.hash_index_store import hash_entries
from bucketline.state.store.read.bucket_deletions import VectorFiles, deletion_entries
from bucketline.state.store.storage.parallel import all_at_once
from bucketline.state.store.write.bucket_writer import BucketState, CompactTrigger
from bucketline.state.store.write.compact_due import due_buckets, may_compact, may_join
from bucketline.state.store.write.grouping import HashEntries
from bucketline.state.store.write.modes import plan_write
from bucketline.state.store.write.write_plan import WritePlan

_LOG = logging.getLogger(__name__)


class WriteSession:
    """Opens the table at `uri` for writing with a job's options; nothing is written before `commit`.

    `storage` says how its storage is reached; a `table` that is open already knows that. `is_stream` as in `WritePlan`.
    """

    def __init__(
        self,
        uri: str,
        job_options: Mapping[str, str],
        *,
        storage: Mapping[str, str] | None = None,
        table: TableHandle | None = None,
        is_stream: bool = False,
    ) -> None:
        self.table = table if table is not None else open_handle(uri, storage, named_branch(job_options))
        self._is_stream = is_stream
        self._planned_ms = self.table.world.clock.now_ms()
        self._job_options = {**self.table.write_options, **job_options}
        self.plan: WritePlan = self._plan(self.table)
        self._claimed: tuple[str, ...] = ()
        self._view = TableView(self.table.snapshot_store, self.table.manifests)
        self._committer = self._new_committer()
        self._hashes: tuple[str | None, HashEntries] = (None, {})
        self._vectors: tuple[str | None, Mapping[BucketId, VectorFiles]] = (None, {})

    def twin(self) -> "WriteSession":
        """Another session of the same table with the same options, for another thread."""
        return WriteSession(self.table.uri, self._job_options, table=self.table, is_stream=self._is_stream)

    def refresh(self) -> Snapshot | None:
        """Follows the table to its newest schema and snapshot; returns the snapshot. Errors as for a new session.

        What is committed next counts as begun now: its files are younger.
        """
        self._planned_ms = self.table.world.clock.now_ms()
        asked: list[Callable[[], TableHandle | LiveFiles]] = [self.table.refreshed, self._view.refresh]
        newest, live = all_at_once(self.table.io, asked)
        assert isinstance(newest, TableHandle) and isinstance(live, LiveFiles)
        if live.snapshot is not None and live.snapshot.schema_id > newest.table_schema.id:
            # The schema was read before somebody changed it and wrote, or the one that follows it is missing: a
            # compaction would drop what is new in rows.
            newest = self.table.refreshed(lists=True)
        self._claim_folders(newest)
        if newest.table_schema != self.table.table_schema:
            self.table = newest
            self.plan = self._plan(newest)
            self._committer = self._new_committer()
        return live.snapshot

    def _claim_folders(self, table: TableHandle) -> None:
        """Before the first file is written outside the table's folder."""
        wanted = replace(table.table_schema, options={**table.table_schema.options, **self.plan.schema.options})
        if wanted.settings.paths.external_roots != self._claimed:
            claim_folders(table.io, table.path, wanted)
            self._claimed = wanted.settings.paths.external_roots

    @property
    def view(self) -> LiveFiles:
        """The live files at the newest snapshot that the session has seen."""
        return self._view.live

    @property
    def follower(self) -> TableView:
        """What brings the view to the newest snapshot: for a committer that is not this session's."""
        return self._view

    def follow(self) -> LiveFiles:
        """The live files at the newest snapshot; the schema stays as it is."""
        return self._view.refresh()

    def bucket_states(self, trigger: CompactTrigger) -> dict[BucketId, BucketState]:
        """What write tasks must know of each bucket; live files only where a compaction may happen."""
        compacting = trigger is not CompactTrigger.NONE
        vectors = self.deletion_entries()
        states = {}
        for bucket_id in self.view.buckets():
            files = self.view.files(bucket_id)
            needed = compacting and self._may_compact(files, trigger)
            next_number = self.view.next_sequence_number(bucket_id)
            states[bucket_id] = BucketState(
                next_number,
                files if needed else (),
                needed or not files,
                vectors.get(bucket_id, ()) if needed else (),
            )
        return states

    def _may_compact(self, files: Sequence[DataFileMeta], trigger: CompactTrigger) -> bool:
        if self.plan.schema.primary_keys:
            return may_compact(files, trigger, self.plan.compact_options)
        return may_join(files, trigger, append_options(self.plan.schema.settings))

    def hash_entries(self) -> HashEntries:
        """The HASH files of each partition at the view's snapshot; the list is read when it has changed."""
        snapshot = self.view.snapshot
        name = None if snapshot is None else snapshot.index_manifest
        if name != self._hashes[0]:
            self._hashes = (name, hash_entries(self.table.manifests.read_index(name)))
        return self._hashes[1]

    def deletion_entries(self) -> Mapping[BucketId, VectorFiles]:
        """The deletion-vector files of each bucket at the view's snapshot; the list is read when it has changed."""
        if not self.plan.compact_options.deletion_vectors:
            return {}
        snapshot = self.view.snapshot
        name = None if snapshot is None else snapshot.index_manifest
        if name != self._vectors[0]:
            self._vectors = (name, deletion_entries(self.table.manifests.read_index(name)))
        return self._vectors[1]

    def due(self, trigger: CompactTrigger, among: Collection[BucketId] | None = None) -> list[BucketId]:
        """The buckets in which the trigger would compact something now; of these, if some are named."""
        return due_buckets(self.view, self.plan, trigger, self.deletion_entries(), among=among)

    def commit(
        self,
        messages: Iterable[CommitMessage],
        *,
        user: str,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
        kind: CommitKind = CommitKind.APPEND,
        ignore_empty: bool | None = None,
        check: AppendCheck | None = None,
        operation: Operation | None = None,
    ) -> Committed:
        """Commits what was planned on the view as it is now, and says what came of it.

        `ignore_empty` and `operation` as for `Committer.commit`; `check` says what must not have happened meanwhile,
        where it is more than the bucket mode asks. A compaction that lost is in `Committed.dropped`, also when `kind`
        says that there is nothing else to commit. Raises CommitConflictError when the messages' rows are not in the
        table and will not be (FilesGoneError where somebody else removed some of their files, and the work has to be
        done again), SchemaMismatchError when they could never be merged with it (their files are removed);
        CommitOutcomeUnknownError when nobody knows.
        """
        to_commit = list(messages)
        self._refuse_timeless(to_commit)
        if kind is CommitKind.APPEND:
            self._refuse_overflow(to_commit)
        try:
            outcome = self._committer.commit(
                to_commit,
                user=user,
                identifier=identifier,
                properties=properties,
                kind=kind,
                ignore_empty=ignore_empty,
                operation=operation,
                based_on=0 if self.view.snapshot is None else self.view.snapshot.id,
                view=self._view,
                append_check=check or self.plan.mode.append_check,
                common_keys=partial(hold_common_keys, self.plan.access),
                planned_ms=self._planned_ms,
                planned=PlannedOn(self.view, self.deletion_entries()) if kind is CommitKind.COMPACT else None,
            )
        except StorageError as e:
            if kind is not CommitKind.COMPACT:
                raise
            return Committed(dropped=e)
        if kind is CommitKind.COMPACT and not isinstance(outcome, Committed):
            return Committed(dropped=outcome)
        if isinstance(outcome, Conflict) and kind is CommitKind.APPEND and outcome.rule != ALREADY_ADDED:
            self.discard(to_commit)
        return _checked(outcome)

    def overwrite(
        self, messages: Iterable[CommitMessage], *, user: str, partitions: Collection[bytes], bucket_num: int
    ) -> Committed:
        """Replaces all rows of partitions, planned on the view as it is now, by buckets that number `bucket_num`.

        Postponed files stay. Raises as `commit`, also when somebody has changed one of the partitions since.
        """
        to_commit = list(messages)
        schema = replace(self.plan.schema, options={**self.plan.schema.options, BUCKET.key: str(bucket_num)})
        committer = Committer(self.table.io, self.table.path, schema, self.table.world)
        outcome = committer.commit(
            to_commit,
            user=user,
            kind=CommitKind.OVERWRITE,
            overwrite=frozenset(partitions).__contains__,
            based_on=0 if self.view.snapshot is None else self.view.snapshot.id,
            view=self._view,
            planned_ms=self._planned_ms,
        )
        if isinstance(outcome, Conflict) and outcome.rule != ALREADY_ADDED:
            self.discard(to_commit)
        return _checked(outcome)

    def replace_partitions(
        self,
        messages: Iterable[CommitMessage],
        *,
        user: str,
        target: Callable[[bytes], bool],
        operation: Operation | None = None,
    ) -> Committed:
        """Replaces whatever the partitions that pass `target` hold when the commit comes through, postponed rows too.

        Raises as `commit`.
        """
        to_commit = list(messages)
        self._refuse_timeless(to_commit)
        outcome = self._committer.commit(
            to_commit,
            user=user,
            kind=CommitKind.OVERWRITE,
            overwrite=target,
            operation=operation,
            view=self._view,
            planned_ms=self._planned_ms,
        )
        if isinstance(outcome, Conflict):
            self.discard(to_commit)
        return _checked(outcome)

    def _refuse_timeless(self, messages: Sequence[CommitMessage]) -> None:
        schema = self.plan.schema
        if not (schema.partition_keys and schema.settings.expiry.refuses_timeless):
            return
        for m in messages:
            if m.new_files and partition_time(schema, m.partition) is None:
                self.discard(messages)
                where = partition_path(schema, m.partition).rstrip("/")
                raise SchemaMismatchError(
                    f"partition {where} holds no time that 'partition.timestamp-pattern' and "
                    "'partition.timestamp-formatter' can read, which 'partition.timestamp-format.strict' asks for",
                    partition=where,
                )

    def _refuse_overflow(self, messages: Sequence[CommitMessage]) -> None:
        if not may_overflow(self.plan.schema):
            return
        access = self.plan.access
        try:
            for m in messages:
                bucket_id = (m.partition, m.bucket)
                older = self.view.files(bucket_id)
                refuse_overflow(access, bucket_id, older, m.new_files, memory_bytes=self.plan.sink.merge_memory_bytes)
        except SchemaMismatchError:
            self.discard(messages)
            raise

    def discard(self, messages: Iterable[CommitMessage]) -> None:
        """Removes the files of messages that no snapshot names and none will; failures leave them behind."""
        discard_made(self.table.io, self.table.path, self.plan.schema, messages)

    def _plan(self, table: TableHandle) -> WritePlan:
        plan = plan_write(
            table.uri, table.table_schema, self._job_options, is_stream=self._is_stream, world=table.world
        )
        check_partitions_kept(plan.schema, table.io, table.path)
        for sentence in advise_write({**plan.schema.options, **self._job_options}):
            _tell_once(table.path, sentence)
        return plan

    def _new_committer(self) -> Committer:
        return Committer(self.table.io, self.table.path, self.plan.schema, self.table.world)


@cache
def _tell_once(path: str, sentence: str) -> None:
    _LOG.warning("%s: %s", path, sentence)


def _checked(outcome: CommitResult) -> Committed:
    if isinstance(outcome, Committed):
        return outcome
    raise outcome.error()
