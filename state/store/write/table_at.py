"""A table at one snapshot, as one job writes it: newest schema, plan, live files, index files. A TableAt never changes.

A stream keeps the `TableAt` of its last batch, so that the next batch reads only what has changed since. A single write
makes its own `TableAt` and drops it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from bucketline.conf.advice import advise_write
from bucketline.state.commit.live_files import BucketId, LiveFiles
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import IndexManifestEntry
from bucketline.state.lsm.tree.append_pick import AppendCompactOptions, pick_append
from bucketline.state.lsm.tree.compact_options import CompactOptions
from bucketline.state.lsm.tree.run import run_count
from bucketline.state.store.catalog.external_folders import claim_folders
from bucketline.state.store.catalog.live_files import newest_live
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.owned import check_partitions_kept
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.tell_once import tell_all
from bucketline.state.store.commit.discard import discard_made
from bucketline.state.store.compact.append_compact import append_options
from bucketline.state.store.index.hash_index_store import hash_entries
from bucketline.state.store.read.bucket_deletions import NO_VECTORS, VectorFiles, deletion_entries, masked_files
from bucketline.state.store.storage.parallel import all_at_once
from bucketline.state.store.write.bucket_writer import BucketState, CompactTrigger, pick_unit
from bucketline.state.store.write.grouping import HashEntries
from bucketline.state.store.write.modes import plan_write
from bucketline.state.store.write.write_plan import WritePlan


@dataclass(frozen=True, eq=False)
class IndexLists:
    """The index files of one snapshot. `name` is the name of the index manifest that lists the files. The manifest is
    read when it is first needed.
    """

    manifests: Manifests
    name: str | None = None

    @cached_property
    def _entries(self) -> Sequence[IndexManifestEntry]:
        return self.manifests.read_index(self.name)

    @cached_property
    def hashes(self) -> HashEntries:
        """Returns the HASH index files of each partition."""
        return hash_entries(self._entries)

    @cached_property
    def vectors(self) -> Mapping[BucketId, VectorFiles]:
        """Returns the deletion-vector files of each bucket."""
        return deletion_entries(self._entries)


@dataclass(frozen=True, eq=False)
class TableAt:
    """A table at one snapshot, and how a job writes the table.

    - `view` has the live files of the snapshot.
    - `plan` says how a job with the options `job_options` writes the table.
    - `planned_ms` is the time at which the snapshot was read. All files of work that is planned on the snapshot are
      created after this time.
    - `claimed` are the external folders that are marked as belonging to this table.
    """

    table: TableHandle
    plan: WritePlan
    job_options: Mapping[str, str]
    view: LiveFiles
    lists: IndexLists
    planned_ms: int
    claimed: tuple[str, ...] = ()

    @property
    def snapshot_id(self) -> int:
        """Returns the id of the snapshot; 0 for the empty table."""
        return 0 if self.view.snapshot is None else self.view.snapshot.id

    def refreshed(self) -> "TableAt":
        """Returns the table with its newest schema, at its newest snapshot. Raises the errors of `table_at` and
        `newest_live`.
        """
        planned_ms = self.table.world.clock.now_ms()
        asked: list[Callable[[], TableHandle | LiveFiles]] = [self.table.refreshed, self._newest_live]
        newest, live = all_at_once(self.table.io, asked)
        assert isinstance(newest, TableHandle) and isinstance(live, LiveFiles)
        if live.snapshot is not None and live.snapshot.schema_id > newest.table_schema.id:
            # The snapshot has a newer schema than the schema that was read: another process changed the schema and
            # wrote in between, or the next schema file is missing. With the older schema, a compaction would drop the
            # new columns of rows.
            newest = self.table.refreshed(lists=True)
        claimed = self._claimed_folders(newest)
        at = replace(self._with_live(live), planned_ms=planned_ms, claimed=claimed)
        if newest.table_schema == self.table.table_schema:
            return at
        return replace(at, table=newest, plan=_plan(newest, self.job_options, is_stream=self.plan.is_stream))

    def followed(self) -> "TableAt":
        """Returns the table at its newest snapshot, with the same schema as before."""
        return self._with_live(self._newest_live())

    def after(self, committed: Committed) -> "TableAt":
        """Returns the table at the snapshot of `committed`, which is a commit that was planned on this object. If the
        commit has made no snapshot, returns this object.
        """
        return self if committed.live is None else self._with_live(committed.live)

    def _newest_live(self) -> LiveFiles:
        return newest_live(self.view, self.table.snapshot_store, self.table.manifests, self.table.world)

    def _with_live(self, live: LiveFiles) -> "TableAt":
        name = None if live.snapshot is None else live.snapshot.index_manifest
        lists = self.lists if name == self.lists.name else IndexLists(self.table.manifests, name)
        return replace(self, view=live, lists=lists)

    def _claimed_folders(self, table: TableHandle) -> tuple[str, ...]:
        """Marks the table's external folders as belonging to this table, before the first file is written there.
        Returns these folders.
        """
        wanted = replace(table.table_schema, options={**table.table_schema.options, **self.plan.schema.options})
        roots = wanted.settings.paths.external_roots
        if roots != self.claimed:
            claim_folders(table.io, table.path, wanted)
        return roots

    def bucket_states(self, trigger: CompactTrigger) -> dict[BucketId, BucketState]:
        """Returns for each bucket what the task that writes the bucket must know: the next sequence number, and the
        live files with their deletion vectors. The live files are included only if the bucket may be compacted.
        """
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

    def with_stored(self, states: Mapping[BucketId, BucketState]) -> dict[BucketId, BucketState]:
        """Returns the states of buckets, with the live files of every bucket added. Buckets that will not be compacted
        also get their live files, because new rows may need values of stored rows.
        """
        vectors = self.deletion_entries()
        return {
            bucket_id: state
            if state.complete
            else replace(
                state, stored=tuple(self.view.files(bucket_id)), stored_vectors=tuple(vectors.get(bucket_id, ()))
            )
            for bucket_id, state in states.items()
        }

    def _may_compact(self, files: Sequence[DataFileMeta], trigger: CompactTrigger) -> bool:
        if self.plan.schema.primary_keys:
            return may_compact(files, trigger, self.plan.compact_options)
        return may_join(files, trigger, append_options(self.plan.schema.settings))

    def hash_entries(self) -> HashEntries:
        """Returns the HASH index files of each partition."""
        return self.lists.hashes

    def deletion_entries(self) -> Mapping[BucketId, VectorFiles]:
        """Returns the deletion-vector files of each bucket; empty for a table without deletion vectors."""
        return self.lists.vectors if self.plan.compact_options.deletion_vectors else {}

    def due(self, trigger: CompactTrigger, among: Collection[BucketId] | None = None) -> list[BucketId]:
        """Returns the buckets in which the trigger would compact something now; if `among` is not None, only buckets of
        `among`.
        """
        return due_buckets(self.view, self.plan, trigger, self.deletion_entries(), among=among)

    def discard(self, messages: Iterable[CommitMessage]) -> None:
        """Removes the files of messages that are in no snapshot and never will be. A file that cannot be
        removed stays.
        """
        discard_made(self.table.io, self.table.path, self.plan.schema, messages)


def table_at(table: TableHandle, job_options: Mapping[str, str], *, is_stream: bool = False) -> TableAt:
    """Returns the table with the options of a job that writes the table. No snapshot is read yet, so the result shows
    no files; `refreshed` returns the table at its newest snapshot.

    `is_stream` means the same as in `WritePlan`. Raises the errors of `plan_write`. Nothing is written.
    """
    options = {**table.write_options, **job_options}
    return TableAt(
        table,
        _plan(table, options, is_stream=is_stream),
        options,
        LiveFiles(),
        IndexLists(table.manifests),
        table.world.clock.now_ms(),
    )


def _plan(table: TableHandle, job_options: Mapping[str, str], *, is_stream: bool) -> WritePlan:
    plan = plan_write(table.uri, table.table_schema, job_options, is_stream=is_stream, world=table.world)
    check_partitions_kept(plan.schema, table.io, table.path)
    tell_all(table.path, advise_write({**plan.schema.options, **job_options}))
    return plan


def may_compact(files: Sequence[DataFileMeta], trigger: CompactTrigger, options: CompactOptions) -> bool:
    """Returns False if it is certain that a bucket with these files will not be compacted, even after this batch has
    added a sorted run to it; otherwise True.
    """
    if trigger is CompactTrigger.FULL or not options.waits_for_runs:
        return True
    return run_count(files) + 1 >= options.compaction_trigger


def may_join(files: Sequence[DataFileMeta], trigger: CompactTrigger, options: AppendCompactOptions) -> bool:
    """Returns True if a compaction may be due in a bucket of an append table after one more file is added to these
    files.
    """
    small = [f for f in files if f.file_size < options.small_bytes]
    enough = len(small) + 1 >= options.min_files or sum(f.file_size for f in small) >= options.small_bytes
    return trigger is CompactTrigger.FULL or enough


def due_buckets(
    view: LiveFiles,
    plan: WritePlan,
    trigger: CompactTrigger,
    vectors: Mapping[BucketId, VectorFiles] = NO_VECTORS,
    *,
    among: Collection[BucketId] | None = None,
) -> list[BucketId]:
    """Returns the buckets, in order, in which the trigger finds something to compact in the present files. `vectors`
    are the deletion-vector files by bucket. If `among` is not None, only these buckets are checked.
    """
    if trigger is CompactTrigger.NONE:
        return []
    looked_at = [b for b in view.buckets() if b[1] >= 0 and (among is None or b in among)]
    if not plan.schema.primary_keys:
        options, full = append_options(plan.schema.settings), trigger is CompactTrigger.FULL
        return [b for b in looked_at if pick_append(view.files(b), options, full=full)]
    write = plan.bucket_write(trigger)
    return [b for b in looked_at if pick_unit(write, view.files(b), masked_files(vectors.get(b, ()))) is not None]
