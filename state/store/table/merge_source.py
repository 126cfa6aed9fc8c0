"""The source rows of a merge, stored by share: a share is the part of the keys that a hash selects. The rows are in
memory up to a budget, and above it on local disk.

The stored rows can be read more than once. So a merge that conflicted with another writer can be planned again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.bucket.allocation import hash_share
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.engine.given_streams import given
from bucketline.state.store.read.predicate import conjunction
from bucketline.state.store.table.write import SpreadData, with_kinds
from bucketline.state.store.write.run_buffer import Blob, RunBuffer, again
from bucketline.state.store.write.sealed_runs import SealedRun, partition_codes, seal, unseal
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.binary_row import encode_rows, hash_rows
from bucketline.state.types.buffers import one_array
from bucketline.state.types.fit import fit_array
from bucketline.state.types.hashes.distinct import distinct
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import TypeRoot

_SHARES_OF_A_STREAM = 16
"""The number of shares for a source whose size is not known in advance."""

_RANGED = (TypeRoot.FLOAT, TypeRoot.DOUBLE)


@dataclass(frozen=True, slots=True)
class JoinKey:
    """The columns by which a merge joins source rows to rows of the table. The values are compared in the types of the
    table's columns. A row with a null in one of the columns matches no row.
    """

    schema: TableSchema
    columns: tuple[str, ...]

    def of(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        """Returns the key of each row as bytes; null if one of the key columns is null."""
        types = [self.schema.field(name).type for name in self.columns]
        keys = encode_rows(self._arrays(rows), [t.as_nullable() for t in types], with_arity=False)
        return if_else(self.is_whole(rows), keys, pa.scalar(None, keys.type))

    def hashes(self, rows: pa.RecordBatch | pa.Table) -> np.ndarray:
        """Returns the hash of the key of each row."""
        types = [self.schema.field(name).type.as_nullable() for name in self.columns]
        return np.asarray(hash_rows(self._arrays(rows), types))

    def is_whole(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        """Returns a boolean for each row: True if no column of the row's key is null."""
        whole = np.ones(rows.num_rows, bool)
        for name in self.columns:
            whole &= np.asarray(pc.is_valid(one_array(rows[name])))
        return pa.array(whole)

    def _arrays(self, rows: pa.RecordBatch | pa.Table) -> list[pa.Array]:
        # Zeros with different signs are equal but have different bytes.
        flat = [one_array(rows[name]) for name in self.columns]
        return [pc.add(a, pa.scalar(0.0, a.type)) if pa.types.is_floating(a.type) else a for a in flat]


class MergeSource:
    """The source rows of a MERGE, in storage that can be read several times. The rows are divided by the hash of their
    key into shares: a task takes all rows of one share.

    `seen` has the hashes and value ranges of the source's keys: they tell which rows of the table may match. `hashes`
    are all these hashes, in ascending order.
    """

    def __init__(self, key: JoinKey, schema: pa.Schema, shares: Sequence[Sequence[Blob]], seen: "SeenMatches") -> None:
        self.key, self.schema, self.seen = key, schema, seen
        self._shares = shares
        self.hashes = distinct(*seen.hashes) if seen.hashes else np.empty(0, np.int32)

    @property
    def share_count(self) -> int:
        return len(self._shares)

    def rows(self, share: int) -> pa.Table:
        """Returns all source rows of a share."""
        batches = [batch for blob in self._shares[share] for batch in unseal(again(blob))]
        return pa.Table.from_batches(batches, schema=self.schema).combine_chunks()

    def share_of(self, hashes: np.ndarray) -> np.ndarray:
        """Returns for each hash of a key the number of the key's share (group of keys that are handled together)."""
        return hash_share(hashes, self.share_count)


class SeenMatches:
    """What is known about the rows of the table that the source rows may match: the hashes and the ranges of their
    keys, and their partitions.
    """

    def __init__(self, key: JoinKey) -> None:
        self._key = key
        self.hashes: list[np.ndarray] = []
        """The hashes of the keys, as sorted arrays. A hash may be in several arrays."""
        self._new_hashes = 0
        self.ranges: dict[str, tuple[pa.Scalar, pa.Scalar]] = {}
        self.partitions: set[bytes] | None = None
        """The partitions whose rows may match; None if rows of any partition may match."""
        if key.schema.partition_keys and set(key.schema.partition_keys) <= set(key.columns):
            self.partitions = set()

    @property
    def expression(self) -> pc.Expression | None:
        """Returns a condition that every matching row of the table meets; None if no such condition is known."""
        conditions = [(pc.field(name) >= low) & (pc.field(name) <= high) for name, (low, high) in self.ranges.items()]
        return conjunction(conditions) if conditions else None

    def add(self, rows: pa.Table, hashes: np.ndarray) -> None:
        self.hashes.append(distinct(hashes))
        self._new_hashes += len(self.hashes[-1])
        # The arrays of hashes are merged only now and then, because merging takes as long as all the hashes before it.
        if self._new_hashes >= len(self.hashes[0]):
            self.hashes, self._new_hashes = [distinct(*self.hashes)], 0
        for name in self._key.columns:
            if self._key.schema.field(name).type.root in _RANGED or rows[name].null_count == rows.num_rows:
                continue
            bounds = pc.min_max(rows[name])
            self.widen(name, bounds["min"], bounds["max"])
        if self.partitions is not None:
            self.partitions.update(partition_codes(rows, self._key.schema)[0])

    def widen(self, name: str, low: pa.Scalar, high: pa.Scalar) -> None:
        """Widens the known range of the column `name`, so that it includes the values from `low` to `high`."""
        values = [*self.ranges.get(name, ()), low, high]
        both = pc.min_max(pa.concat_arrays([pa.repeat(v, 1) for v in values]))
        self.ranges[name] = (both["min"], both["max"])


