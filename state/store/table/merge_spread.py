"""A merge whose rows are joined in the tasks of an engine. Both the table's rows and the source's rows are sent to
tasks by the hash of their key; a share is the part of the keys that goes to one task.

The source is read twice. The first reading finds the buckets and files of the table that the source's keys may match,
so that other buckets and files are not read. It is an error if the second reading returns a key that the first reading
did not return, because rows of the table with this key may not have been read.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.state.bucket.allocation import hash_share
from bucketline.state.store.engine.engine import Engine, PartReport, Rows
from bucketline.state.store.engine.joined import NO_SHARE, Joined, RowsPart
from bucketline.state.store.table.append_changes import Removed
from bucketline.state.store.table.merge_clauses import PlannedMerge
from bucketline.state.store.table.merge_join import Alone, Matched, Side, UnmatchedRows
from bucketline.state.store.table.merge_source import JoinKey, SeenMatches, prepared
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.types.arrow import with_types
from bucketline.state.types.hashes.distinct import distinct
from bucketline.state.types.hashes.hash_set import HashSet

MOST_HASHES = 4 << 20
"""The largest number of key hashes (four bytes each) that is sent to every task, so that a task sends only rows of the
table that may match. For more keys the tasks get a bitmap.
"""

MOST_HASHES_OF_TASK = 2 << 20
"""The largest number of key hashes that a task collects from its source rows. For more keys the task makes a bitmap,
which takes as much space as this number of hashes.
"""


@dataclass(frozen=True, slots=True)
class SourceKeys:
    """What is known about the keys of a source: which rows of the table the keys may match (`seen`), the hashes of the
    keys, and the size of the source's rows. `schema` holds the source's columns, where key columns have the types of
    the table's columns.
    """

    key: JoinKey
    schema: pa.Schema
    seen: SeenMatches
    size_bytes: int
    hashes: HashSet


@dataclass(frozen=True, slots=True)
class LookAtSource:
    """A function for tasks. Takes the source rows of one task, and yields one Arrow IPC stream of one row: the size of
    the rows, the hashes of their keys, the partitions of the matching rows of the table, and the range of the values of
    each key column.
    """

    key: JoinKey

    def __call__(self, tables: Iterable[pa.Table]) -> Iterator[bytes]:
        seen, size = SeenMatches(self.key), 0
        for table in tables:
            rows = prepared(table, self.key)
            if rows.num_rows:
                size += rows.nbytes
                seen.add(rows, self.key.hashes(rows))
        if not size:
            return
        hashes = HashSet.of(distinct(*seen.hashes), MOST_HASHES_OF_TASK)
        said = {
            "bytes": pa.array([size], pa.int64()),
            "hashes": pa.array([hashes.exact], pa.list_(pa.int32())),
            "bits": pa.array([None if hashes.bits is None else hashes.bits.tobytes()], pa.binary()),
            "partitions": pa.array(
                [None if seen.partitions is None else sorted(seen.partitions)], pa.list_(pa.binary())
            ),
        }
        for name, (low, high) in seen.ranges.items():
            said[f"low {name}"], said[f"high {name}"] = pa.repeat(low, 1), pa.repeat(high, 1)
        batch = pa.record_batch(said)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield sink.getvalue().to_pybytes()


def look_at_source(key: JoinKey, rows: Rows) -> SourceKeys:
    """Reads the source of a MERGE once, and returns what is known about the keys of its rows: for example the hashes of
    the keys and the smallest and largest values. Raises SchemaMismatchError for columns that do not fit.
    """
    columns = prepared(rows.schema.empty_table(), key).schema
    schema = pa.schema([pa.field(f.name, f.type) for f in columns])
    seen, size, hashes = SeenMatches(key), 0, HashSet(np.empty(0, np.int32))
    for payload in rows.each(LookAtSource(key)):
        row = pa.ipc.open_stream(payload).read_all()
        size += row["bytes"][0].as_py()
        hashes = hashes.union(_hashes(row), MOST_HASHES)
        if seen.partitions is not None:
            seen.partitions.update(row["partitions"][0].as_py())
        for name in key.columns:
            if f"low {name}" in row.column_names:
                seen.widen(name, row[f"low {name}"][0], row[f"high {name}"][0])
    return SourceKeys(key, schema, seen, size, hashes)


def _hashes(row: pa.Table) -> HashSet:
    if row["bits"][0].is_valid:
        return HashSet(None, np.frombuffer(row["bits"][0].as_buffer(), np.uint8))
    return HashSet(np.asarray(row["hashes"].combine_chunks().flatten()))


@dataclass(frozen=True, slots=True)
class SourceShare:
    """A function for tasks: takes source rows, and returns the rows and the number of the share of each row. A share is
    the group of keys that one task handles; the hash of a key decides its share. The rows are cast to the source's
    schema first, because a task may see timestamps in another time zone, or columns as NOT NULL.
    """

    keys: SourceKeys
    count: int

    def __call__(self, rows: pa.Table) -> tuple[pa.Table, np.ndarray]:
        fitted = with_types(prepared(rows, self.keys.key), self.keys.schema)
        hashes = self.keys.key.hashes(fitted)
        if not self.keys.hashes.has(hashes).all():
            raise OptionError(
                "the source returns other keys when it is read again, but a merge reads the source twice; write the "
                "source to a table or to files first, and merge from there",
                key="source",
            )
        return fitted, hash_share(hashes, self.count)


@dataclass(frozen=True, slots=True)
class TargetShare:
    """A function for tasks of a MERGE: returns rows of the table unchanged, and for each row the number of its share
    (the group of keys that one task joins). The number is NO_SHARE if the hash of the row's key does not occur in the
    source, so that the row matches no source row.
    """

    key: JoinKey
    count: int
    hashes: HashSet | None

    def __call__(self, rows: pa.Table) -> tuple[pa.Table, np.ndarray]:
        hashes = self.key.hashes(rows)
        shares = hash_share(hashes, self.count)
        if self.hashes is not None:
            shares = np.where(self.hashes.has(hashes), shares, NO_SHARE)
        return rows, shares


@dataclass(frozen=True, slots=True)
class MergedShare:
    """A function for tasks. For one share (the group of keys that one task handles), it joins the source rows with the
    stored rows, and yields the rows that the merge writes. For a table without a primary key, it also yields reports of
    the rows that must be taken out of the table.
    """

    planned: PlannedMerge
    key: JoinKey
    has_key: bool

    def rows(self, source: pa.Table, stored: Iterator[pa.RecordBatch]) -> Iterator[pa.Table | PartReport]:
        planned, removed = self.planned, Removed()
        passes = None if planned.clauses.on is None else planned.passing
        side = Side(self.key, source, passes, bool(planned.matched), bool(planned.by_source))
        for changed in planned.outcomes(_sides(side, stored)):
            if isinstance(changed, pa.Table):
                yield changed
                continue
            if not self.has_key:
                removed.add(changed.before)
            if changed.written is not None:
                yield changed.written
        yield from removed.reports()


def _sides(side: Side, stored: Iterator[pa.RecordBatch]) -> Iterator[Matched | Alone | UnmatchedRows]:
    for rows in stored:
        yield from side.matched(rows)
    yield from side.unmatched()


def joined_source(
    at: TableAt,
    rows: Rows,
    keys: SourceKeys,
    planned: PlannedMerge,
    stored: Sequence[RowsPart],
    engine: Engine,
) -> Joined:
    """Returns the source for an engine run that joins and merges the rows. `rows` is the source of the merge, `keys` is
    what the first reading of `rows` has found, and `stored` are the parts of the table that the merge reads.
    """
    sink, schema = at.plan.sink, at.plan.schema
    count = max(2 * engine.workers.parallelism, 1 + keys.size_bytes // max(1, sink.merge_memory_bytes))
    # Without hashes every row of the table gets a share, because clauses may change rows that match no source row.
    hashes = None if planned.by_source else keys.hashes
    return Joined(
        stored,
        TargetShare(keys.key, count, hashes),
        rows.source,
        SourceShare(keys, count),
        keys.schema,
        MergedShare(planned, keys.key, bool(schema.primary_keys)),
        count,
        sink.merge_memory_bytes,
        sink.local_directory,
    )
