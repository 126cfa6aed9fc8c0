"""Finds partition and bucket for the rows of a cross-partition table. The keys are divided by hash into groups, called
shares. One task handles the rows of one share, in order of arrival.

The key index of a share says where each key of the share is stored. Before a batch, the index is brought up to date
with the snapshot on which the batch is written. The changes of the batch itself go into the index with the next batch,
when these changes are read from the table. The changes that earlier rows of the same batch have made are held in
memory.
"""

import logging
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.bucket.accept_rows import AcceptedRows
from bucketline.state.bucket.allocation import Allocation, AllocationRule, Int32s, Ownership
from bucketline.state.bucket.cross_partition import (
    NOWHERE,
    KeyedRows,
    KeyPlaces,
    Placement,
    old_place_rule,
    place_rows,
    placed_rows,
)
from bucketline.state.bucket.key_entries import number_keys
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.feeds import Feeds, FeedSpans, MixedKey, first_feeds, mixed_key, mixed_key_of
from bucketline.state.lsm.merge.fold_choice import sealing_fold, strict_fold
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.table_handle import branch_path
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.key_index.backup import BackupFolder, back_up
from bucketline.state.store.key_index.catch_up import IndexSource
from bucketline.state.store.key_index.expiry import forget_expired
from bucketline.state.store.key_index.key_index import KeyIndex
from bucketline.state.store.key_index.note import write_note
from bucketline.state.store.key_index.ready import IndexOrigin, IndexPlan, ready_index
from bucketline.state.store.key_index.rocks import RocksSettings
from bucketline.state.store.key_index.table_keys import KeyShare
from bucketline.state.store.storage.file_io import FileIO, file_io_for
from bucketline.state.store.write.cross.key_assign import PlacedBatch, place_batch
from bucketline.state.store.write.grouping import GivenBuckets
from bucketline.state.store.write.placing import Placing, SharedBucket, SnapshotNote
from bucketline.state.store.write.run_buffer import Blob
from bucketline.state.store.write.sealed_runs import RunForm, RunSealer, SealedRun, SealPlan, partition_codes, unseal
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND
from bucketline.state.types.hashes.distinct import distinct
from bucketline.state.types.logical import DataType

_LOG = logging.getLogger(__name__)
_FEED = "_FEED"

CHUNK_BYTES = 192 << 20
"""How many bytes of rows are placed at once. The rows of a share are divided into chunks of about this size."""


