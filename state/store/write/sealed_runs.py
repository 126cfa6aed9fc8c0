"""The map side of a write: turns accepted rows into sealed runs. After each flush there is one run for each partition
and group; a group is a bucket, or a share of the keys.

A sealed run is what is sent through the shuffle: one compressed value instead of many rows. The rows in a run are
sorted by trimmed primary key, sequence fields and arrival. Several rows of one key may be merged into one row. The
column `_SEQUENCE_NUMBER` holds the arrival rank of a row among the rows with the same origin, partition and group.
The reduce side turns ranks into Paimon's sequence numbers by adding a start for each origin and group.

Source: Paimon 2.0 SortBufferWriteBuffer (the order; one number for each accepted row, even if it is merged away).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from io import BufferedWriter, RawIOBase
from itertools import pairwise
from typing import Generic, Literal, TypeVar

import numpy as np
import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.conf.table.table_options import BUCKET
from bucketline.state.bucket.accept_rows import AcceptedRows
from bucketline.state.commit.live_files import BucketId
from bucketline.state.format.data_file import EMPTY_ROW
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import partition_path
from bucketline.state.lsm.merge.feeds import Feeds, FeedSpans, MixedKey, first_mixed, mixed_key
from bucketline.state.lsm.merge.fold import Fold, Selection
from bucketline.state.store.storage.parallel import all_items
from bucketline.state.store.write.grouping import Grouping, KeyShares
from bucketline.state.types.arrow import SEQUENCE, UNAVAILABLE, VALUE_KIND
from bucketline.state.types.binary_row import encode_rows
from bucketline.state.types.order import key_changes, sort_indices

BLOB_ROWS = 65536
BLOB_BYTES = 1 << 20
"""The largest number of rows and bytes of one record batch of a sealed run. A reader of sealed runs holds one batch of
each run that it merges.
"""

PIECE_BYTES = 1 << 20
"""How many bytes of a sealed run (sorted, packed rows) are collected before they are written to disk."""

SMALL_BYTES = 4 << 20
"""The size of rows, in bytes, up to which one thread sorts or writes them as fast as several threads."""


class RunForm(Enum):
    """The form of the rows in a sealed run."""

    PACKED = "a compressed Arrow IPC stream, for another task"
    PLAIN = "an uncompressed Arrow IPC stream, for the task that sealed the run"
    ROWS = "a table, for the process that sealed the run; if one bucket gets several runs, they are PLAIN"


@dataclass(frozen=True, slots=True)
class SealedRun:
    """Rows of one bucket from one map task, sorted if the table has a primary key. `origin` is the number of the task,
    and `flush` is the number of earlier runs of the task.

    A negative `bucket` stands for a group of rows whose buckets the reduce side decides (see `grouping`).
    `consumed_rows` counts the accepted rows of this flush, including rows that were folded into other rows.
    `rank_end` is one more than the highest arrival rank that the task had used in the bucket or group when it sealed
    the run.
    `blob` holds the rows, in the form that the plan asks for.
    `group` is the bucket or group in which ranks are counted; `group` does not change when the rows get a bucket.
    `feeds` is a `FeedSpans` as bytes: it says from which feed (topic partition) the row of each rank came, at least for
    the rows in the sealed run. `feeds` is empty if feeds do not matter.
    """

    partition: bytes
    bucket: int
    origin: int
    flush: int
    consumed_rows: int
    rank_end: int
    row_count: int
    blob: bytes | pa.Buffer | pa.Table
    group: int = 0
    feeds: bytes = b""


@dataclass(frozen=True, slots=True)
class SealPlan:
    """Says how rows are grouped and ordered before they are sealed into runs (sorted, packed rows) and sent to the
    tasks that write. All fields are plain values, so the plan can be sent to executors.

    - `grouping` says which rows go into the same run.
    - `fold` merges the rows of each key, and the sequence fields order them. With `keep_order`, rows are neither sorted
      nor merged.
    - `other_totals` holds the partitions whose files have a bucket count other than `total_buckets`, with this count.
      Rows of these partitions are refused.
    - A task collects up to `budget_bytes` of rows before it seals them. A run holds `run_bytes` before compression.
    - `form` is the form of the runs.
    - Up to `threads` groups of rows are sorted at the same time, if together they have at most `sorting_bytes`.

    The attributes are together because a task gets everything about sealing as one value.
    """

    schema: TableSchema
    grouping: Grouping
    fold: Fold | None
    sequence_fields: tuple[str, ...] = ()
    sequence_descending: bool = False
    keep_order: bool = False
    total_buckets: int = -1
    budget_bytes: int = 64 << 20
    run_bytes: int = 8 << 20
    other_totals: Mapping[bytes, int] = field(default_factory=dict)
    form: RunForm = RunForm.PACKED
    threads: int = 1
    sorting_bytes: int = 0


Run = TypeVar("Run")


class Sealer(ABC, Generic[Run]):
    """Collects rows that the table accepts in a buffer. When the rows reach a budget in bytes, the buffer is emptied,
    and the rows become sealed runs (sorted rows, packed for the task that writes them).

    `mixed` is a key whose rows came from several feeds (topic partitions). Only keys whose rows were merged in the
    buffer are checked. `mixed` is None if no such key was found.
    """

    def __init__(self, plan: SealPlan, *, origin: int) -> None:
        self._plan = plan
        self._origin = origin
        self._pending: list[AcceptedRows] = []
        self._pending_bytes = 0
        self._flush = 0
        self._groups = plan.grouping.open(plan.schema)
        self._consumed: dict[tuple[bytes, int], int] = {}
        self.mixed: MixedKey | None = None

    @property
    def pending_bytes(self) -> int:
        """Returns the size of the rows that wait in memory until they are sorted and packed into sealed runs, in
        bytes.
        """
        return self._pending_bytes

    def add(self, accepted_rows: AcceptedRows) -> Iterator[Run]:
        """Adds rows to the buffer. If the buffered rows then need more memory than the plan allows, yields all of them
        as sealed runs (sorted, packed rows).
        """
        if accepted_rows.rows.num_rows == 0:
            return
        self._pending.append(accepted_rows)
        self._pending_bytes += accepted_rows.rows.nbytes
        if self._pending_bytes >= self._plan.budget_bytes:
            yield from self.finish()

    def finish(self) -> Iterator[Run]:
        """Yields the rows that are still in the buffer, as sealed runs (sorted, packed rows)."""
        if not self._pending:
            return
        rows = pa.concat_tables([i.rows for i in self._pending]).combine_chunks()
        kinds = pa.concat_arrays([i.kinds for i in self._pending])
        of_feeds = [i.feeds for i in self._pending if i.feeds is not None]
        assert len(of_feeds) in (0, len(self._pending)), "the feed of all rows is known, or of none"
        left_out = [i.left_out for i in self._pending if i.left_out is not None]
        assert len(left_out) in (0, len(self._pending)), "a source leaves out values, or does not"
        if left_out:
            rows = rows.append_column(UNAVAILABLE, pa.concat_arrays(left_out))
        self._pending, self._pending_bytes = [], 0
        yield from self._seal(rows, kinds, np.concatenate(of_feeds) if of_feeds else None)

    @abstractmethod
    def _seal(self, rows: pa.Table, kinds: pa.Array, feeds: Feeds | None) -> Iterator[Run]:
        """Yields the rows that were in the buffer as sealed runs (sorted, packed rows for the tasks that write
        buckets).
        """
        ...

    def _grouped(self, rows: pa.Table) -> "Groups":
        """Divides the rows of a flush by partition and group (a bucket, or a share of the keys), and returns the
        positions of the rows of each group. Raises OptionError for rows of a partition whose files have another
        bucket count.
        """
        partitions, row_partitions = self._partitions(rows)
        _check_totals(partitions, self._plan)
        buckets = self._groups(rows, partitions, row_partitions)
        lowest = int(buckets.min())
        numbers = row_partitions.astype(np.int64) * (int(buckets.max()) - lowest + 1) + (buckets - lowest)
        by_group = np.argsort(_narrow(numbers), kind="stable")
        borders = np.append(np.flatnonzero(np.diff(numbers[by_group], prepend=-1)), len(by_group))
        ids, starts = [], []
        for first, end in pairwise(borders.tolist()):
            row = by_group[first]
            group_id = partitions[int(row_partitions[row])], int(buckets[row])
            start = self._consumed.get(group_id, 0)
            self._consumed[group_id] = start + end - first
            ids.append(group_id)
            starts.append(start)
        return Groups(by_group, borders, ids, starts)

    def _partitions(self, rows: pa.Table) -> tuple[list[bytes], np.ndarray]:
        grouping = self._plan.grouping
        if isinstance(grouping, KeyShares) and grouping.across_partitions:
            return [EMPTY_ROW], np.zeros(rows.num_rows, np.int32)
        return partition_codes(rows, self._plan.schema)


@dataclass(frozen=True, slots=True)
class Groups:
    """The rows of a task that are sealed together, divided into groups. A group is the rows of one bucket, or of the
    keys that one task owns.

    - `by_group` holds the positions of the rows, group after group, in order of arrival inside a group.
    - `borders` says where a group begins and ends: the rows of group i are `by_group[borders[i]:borders[i + 1]]`.
    - `ids` are the partition and the bucket of each group; a negative bucket stands for the keys that a task owns.
    - `starts` is the arrival rank of the first row of each group.
    """

    by_group: np.ndarray
    borders: np.ndarray
    ids: Sequence[BucketId]
    starts: Sequence[int]


class RunSealer(Sealer[SealedRun]):
    """Seals rows into runs (sorted rows, packed for the task that writes them). Each run holds rows of one group: of
    one bucket, or, if the buckets are not known yet, of the keys that one task handles.
    """

    def _seal(self, rows: pa.Table, kinds: pa.Array, feeds: Feeds | None) -> Iterator[SealedRun]:
        grouped = self._grouped(rows)
        rows = columns_of_runs(rows, self._plan)
        groups: list[_Group] = []
        of_groups = zip(grouped.ids, grouped.starts, pairwise(grouped.borders.tolist()), strict=True)
        for group_id, start, (first, end) in of_groups:
            members = grouped.by_group[first:end]
            groups.append(_Group(*group_id, members, start, None if feeds is None else feeds[members]))
        for together in self._together(groups, rows):
            sort = [partial(self._sorted, rows, kinds, group) for group in together]
            for group, sorted_rows in zip(together, all_items(sort, self._plan.threads), strict=True):
                yield from self._sealed_group(group, sorted_rows)

    def _together(self, groups: Sequence["_Group"], rows: pa.Table) -> Iterator[Sequence["_Group"]]:
        """Divides the groups (buckets, or shares of the keys) into lists, and yields the lists in order. The groups of
        one list may be sorted at the same time by several threads, because the memory for sorting is enough for all of
        them.
        """
        if self._plan.threads < 2 or rows.nbytes < SMALL_BYTES:
            yield from ([group] for group in groups)
            return
        most_rows = self._plan.sorting_bytes * rows.num_rows // rows.nbytes
        together: list[_Group] = []
        count = 0
        for group in groups:
            count += len(group.members)
            if together and count > most_rows:
                yield together
                together, count = [], len(group.members)
            together.append(group)
        yield together

    def _sorted(self, rows: pa.Table, kinds: pa.Array, group: "_Group") -> Iterator[pa.Table]:
        """Yields one table with the rows of a group (a bucket or a group of keys). The rows are sorted and merged as in
        a sealed run, and have two more columns: the arrival rank and the row kind.
        """
        plan, members = self._plan, group.members
        ranks = np.arange(group.start, group.end, dtype=np.int64)
        keys = plan.schema.trimmed_primary_key
        if keys and not plan.keep_order:
            sort_columns = rows.select(list(dict.fromkeys((*keys, *plan.sequence_fields)))).take(members)
            direction: Literal["ascending", "descending"] = "descending" if plan.sequence_descending else "ascending"
            order = np.asarray(sort_indices(sort_columns, keys, then=[(c, direction) for c in plan.sequence_fields]))
            chosen = order
            # If rows lack values, no row is folded away, because they get the values from earlier rows of their key.
            if isinstance(plan.fold, Selection) and has_all_values(rows, plan):
                starts = key_changes(sort_columns.select(list(keys)).take(order), keys)
                self._look(rows, group, order, starts)
                chosen = order[plan.fold.select(starts, np.asarray(kinds.take(members))[order])]
            ranks, members = ranks[chosen], members[chosen]
        sorted_rows = rows.take(members)
        yield sorted_rows.append_column(SEQUENCE, pa.array(ranks)).append_column(VALUE_KIND, kinds.take(members))

    def _look(self, rows: pa.Table, group: "_Group", order: np.ndarray, starts: np.ndarray) -> None:
        """Looks for a key of the group whose rows came from several feeds (topic partitions), before the rows of each
        key are merged. The first such key is stored in `mixed`.

        `order` sorts the rows of the group by key, and `starts` is true at the first row of each key.
        """
        if group.feeds is None or self.mixed is not None:
            return
        feeds = group.feeds[order]
        at = first_mixed(feeds, starts)
        if at is not None:
            row, pair = int(group.members[order[at]]), (int(feeds[at - 1]), int(feeds[at]))
            self.mixed = mixed_key(rows, row, self._plan.schema.primary_keys, pair)

    def _sealed_group(self, group: "_Group", rows: pa.Table) -> Iterator[SealedRun]:
        plan, feeds = self._plan, group.spans
        rows_each = max(1, rows.num_rows * plan.run_bytes // max(1, rows.nbytes))
        form = plan.form
        if form is RunForm.ROWS and rows_each < rows.num_rows:
            # A slice would keep all of the rows in memory as long as the slice exists.
            form = RunForm.PLAIN
        for first in range(0, rows.num_rows, rows_each):
            piece = rows.slice(first, rows_each)
            yield SealedRun(
                partition=group.partition,
                bucket=group.bucket,
                origin=self._origin,
                flush=self._flush,
                consumed_rows=0 if first else group.end - group.start,
                rank_end=group.end,
                row_count=piece.num_rows,
                blob=_sealed(piece, form),
                group=group.bucket,
                feeds=feeds,
            )
            self._flush += 1


@dataclass(frozen=True, slots=True)
class _Group:
    """The rows of one bucket, or of one share (the keys that one task handles), at the time when the buffer is emptied.

    `members` are the positions of these rows among all rows of the buffer.
    `start` is the arrival rank of the first row.
    `feeds` has the feed (topic partition) of each row; None if the order of rows does not depend on the feed.
    """

    partition: bytes
    bucket: int
    members: np.ndarray
    start: int
    feeds: Feeds | None

    @property
    def end(self) -> int:
        return self.start + len(self.members)

    @property
    def spans(self) -> bytes:
        return b"" if self.feeds is None else FeedSpans.of(self.feeds, self.start).to_bytes()


def columns_of_runs(rows: pa.Table, plan: SealPlan) -> pa.Table:
    """Returns the rows with only the columns that sealed runs (sorted, packed rows) have: the table's columns, and the
    column UNAVAILABLE if the source may leave out values.
    """
    names = [f.name for f in plan.schema.fields]
    return rows.select([*names, UNAVAILABLE] if _leaves_out(rows, plan) else names)


def has_all_values(rows: pa.Table, plan: SealPlan) -> bool:
    """Returns True if the source left out no value in any of the rows."""
    return not _leaves_out(rows, plan) or rows[UNAVAILABLE].null_count == len(rows)


def _leaves_out(rows: pa.Table, plan: SealPlan) -> bool:
    return UNAVAILABLE in rows.column_names and all(f.name != UNAVAILABLE for f in plan.schema.fields)


def _sealed(rows: pa.Table, form: RunForm) -> bytes | pa.Buffer | pa.Table:
    if form is RunForm.ROWS:
        return rows
    return seal(rows) if form is RunForm.PACKED else seal_here(rows)


def seal(rows: pa.Table) -> bytes:
    """Returns the rows as a compressed Arrow IPC stream. Its record batches have at most BLOB_ROWS rows and about
    BLOB_BYTES bytes.
    """
    sink = pa.BufferOutputStream()
    _write_stream(rows, sink, "lz4")
    sealed: bytes = sink.getvalue().to_pybytes()
    return sealed


def seal_here(rows: pa.Table) -> pa.Buffer:
    """Returns the rows as an Arrow IPC stream that is not compressed, in a buffer of exactly its size."""
    measured = pa.MockOutputStream()
    _write_stream(rows, measured, None)
    sealed = pa.allocate_buffer(measured.size())
    _write_stream(rows, pa.FixedSizeBufferWriter(sealed), None)
    return sealed


def _write_stream(rows: pa.Table, sink: pa.NativeFile, compression: str | None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows, max_chunksize=batch_rows(rows))


def batch_rows(rows: pa.Table | pa.RecordBatch) -> int:
    """Returns how many rows go into one record batch of a sealed run (sorted, packed rows), judging by the average size
    of `rows`.
    """
    fitting: int = BLOB_BYTES * rows.num_rows // max(1, rows.nbytes)
    return max(1, min(BLOB_ROWS, fitting))


def write_packed(rows: pa.RecordBatchReader, sink: RawIOBase) -> None:
    """Writes the rows to `sink` as a compressed Arrow IPC stream. The stream has the same record batches as `rows`.
    Small writes are collected into pieces of about PIECE_BYTES, because Arrow writes the buffers of each column
    separately.
    """
    out = BufferedWriter(sink, PIECE_BYTES)
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(out, rows.schema, options=options) as writer:
        for batch in rows:
            writer.write_batch(batch)
    out.detach()  # This writes the last piece, and leaves the sink open.


class CutRows(ABC):
    """Some rows of a sealed run (sorted, packed rows) that has more rows, for example the rows of one bucket. They can
    be read like a sealed run of their own.
    """

    @abstractmethod
    def reader(self) -> pa.RecordBatchReader:
        """Returns a reader of the record batches of the rows. This method can be called several times."""
        ...


def unseal(blob: pa.Buffer | bytes | pa.Table | RawIOBase | CutRows) -> pa.RecordBatchReader:
    """Returns a reader of the record batches in a sealed run (sorted, packed rows). The reader decompresses one batch
    at a time.
    """
    if isinstance(blob, CutRows):
        return blob.reader()
    if isinstance(blob, pa.Table):
        return blob.to_reader(max_chunksize=batch_rows(blob))
    return pa.ipc.open_stream(blob)


def sequence_offsets(runs: Iterable[SealedRun]) -> dict[tuple[int, int], int]:
    """Takes all runs of one bucket. A run has arrival ranks, which are counted separately for each pair of origin
    (number of the task) and group. Returns for each pair the number to add to the arrival ranks of this pair. After the
    addition, no two pairs have a rank in common, and a lower pair has lower ranks.
    """
    ends: dict[tuple[int, int], int] = {}
    for run in runs:
        ranked = run.origin, run.group
        ends[ranked] = max(ends.get(ranked, 0), run.rank_end)
    offsets, total = {}, 0
    for ranked in sorted(ends):
        offsets[ranked] = total
        total += ends[ranked]
    return offsets


def partition_codes(rows: pa.Table, schema: TableSchema) -> tuple[list[bytes], np.ndarray]:
    """Returns the distinct partitions as serialized rows, and for each row the position of its partition in
    this list.
    """
    fields = schema.select(schema.partition_keys)
    if not fields:
        return [EMPTY_ROW], np.zeros(rows.num_rows, np.int32)
    columns = [rows[f.name] for f in fields]
    encoded = encode_rows(columns, [f.type for f in fields], with_arity=True).dictionary_encode()
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices)


def _check_totals(partitions: list[bytes], plan: SealPlan) -> None:
    """Raises OptionError if one of the partitions has files with another bucket count. Source: Paimon 2.0
    AbstractFileStoreWrite.
    """
    for partition in partitions:
        previous = plan.other_totals.get(partition)
        if previous is not None:
            named = partition_path(plan.schema, partition).rstrip("/").replace("/", ",")
            raise OptionError(
                f"Try to write partition {{{named}}} with a new bucket num {plan.total_buckets}, but the previous "
                f"bucket num is {previous}. {_remedy(plan, previous)}",
                key=BUCKET.key,
                expected=previous,
                found=plan.total_buckets,
            )


def _remedy(plan: SealPlan, previous: int) -> str:
    total = plan.total_buckets
    return (
        f"If a rescale to {previous} was interrupted, run the same `rescale({previous})` again; if '{BUCKET.key}' was "
        f"changed, move the rows by `rescale({total})`."
    )


def _narrow(groups: np.ndarray) -> np.ndarray:
    """Returns numbers that sort in the same order as the given numbers (all >= 0), as 16-bit integers if they fit.
    numpy sorts 16-bit integers several times faster, because it uses radix sort for them.
    """
    if int(groups.max()) >= 1 << 16:
        names, groups = np.unique(groups, return_inverse=True)
        if len(names) > 1 << 16:
            return groups
    return groups.astype(np.uint16)
