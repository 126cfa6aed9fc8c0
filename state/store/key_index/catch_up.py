"""Brings a key index from the snapshot that it reflects to a newer snapshot, by the key columns of the files that were
committed in between.

Snapshots are applied one by one, because sequence numbers order only the rows of one bucket: if a key has moved from
partition p1 to p2 and back to p1 in three commits, one step for all three could not find the place of the key. After
one commit a key is in at most one bucket; in the bucket that it has left, its newest row is a delete. Compactions move
no keys.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketline.conf.wording import counted
from bucketline.state.bucket.allocation import Int32s
from bucketline.state.bucket.cross_partition import NOWHERE, KeyPlaces, OldPlaceRule, old_place_rule
from bucketline.state.bucket.key_entries import HashedKeys, KeyEntries, number_keys
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.entries import CommitKind, FileKind, ManifestEntry, Snapshot
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.key_index.index_scope import IndexLabel, label_of
from bucketline.state.store.key_index.key_index import IndexChange, KeyIndex
from bucketline.state.store.key_index.note import read_note
from bucketline.state.store.key_index.table_keys import BATCH_ROWS, KeyShare, written_at
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.prune import group_by_bucket
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND

_BYTES_PER_ROW = 64
"""The memory that a row of a snapshot takes while it is applied, in bytes, without its key."""


@dataclass(frozen=True, slots=True)
class MustRebuild:
    """The reason why an index cannot be brought to the newer snapshot and has to be built again."""

    reason: str


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """How many snapshots were applied to the index, and how many rows of these snapshots were read."""

    snapshots: int
    rows: int


@dataclass(frozen=True, slots=True)
class IndexSource:
    """The table of an index: access to its files, manifests and snapshots."""

    access: FileAccess
    manifests: Manifests
    snapshots: Snapshots


def catch_up(
    index: KeyIndex, source: IndexSource, latest: Snapshot, wanted: KeyShare, *, memory_bytes: int, expires: bool
) -> CaughtUp | MustRebuild:
    """Brings the index to the snapshot `latest`, snapshot by snapshot. Returns what was done, or the reason why the
    index must be built again. Each step is durable, so the process may be interrupted at any time.

    `wanted` is the share of the index: the group of keys that the index holds. If `expires` is true, keys expire, and
    the index records when each key was last written.
    """
    steps, note = _steps(index.label, source.snapshots, latest), read_note(index)
    if isinstance(steps, MustRebuild) and note is not None:
        newer = source.snapshots.newest_first(latest, index.label.snapshot_id)
        proven = next((s for s in newer if note.proves(s, index.label)), None)
        if proven is not None:
            index.apply(note.change(index), label_of(proven))
            steps = _steps(index.label, source.snapshots, latest)
    if isinstance(steps, MustRebuild):
        return steps
    rows = 0
    for step in steps:
        if note is not None and note.is_of(step, index.label):
            index.apply(note.change(index), label_of(step))
            continue
        entries = source.manifests.delta_entries(step) if step.commit_kind.moves_rows else []
        if step.commit_kind is CommitKind.OVERWRITE or any(e.kind is FileKind.DELETE for e in entries):
            return MustRebuild(f"snapshot {step.id} replaced files")
        added = sum(e.file.row_count for e in entries)
        if added * _BYTES_PER_ROW > memory_bytes * wanted.shares:
            return MustRebuild(f"snapshot {step.id} added {counted(added, 'row')}, too many to be applied one by one")
        try:
            delta = _read_delta(index, source.access, entries, wanted)
        except StorageError as e:
            if not e.missing:
                raise
            return MustRebuild(f"a file of snapshot {step.id} is missing")
        if delta is not None or step.id == latest.id:
            index.apply(_change(index, delta, source.access, expires=expires), label_of(step))
            rows += 0 if delta is None else len(delta.numbers)
    return CaughtUp(len(steps), rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Delta:
    """The rows of one commit. `keys` are the keys of the rows, each key once, in ascending order. The other attributes
    have one value for each row: the position of the row's key in `keys` (`numbers`), its partition, bucket, sequence
    number and row kind, and the time at which it was written.
    """

    keys: pa.Array
    numbers: np.ndarray
    partitions: Int32s
    buckets: Int32s
    sequences: np.ndarray
    kinds: np.ndarray
    seconds: np.ndarray


def _steps(label: IndexLabel, snapshots: Snapshots, latest: Snapshot) -> list[Snapshot] | MustRebuild:
    """Returns the snapshots after the snapshot that the index reflects (`label`), up to `latest`, oldest first. Returns
    a MustRebuild if the snapshot of the index has expired or was rolled back, or if a snapshot between the two has
    expired. Then the index must be built again.
    """
    if label.snapshot_id > latest.id:
        return MustRebuild(
            f"the index reflects snapshot {label.snapshot_id}, but the table was rolled back to {latest.id}"
        )
    own: Snapshot | None = latest
    if label.snapshot_id < latest.id:
        own = snapshots.get(label.snapshot_id) if label.snapshot_id else None
    if label.snapshot_id and own is None:
        return MustRebuild(f"snapshot {label.snapshot_id}, which the index reflects, has expired")
    if label != label_of(own):
        return MustRebuild(f"snapshot {label.snapshot_id} is not the one that the index reflects")
    between = [snapshots.get(i) for i in range(label.snapshot_id + 1, latest.id)]
    steps = [s for s in between if s is not None]
    if len(steps) < len(between):
        return MustRebuild(f"snapshots after {label.snapshot_id}, which the index reflects, have expired")
    return [*steps, latest] if label.snapshot_id < latest.id else []


def _read_delta(
    index: KeyIndex, access: FileAccess, entries: Sequence[ManifestEntry], wanted: KeyShare
) -> _Delta | None:
    """Reads the files that a commit has added. Returns those rows whose keys belong to the share `wanted` (the keys
    that this index holds); None if there are no such rows.
    """
    parts = list(_delta_parts(index, access, entries, wanted))
    if not parts:
        return None
    hashes = np.concatenate([p[0].hashes for p in parts])
    keys, numbers = number_keys(HashedKeys(pa.concat_arrays([p[0].normalized for p in parts]), hashes))
    columns = [np.concatenate([p[1][i] for p in parts]) for i in range(5)]
    return _Delta(keys.normalized, numbers, *columns)


def _delta_parts(
    index: KeyIndex, access: FileAccess, entries: Sequence[ManifestEntry], wanted: KeyShare
) -> Iterator[tuple[HashedKeys, list[np.ndarray]]]:
    columns = (*wanted.names, SEQUENCE, VALUE_KIND)
    for bucket in group_by_bucket(entries):
        code = int(index.codes([bucket.partition])[0])
        for file in bucket.files:
            for batch in access.rows(bucket, file, columns, batch_rows=BATCH_ROWS):
                keys = wanted.keys(batch)
                mask = wanted.mine(keys)
                mine = np.arange(len(keys)) if mask is None else np.flatnonzero(mask)
                if not len(mine):
                    continue
                yield (
                    keys.take(mine),
                    [
                        np.full(len(mine), code, np.int32),
                        np.full(len(mine), bucket.bucket, np.int32),
                        np.asarray(batch.column(SEQUENCE))[mine],
                        np.asarray(batch.column(VALUE_KIND))[mine],
                        np.full(len(mine), written_at(file), np.uint32),
                    ],
                )


def _change(index: KeyIndex, delta: _Delta | None, access: FileAccess, *, expires: bool) -> IndexChange:
    """Returns what must change in the key index (which has the bucket of each key) after a commit with the rows
    `delta`. If `delta` is None, nothing changes.

    A deleted row removes the key from the index only if the index has the key in the bucket of this row. If `expires`
    is true, keys of the index expire. Then keys that stay in their bucket are also written again, with their new time.
    """
    if delta is None:
        empty = np.empty(0, np.int32)
        nothing = pa.array([], pa.int64())
        return IndexChange(KeyEntries(nothing, empty, empty, empty.astype(np.uint32)), nothing)
    order = np.lexsort((delta.sequences, delta.buckets, delta.partitions, delta.numbers))
    numbers, partitions, buckets = (c[order] for c in (delta.numbers, delta.partitions, delta.buckets))
    newest = np.ones(len(order), np.bool_)
    newest[:-1] = (numbers[1:] != numbers[:-1]) | (partitions[1:] != partitions[:-1]) | (buckets[1:] != buckets[:-1])
    rows = order[newest]
    numbers, partitions, buckets = numbers[newest], partitions[newest], buckets[newest]
    alive = np.ones(len(rows), np.bool_)
    if old_place_rule(access.schema) is OldPlaceRule.DELETE_OLD:
        alive = delta.kinds[rows] % 2 == 0
    _check_single(numbers[alive])
    old = index.lookup(delta.keys)
    was_there = (old.partitions[numbers] == partitions) & (old.buckets[numbers] == buckets)
    put = alive if expires else alive & ~was_there
    lives = np.zeros(len(delta.keys), np.bool_)
    lives[numbers[alive]] = True
    gone = numbers[~alive & was_there & ~lives[numbers]]
    puts = KeyEntries(delta.keys.take(numbers[put]), partitions[put], buckets[put], delta.seconds[rows][put])
    moved = alive & ~was_there
    left = np.concatenate([numbers[moved], gone])
    counts = _counts(
        index,
        came=KeyPlaces(partitions[moved], buckets[moved]),
        left=KeyPlaces(old.partitions[left], old.buckets[left]),
    )
    return IndexChange(puts, delta.keys.take(gone), counts)


def _check_single(alive: np.ndarray) -> None:
    """Raises CorruptFileError if a key is in two buckets after one commit. `alive` has one number for each pair of a
    key and a bucket that has the key: the position of the key in `_Delta.keys`. The numbers ascend, so a key with two
    buckets shows as two equal numbers.
    """
    doubled = int((alive[1:] == alive[:-1]).sum())
    if doubled:
        raise CorruptFileError(
            f"{counted(doubled, 'key')} in two buckets after one commit, because several jobs wrote this table at "
            "once; let only one job write it, and delete the older rows",
            keys=doubled,
        )


def _counts(index: KeyIndex, *, came: KeyPlaces, left: KeyPlaces) -> dict[tuple[int, int], int]:
    """Returns the new number of keys in each bucket that has gained or lost keys. The result has a partition's code and
    a bucket as its key. `came` has the places of keys that were added, and `left` has the places of keys that were
    removed.
    """
    change: dict[tuple[int, int], int] = {}
    for places, sign in ((came, 1), (left, -1)):
        packed = (places.partitions.astype(np.int64) << 32) | places.buckets
        for place, count in zip(*np.unique(packed[places.partitions != NOWHERE], return_counts=True), strict=True):
            code_and_bucket = divmod(int(place), 1 << 32)
            change[code_and_bucket] = change.get(code_and_bucket, 0) + sign * int(count)
    before = {code: index.rows(code) for code in {code for code, _ in change}}
    return {(c, b): max(0, before[c].get(b, 0) + n) for (c, b), n in change.items() if n}