@dataclass(frozen=True, slots=True)
class CrossWrite(Placing):
    """Finds the partition and bucket for the rows of a cross-partition table. All fields are plain values, so the
    object can be sent to tasks. Memory limits are in bytes.

    `snapshot` is the snapshot on which the batch is planned; None for the empty table.
    `shares` is the number of shares. A share is the group of keys that one task handles; the hash of a key decides its
    share.
    `backup` is a folder for copies of the key index, on storage that outlives the machine. If `back_up_now` is true,
    the index is copied into this folder in this batch.
    `writes_alone` is true if the task that places the rows of a share also writes these rows. No other share may then
    have keys in the buckets of the share.

    The attributes are together because a task gets everything about its share of the keys as one value.
    """

    uri: str
    schema: TableSchema
    snapshot: Snapshot | None
    shares: int
    rule: AllocationRule
    memory_bytes: int
    local_directory: str | None = None
    backup: str | None = None
    back_up_now: bool = False
    budget_bytes: int = 64 << 20
    run_bytes: int = 8 << 20
    writes_alone: bool = False
    world: World = SYSTEM_WORLD

    def place(
        self, share: int, runs: Sequence[tuple[SealedRun, Blob]]
    ) -> Iterator[SealedRun | SnapshotNote | MixedKey]:
        """Yields the rows of a share (the keys that one task handles), in order of arrival, as sealed runs of the
        buckets to which the rows go.

        May also write a note about how this batch changes the key index; the next batch reads the note. Then also
        yields a SnapshotNote with the token of the note; the snapshot of this batch must carry the token.

        Rows of one key may come from several feeds (topic partitions). If the order of feeds matters, also yields one
        such key as a MixedKey. This key is the full primary key, because the rows of the key may be in two partitions.

        Raises IndexStateError if another process holds the index, or if the batch is older than the index. Raises
        SharedBucket if the task of this share is to write its buckets alone (`writes_alone`), but one of the buckets
        also has keys of other shares.
        """
        plan = self.index_plan(share)
        index, report = ready_index(plan, self.source(), self.snapshot)
        # Rows of this batch still find the keys that expire at its end, because keys are removed from the index last.
        alive_since, grown, note = plan.alive_since, 0, None
        with index:
            if plan.backup is not None and (self.back_up_now or report.origin is IndexOrigin.BUILT):
                _back_up(index, plan.backup, plan.world)
            # Runs are released as they are read, because the caller holds the placed rows in memory at the same time.
            chunks = _chunks(deque(runs))
            del runs
            first, second = next(chunks, None), next(chunks, None)
            is_loose = self.writes_alone and second is None and first is not None and first.nbytes <= self.budget_bytes
            sealer = RunSealer(self.seal_plan(RunForm.ROWS if is_loose else RunForm.PACKED), origin=share)
            mixed: MixedKey | None = None
            if first is not None and second is None:
                placed, note = _place_whole(self, index, plan, first, self.world.ids.new_uuid())
                self.check_owned(share, placed.buckets)
                grown, mixed = placed.effect.growth, placed.mixed
                accepted = AcceptedRows(_with_buckets(placed.rows, placed.buckets), placed.kinds)
                del first, placed
                yield from sealer.add(accepted)
                del accepted
            elif first is not None and second is not None:
                placer = _Placer(self, index, plan)
                for chunk in chain((first, second), chunks):
                    rows = placer.place(chunk)
                    self.check_owned(share, np.asarray(rows.rows[GivenBuckets.column].combine_chunks()))
                    yield from sealer.add(rows)
                grown, mixed = placer.growth, placer.mixed
            yield from sealer.finish()
            if mixed is not None:
                yield mixed
            if note is not None:
                yield note
            if self.schema.settings.bucket.index_ttl_ms is not None:
                forget_expired(index, alive_since=alive_since, grown_by=grown)

    def check_owned(self, share: int, buckets: Int32s) -> None:
        """Raises SharedBucket if the task of the share is to write its buckets alone, but one of the buckets also has
        keys of other shares. A share is the group of keys that one task handles. A bucket can have keys of several
        shares after the number of shares has changed, because a key stays in the bucket of its first write.
        """
        if self.writes_alone and (buckets % self.shares != share).any():
            raise SharedBucket(f"share {share} of {self.shares} has keys in buckets of other shares")

    def in_one_task(self) -> "CrossWrite":
        """Returns a copy of this object for a write in which a single task writes all buckets. In such a write, a
        bucket may have keys of several shares (groups of keys that are placed together).
        """
        return replace(self, writes_alone=False)

    def index_plan(self, share: int) -> IndexPlan:
        """Returns the plan for the key index of a share (the group of keys that one task handles). The plan says where
        the index is on local disk, where it is backed up, and how much memory it gets.
        """
        root = self.local_directory or f"{tempfile.gettempdir()}/bucketline"
        backup = None
        if self.backup is not None:
            backup = BackupFolder(*file_io_for(self.backup, self.schema.storage, self.world))
        keys = KeyShare(self.schema, share, self.shares)
        return IndexPlan(self.uri, keys, root, RocksSettings(self.memory_bytes), backup, self.world)

    def source(self) -> IndexSource:
        """Returns the table from which the key index is built and brought up to date."""
        access = BucketAccess(self.uri, self.schema, self.world).files
        io, path = access.io, access.table_path
        partition_types = [f.type for f in self.schema.select(self.schema.partition_keys)]
        root = branch_path(path, self.schema.settings.reading)
        return IndexSource(access, self.manifests(io, path, partition_types), Snapshots(io, root))

    def manifests(self, io: FileIO, path: str, partition_types: Sequence[DataType]) -> Manifests:
        """Returns the manifests of the table at a path; the key index is built from the files that the
        manifests list.
        """
        return Manifests(io, path, partition_types, world=self.world)

    def seal_plan(self, form: RunForm) -> SealPlan:
        """Returns how placed rows are sealed into runs."""
        fold = sealing_fold(self.schema)
        return SealPlan(
            schema=self.schema,
            grouping=GivenBuckets(),
            fold=None if fold is None else strict_fold(fold),
            total_buckets=-1,
            budget_bytes=self.budget_bytes,
            run_bytes=self.run_bytes,
            form=form,
        )