@contextmanager
def spooled(
    data: SpreadData, schema: TableSchema, on: Sequence[str], *, memory_bytes: int, directory: str | None
) -> Iterator[MergeSource]:
    """Stores the rows of the source, and gives the stored rows to the block of a `with` statement; the rows can be read
    until the block ends. Raises SchemaMismatchError for columns that do not fit.
    """
    key = JoinKey(schema, check_key(schema, on))
    seen = SeenMatches(key)
    data, count = given(data), _SHARES_OF_A_STREAM
    if not isinstance(data, pa.RecordBatchReader):
        count = 1 + getattr(data, "nbytes", 0) // max(1, memory_bytes)
    out: pa.Schema | None = None
    with RunBuffer(budget_bytes=memory_bytes, directory=directory) as buffer:
        for number, table in enumerate(with_kinds(data, None)):
            rows = prepared(table, key)
            out = out or rows.schema
            if not rows.num_rows:
                continue
            hashes = key.hashes(rows)
            seen.add(rows, hashes)
            shares = hash_share(hashes, count)
            for share in np.unique(shares).tolist():
                mine = rows if count == 1 else rows.filter(pa.array(shares == share))
                buffer.add(run_of_share(share, number, mine))
        assert out is not None
        yield MergeSource(key, out, [[blob for _, blob in buffer.take((b"", s))] for s in range(count)], seen)


def check_key(schema: TableSchema, on: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns to join by, without duplicates. Raises SchemaMismatchError if no column is named, for an
    unknown column, and for a column whose type cannot be compared.
    """
    names = () if isinstance(on, str) else tuple(dict.fromkeys(on))
    own = [f.name for f in schema.fields]
    if not names:
        raise SchemaMismatchError("a merge needs columns to join by, for example on=['id']", on=on)
    for name in names:
        if name not in own:
            raise SchemaMismatchError(
                f"there is no column {name!r} to join by; the columns are {', '.join(own)}", column=name
            )
        if not schema.field(name).type.is_atomic:
            raise SchemaMismatchError(
                f"rows cannot be joined by column {name!r}, because its type is {schema.field(name).type}; join by "
                "other columns",
                column=name,
            )
    return names


def prepared(table: pa.Table, key: JoinKey) -> pa.Table:
    """Returns the source rows with their join columns cast to the types of the table's columns. Raises
    SchemaMismatchError for a column that is missing or that occurs twice.
    """
    names = table.column_names
    doubled = next((n for n in names if names.count(n) > 1), None)
    if doubled is not None:
        raise SchemaMismatchError(
            f"the source has column {doubled!r} twice; rename or drop one of the two", column=doubled
        )
    if ROW_KIND_COLUMN in names and all(f.name != ROW_KIND_COLUMN for f in key.schema.fields):
        raise SchemaMismatchError(
            f"the source of a merge cannot have row kinds: leave out {ROW_KIND_COLUMN}, and use when_matched and "
            "when_not_matched to say what becomes of rows",
            column=ROW_KIND_COLUMN,
        )
    for name in key.columns:
        if name not in names:
            raise SchemaMismatchError(f"the source has no column {name!r} to join by", column=name)
        wanted = key.schema.field(name).type.as_nullable()
        fitted = fit_array(one_array(table[name]), wanted, arrow_type(wanted), f"source.{name}")
        position = names.index(name)
        table = table.set_column(position, pa.field(name, fitted.type), fitted)
    return table


def run_of_share(share: int, number: int, rows: pa.Table) -> SealedRun:
    """Packs source rows into a sealed run, which a `RunBuffer` can store. `share` is the number of the share (a part of
    the keys, by their hash) to which all of the rows belong. The buffer returns the sealed runs of a share in the order
    of `number`.
    """
    return SealedRun(b"", share, 0, number, rows.num_rows, 0, rows.num_rows, seal(rows))
