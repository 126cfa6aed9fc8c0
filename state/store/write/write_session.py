"""One writer's hold on a table between its commits: newest schema, write plan, view of the live files.

A stream keeps one open for as long as it runs, so that a batch reads what has changed and nothing else; a single write
opens one and drops it. Not shared between threads.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from bucketline.conf.advice import advise_write
from bucketline.conf.table.read_options import named_branch
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Append, AppendCheck, Change, Compact, Replace
from bucketline.state.commit.conflict import ALREADY_ADDED, Conflict
from bucketline.state.commit.live_files import BucketId, LiveFiles
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.commit.padded_keys import refuse_unpadded_keys
from bucketline.state.commit.partition_age import partition_time
from bucketline.state.errors import SchemaMismatchError, StorageError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.paths import partition_path
from bucketline.state.lsm.merge.overflow_risk import may_overflow
from bucketline.state.store.catalog.external_folders import claim_folders
from bucketline.state.store.catalog.live_files import newest_live
from bucketline.state.store.catalog.owned import check_partitions_kept
from bucketline.state.store.catalog.table_handle import TableHandle, open_handle
from bucketline.state.store.catalog.tell_once import tell_once
from bucketline.state.store.commit.discard import discard_made
from bucketline.state.store.commit.overflow_check import refuse_overflow
from bucketline.state.store.commit.publish import Base, publish
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
        self._live = LiveFiles()
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
        asked: list[Callable[[], TableHandle | LiveFiles]] = [self.table.refreshed, self.follow]
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
        return self._live

    def follow(self) -> LiveFiles:
        """The live files at the newest snapshot; the schema stays as it is."""
        self._live = newest_live(self._live, self.table.snapshot_store, self.table.manifests)
        return self._live

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

    def publish(self, change: Change, author: Author) -> Committed:
        """Publishes a change that was planned on the view as it is now, and says what came of it.

        A compaction that lost is in `Committed.dropped`, also where there is nothing else to commit. Raises
        CommitConflictError when the messages' rows are not in the table and will not be (FilesGoneError where somebody
        else removed some of their files, and the work has to be done again), SchemaMismatchError when they could never
        be merged with it; CommitOutcomeUnknownError when nobody knows. What is certainly not in the table is removed.
        """
        if isinstance(change, Append) or (isinstance(change, Replace) and not change.moves_rows):
            self._refuse_timeless(change.messages)
        if isinstance(change, Append):
            self._refuse_unpadded(change.messages)
            self._refuse_overflow(change.messages)
        try:
            outcome = publish(self._base(change), change, author)
        except StorageError as e:
            if not isinstance(change, Compact):
                raise
            return Committed(dropped=e)
        if isinstance(outcome, Committed):
            self.keep(outcome)
            return outcome
        if isinstance(change, Compact):
            return Committed(dropped=outcome)
        if isinstance(outcome, Conflict) and outcome.rule != ALREADY_ADDED:
            self.discard(change.messages)
        raise outcome.error()

    def keep(self, committed: Committed) -> None:
        """Goes on from the live files that a commit has left."""
        self._live = committed.live or self._live

    def _base(self, change: Change) -> Base:
        table = replace(self.table, table_schema=self.plan.schema)
        return Base(
            table,
            self._live,
            based_on=0 if self.view.snapshot is None else self.view.snapshot.id,
            vectors=self.deletion_entries() if isinstance(change, Compact) else None,
            planned_ms=self._planned_ms,
        )

    def appended(
        self, messages: Iterable[CommitMessage], *, check: AppendCheck | None = None, ignore_empty: bool | None = None
    ) -> Append:
        """The change of messages of this table; `check` says what must not have happened meanwhile, where it is more
        than the bucket mode asks."""
        return Append(
            tuple(messages),
            check or self.plan.mode.append_check,
            partial(hold_common_keys, self.plan.access),
            ignore_empty,
        )

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

    def _refuse_unpadded(self, messages: Sequence[CommitMessage]) -> None:
        if not any(m.new_files for m in messages):
            return
        try:
            refuse_unpadded_keys(self.plan.schema, self.view)
        except SchemaMismatchError:
            self.discard(messages)
            raise

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
            tell_once(table.path, sentence)
        return plan