def _place_whole(
    write: CrossWrite, index: KeyIndex, plan: IndexPlan, rows: pa.Table, token: str
) -> tuple[PlacedBatch, SnapshotNote | None]:
    """Finds the partition and bucket of all rows of a share (a part of the keys, chosen by hash) in one step, and
    returns the placed rows. Also writes a note, a file in which the next batch finds how the keys have changed. The
    second result holds the `token` of this note; it is None if no note was written.
    """
    rows, kinds, feeds = _parted(rows)
    placed = place_batch(
        index,
        rows,
        kinds,
        plan.keys,
        rule=write.rule,
        own=Ownership(plan.keys.share, plan.keys.shares),
        alive_since=plan.alive_since,
        expires=write.schema.settings.bucket.index_ttl_ms is not None,
        feeds=feeds,
    )
    noted = write_note(index, placed.keys, placed.effect, seconds=plan.world.clock.local_ms() // 1000, token=token)
    return placed, SnapshotNote(token) if noted else None


def _back_up(index: KeyIndex, folder: BackupFolder, world: World) -> None:
    """Copies the index to the backup folder. If the copy fails, a warning is logged and the batch goes on, because the
    index is only a cache.
    """
    try:
        back_up(index, folder, world)
    except StorageError as e:
        _LOG.warning("key index %s could not be backed up; a later batch tries again: %s", index.directory, e.message)


def _with_buckets(rows: pa.Table, buckets: Int32s) -> pa.Table:
    return rows.append_column(GivenBuckets.column, pa.array(buckets))


class _Placer:
    """Finds partition and bucket of rows, chunk after chunk, by the key index and the changes that the batch has made
    so far.
    """

    def __init__(self, write: CrossWrite, index: KeyIndex, plan: IndexPlan) -> None:
        self._write, self._index, self._plan = write, index, plan
        self._own = Ownership(plan.keys.share, plan.keys.shares)
        self._allocations: dict[int, Allocation] = {}
        self._moved_keys: pa.Array | None = None
        self._moved = KeyPlaces(np.empty(0, np.int32), np.empty(0, np.int32))
        self._seen: tuple[pa.Array, Feeds] | None = None
        self.growth = 0
        self.mixed: MixedKey | None = None

    def place(self, chunk: pa.Table) -> AcceptedRows:
        """Returns the rows to write for a chunk of rows. An additional column holds the bucket of each row."""
        write = self._write
        rows, kinds, feeds = _parted(chunk)
        named, codes_here = partition_codes(rows, write.schema)
        codes = self._index.codes(named)[codes_here]
        keys, numbers = number_keys(self._plan.keys.keys(rows))
        if feeds is not None and self.mixed is None:
            self._look(rows, keys.normalized, numbers, feeds)
        old = self._overlaid(keys.normalized, self._index.lookup(keys.normalized, alive_since=self._plan.alive_since))
        for code in distinct(codes, old.partitions[old.partitions != NOWHERE]).tolist():
            if code not in self._allocations:
                self._allocations[code] = Allocation(self._index.rows(code), self._own, write.rule)
        keyed = KeyedRows(numbers, keys.hashes, codes.astype(np.int32), np.asarray(kinds))
        placement = place_rows(
            keyed,
            old,
            old_place_rule(write.schema),
            allocations=self._allocations,
            empty=Allocation({}, self._own, write.rule),
        )
        self._allocations = dict(placement.allocations)
        self._remember(keys.normalized, old, placement.places)
        self.growth += int(((old.partitions == NOWHERE) & (placement.places.partitions != NOWHERE)).sum())
        placed, kinds = placed_rows(rows, *self._dense(placement), write.schema)
        return AcceptedRows(_with_buckets(placed, placement.buckets), kinds)

    def _look(self, rows: pa.Table, keys: pa.Array, numbers: np.ndarray, feeds: Feeds) -> None:
        """Records a key whose rows came from several feeds (topic partitions), in this chunk alone or together with
        earlier chunks. `keys` are the distinct keys of the chunk, and `numbers` holds for each row the index of its key
        in `keys`.
        """
        primary_keys = self._write.schema.primary_keys
        self.mixed = mixed_key_of(rows, numbers, feeds, primary_keys)
        of_keys = first_feeds(numbers, feeds)
        if self._seen is None:
            self._seen = keys, of_keys
            return
        seen, seen_feeds = self._seen
        at = pc.index_in(keys, value_set=seen)
        known, where = np.asarray(pc.is_valid(at)), np.asarray(pc.fill_null(at, 0))
        mixed = np.flatnonzero(known & (seen_feeds[where] != of_keys))
        if self.mixed is None and len(mixed):
            number = int(mixed[0])
            row = int(np.flatnonzero(numbers == number)[0])
            self.mixed = mixed_key(rows, row, primary_keys, (int(seen_feeds[where[number]]), int(of_keys[number])))
        fresh = keys.filter(pa.array(~known))
        self._seen = pa.concat_arrays([seen, fresh]), np.concatenate([seen_feeds, of_keys[~known]])

    def _overlaid(self, keys: pa.Array, indexed: KeyPlaces) -> KeyPlaces:
        """Returns the partition and bucket of each key: as this batch has changed them, or else as the index has them
        (`indexed`).
        """
        if self._moved_keys is None or not len(self._moved_keys):
            return indexed
        at = pc.index_in(keys, value_set=self._moved_keys)
        known = np.asarray(pc.is_valid(at))
        where = np.asarray(pc.fill_null(at, 0))
        return KeyPlaces(
            np.where(known, self._moved.partitions[where], indexed.partitions).astype(np.int32),
            np.where(known, self._moved.buckets[where], indexed.buckets).astype(np.int32),
        )

    def _remember(self, keys: pa.Array, old: KeyPlaces, new: KeyPlaces) -> None:
        changed = (old.partitions != new.partitions) | (old.buckets != new.buckets)
        if not changed.any():
            return
        fresh_keys = keys.filter(pa.array(changed))
        fresh = KeyPlaces(new.partitions[changed], new.buckets[changed])
        if self._moved_keys is None:
            self._moved_keys, self._moved = fresh_keys, fresh
            return
        kept = np.asarray(pc.invert(pc.is_in(self._moved_keys, value_set=fresh_keys)))
        self._moved_keys = pa.concat_arrays([self._moved_keys.filter(pa.array(kept)), fresh_keys])
        self._moved = KeyPlaces(
            np.concatenate([self._moved.partitions[kept], fresh.partitions]),
            np.concatenate([self._moved.buckets[kept], fresh.buckets]),
        )

    def _dense(self, placement: Placement) -> tuple[Placement, list[bytes]]:
        """Numbers the partitions of a placement anew. In `placement`, partitions are codes of the key index; in the
        returned placement, they are 0, 1, and so on. Also returns the list of these partitions as bytes, so that a
        number is the position of its partition in the list.
        """
        used, dense = np.unique(placement.partitions, return_inverse=True)
        named = self._index.partitions(used.tolist())
        numbered: Int32s = dense.astype(np.int32)
        return replace(placement, partitions=numbered), [named[code] for code in used.tolist()]


def _parted(chunk: pa.Table) -> tuple[pa.Table, pa.Array, Feeds | None]:
    """Splits rows of a sealed run (sorted, packed rows) into three: the table's columns, the row kinds, and the feed
    (topic partition) of each row. The feeds are None if they do not matter.
    """
    feeds = chunk[_FEED].to_numpy() if _FEED in chunk.column_names else None
    own = [name for name in chunk.column_names if name not in (SEQUENCE, VALUE_KIND, _FEED)]
    return chunk.select(own), chunk[VALUE_KIND].combine_chunks(), feeds


def _chunks(runs: deque[tuple[SealedRun, Blob]]) -> Iterator[pa.Table]:
    """Yields the rows of sealed runs (sorted, packed rows) in order of arrival, as tables of about CHUNK_BYTES. Each
    run is removed from `runs` when it is read. If a run says from which feed (topic partition) its rows came, the
    tables have one more column with the feed of each row.
    """
    waiting: list[pa.RecordBatch] = []
    size = 0
    while runs:
        run, blob = runs.popleft()
        spans = FeedSpans.from_bytes(run.feeds) if run.feeds else None
        for batch in unseal(blob):
            if spans is not None:
                batch = batch.append_column(_FEED, pa.array(spans.of_ranks(batch[SEQUENCE].to_numpy())))
            waiting.append(batch)
            size += batch.nbytes
            if size >= CHUNK_BYTES:
                yield pa.Table.from_batches(waiting).combine_chunks()
                waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()
