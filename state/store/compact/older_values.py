"""Finds the older values of keys, on the levels above a compaction's output, by a join with the key columns of these
levels.

Keys are looked up in ascending order, so each level is read once, from low to high keys. Files and row groups without
any of the keys are not read. One record batch of each level is in memory.

Source: Paimon 2.0 LookupLevels, LookupUtils (levels are searched in order, and the lowest wins). Instead of a lookup
file for each data file there is a join, which always sees the current deletion vectors.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.row_age import RowAge
from bucketline.state.lsm.aggregate.events import Indices, Mask
from bucketline.state.lsm.merge.change_rows import LEVEL
from bucketline.state.lsm.merge.lookup_fold import OlderMatches
from bucketline.state.lsm.tree.run import SortedRun
from bucketline.state.lsm.tree.sort_keys import SortKeys, count_up_to, last_key
from bucketline.state.store.datafile.data_files import BatchLimit, parquet_groups, read_data_file
from bucketline.state.store.datafile.parquet_rows import RowGroup
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.buffers import one_array
from bucketline.state.types.logical import DataField, TypeRoot
from bucketline.state.types.order import normalized_keys
from bucketline.state.types.values import to_scalar

_BOUNDED = frozenset(
    (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.DATE, TypeRoot.CHAR, TypeRoot.VARCHAR)
)
"""The types of a first key column for which the bounds in Parquet footers have the same order as the keys."""


class Marks(Protocol):
    """The positions of the deleted rows, by data file. While a compaction runs, it asks for these positions with
    `of_name`, and adds positions with `delete`.
    """

    def of_name(self, file_name: str) -> Indices | None: ...

    def delete(self, file_name: str, positions: Indices) -> None: ...


@dataclass(frozen=True, slots=True)
class Above:
    """The levels above a compaction's output: the sorted runs by level, lowest level first, and how their files are
    read. If the table has deletion vectors, `marks` are the vectors of the bucket. A row that a lookup finds is marked
    as deleted in these vectors, because a newer row replaces it.
    """

    access: FileAccess
    bucket: BucketFiles
    runs: tuple[tuple[int, SortedRun], ...]
    batch_rows: int
    marks: Marks | None = None


class OlderValues:
    """Looks up keys on the levels above a compaction's output, for `LookupFold` and `FirstRowLookup`.

    `columns` are the columns of the rows to return; empty if the caller only needs to know whether a key exists.
    """

    def __init__(self, above: Above, columns: Sequence[str]) -> None:
        schema = above.access.schema
        self._marks, self._age = above.marks, above.access.age
        self._keys = schema.select(schema.trimmed_primary_key)
        self._returns_rows = bool(columns)
        time = () if self._age is None or not columns else (self._age.field.name,)
        read = tuple(dict.fromkeys((*(k.name for k in self._keys), *columns, *time)))
        self._levels = [_Level(above, level, run, self._keys, read) for level, run in above.runs if run.files]

    def find(self, keys: pa.Table) -> OlderMatches:
        """Returns the older row of each key (see `OlderRows.find`): the row on the lowest level that has the key. If
        the table has deletion vectors, the rows that were found are marked as deleted.
        """
        wanted = _normalized(keys, self._keys)
        span = _Span(wanted[0].as_py(), last_key(wanted), keys[self._keys[0].name][0], keys[self._keys[0].name][-1])
        open_at = np.arange(len(wanted))
        parts: list[tuple[Indices, pa.Table | None]] = []
        for level in self._levels:
            if not len(open_at):
                break
            hit = np.zeros(len(open_at), bool)
            for match in level.matches(wanted.take(pa.array(open_at)), span):
                match = match.less(self._marks)
                if self._marks is not None and len(match.keys):
                    self._marks.delete(match.file_name, match.positions)
                if self._returns_rows and self._age is not None:
                    match = match.unexpired(self._age)
                hit[match.keys] = True
                parts.append((open_at[match.keys], match.rows() if self._returns_rows else None))
            open_at = open_at[~hit]
        places = np.concatenate([np.empty(0, np.int64), *(k for k, _ in parts)])
        order = np.argsort(places, kind="stable")
        tables = [rows for _, rows in parts if rows is not None]
        if not self._returns_rows or not tables:
            return OlderMatches(places[order], None)
        return OlderMatches(places[order], pa.concat_tables(tables).take(pa.array(order)))


@dataclass(frozen=True, slots=True)
class _Span:
    """The range of keys of one lookup: the lowest and the highest key, and the first key column's value in both."""

    low: Any
    high: Any
    first_low: pa.Scalar
    first_high: pa.Scalar


@dataclass(frozen=True, slots=True)
class _Block:
    """A record batch of a data file, its keys, and the position of its first row in the file."""

    file_name: str
    first_row: int
    keys: SortKeys
    batch: pa.RecordBatch
    level: int


@dataclass(frozen=True, slots=True)
class _Match:
    """Keys that were found in a block of a data file. `keys` are their positions among the keys that are looked up, and
    `positions` are the positions of their rows in the data file.
    """

    block: _Block
    keys: Indices
    positions: Indices

    @property
    def file_name(self) -> str:
        return self.block.file_name

    def less(self, marks: Marks | None) -> "_Match":
        """Returns the match without deleted rows."""
        deleted = None if marks is None else marks.of_name(self.file_name)
        if deleted is None or not len(self.keys):
            return self
        near = deleted[slice(*np.searchsorted(deleted, [self.positions[0], self.positions[-1] + 1]))]
        kept: Mask = ~np.isin(self.positions, near)
        return _Match(self.block, self.keys[kept], self.positions[kept])

    def unexpired(self, age: RowAge) -> "_Match":
        """Returns the match without expired rows."""
        times = self.block.batch.column(age.field.name).take(pa.array(self.positions - self.block.first_row))
        kept: Mask = age.keeps(times).to_numpy(zero_copy_only=False)
        return _Match(self.block, self.keys[kept], self.positions[kept])

    def rows(self) -> pa.Table:
        matched = self.block.batch.take(pa.array(self.positions - self.block.first_row))
        level = pa.repeat(pa.scalar(self.block.level, pa.int32()), matched.num_rows)
        return pa.Table.from_batches([matched]).append_column(LEVEL, level)


@dataclass(frozen=True, slots=True)
class _Unit:
    """A file, or one row group of a file, that may be read next."""

    is_before: Callable[[_Span], bool]
    is_after: Callable[[_Span], bool]
    blocks: Callable[[], Iterator[_Block]]
    parts: Callable[[], "list[_Unit]"] | None = None


class _Level:
    """The sorted run of one level. Its rows are read once, from low to high keys."""

    def __init__(
        self, above: Above, level: int, run: SortedRun, keys: Sequence[DataField], columns: Sequence[str]
    ) -> None:
        self._above, self._number, self._keys, self._columns = above, level, keys, columns
        self._units = deque(self._file_unit(f) for f in run.files)
        self._blocks: Iterator[_Block] = iter(())
        self._block: _Block | None = None

    def matches(self, wanted: SortKeys, span: _Span) -> Iterator[_Match]:
        while (block := self._next(span)) is not None:
            low, high = block.keys[0].as_py(), last_key(block.keys)
            start = _count_below(wanted, low)
            part = wanted.slice(start, count_up_to(wanted, high) - start)
            if len(part):
                at, rows = _positions(part, block.keys)
                if len(at):
                    yield _Match(block, at + start, rows + block.first_row)
            if high > span.high:
                return
            self._block = None

    def _next(self, span: _Span) -> _Block | None:
        """Returns the next record batch of the sorted run that may hold keys of the range `span`. Returns None if no
        record batch before the end of the range is left.
        """
        while True:
            if self._block is None:
                self._block = next(self._blocks, None)
            if self._block is not None:
                if last_key(self._block.keys) < span.low:
                    self._block = None
                    continue
                return None if self._block.keys[0].as_py() > span.high else self._block
            if not self._units or self._units[0].is_after(span):
                return None
            unit = self._units.popleft()
            if unit.is_before(span):
                continue
            parts = unit.parts() if unit.parts is not None else []
            if parts:
                self._units.extendleft(reversed(parts))
            else:
                self._blocks = unit.blocks()

    def _file_unit(self, file: DataFileMeta) -> _Unit:
        low, high = (_normalized_key(key, self._keys) for key in (file.min_key, file.max_key))
        return _Unit(
            is_before=lambda span: high < span.low,
            is_after=lambda span: low > span.high,
            blocks=lambda: self._read(file, 0, None),
            parts=lambda: self._group_units(file),
        )

    def _group_units(self, file: DataFileMeta) -> list[_Unit]:
        """Returns a unit (a piece of the file that can be read or skipped alone) for each row group of a file, with
        the smallest and the largest value of the first key column. Returns an empty list if a row group does not
        state these values, or if the file is small.
        """
        first = self._keys[0]
        if first.type.root not in _BOUNDED or file.row_count <= self._above.batch_rows:
            return []
        access = self._above.access
        io, path = access.place(self._above.bucket, file)
        groups = parquet_groups(io, path, file, first, stored=access.schema_of(file.schema_id))
        if groups is None or len(groups) < 2 or any(g.low is None for g in groups):
            return []
        return [self._group_unit(file, g) for g in groups]

    def _group_unit(self, file: DataFileMeta, group: RowGroup) -> _Unit:
        low, high = _comparable(group.low), _comparable(group.high)
        return _Unit(
            is_before=lambda span: high < _comparable(span.first_low),
            is_after=lambda span: low > _comparable(span.first_high),
            blocks=lambda: self._read(file, group.first_row, group.number),
        )

    def _read(self, file: DataFileMeta, first_row: int, group: int | None) -> Iterator[_Block]:
        access = self._above.access
        io, path = access.place(self._above.bucket, file)
        batches = read_data_file(
            io,
            path,
            file,
            access.schema,
            self._columns,
            stored=access.schema_of(file.schema_id),
            partition=self._above.bucket.partition,
            limit=BatchLimit(self._above.batch_rows, access.batch_bytes),
            groups=None if group is None else [group],
        )
        for batch in batches:
            if batch.num_rows:
                keys = _normalized(batch, self._keys)
                yield _Block(file.file_name, first_row, keys, batch, self._number)
                first_row += batch.num_rows


def _positions(wanted: SortKeys, present: SortKeys) -> tuple[Indices, Indices]:
    """Returns the positions of the keys that two ascending lists have in common: their positions in the first list, and
    their positions in the second list. A list has each key at most once.
    """
    if pa.types.is_large_binary(wanted.type):
        at = pc.index_in(wanted, value_set=present)
        hits = at.is_valid().to_numpy(zero_copy_only=False)
        return np.flatnonzero(hits), at.drop_null().to_numpy().astype(np.int64)
    left, right = wanted.to_numpy(), present.to_numpy()
    places = np.minimum(np.searchsorted(right, left), len(right) - 1)
    hits = right[places] == left
    return np.flatnonzero(hits), places[hits].astype(np.int64)


def _count_below(keys: SortKeys, bound: Any) -> int:
    """Returns how many of the ascending keys are less than `bound`."""
    count = count_up_to(keys, bound)
    return count - 1 if count and keys[count - 1].as_py() == bound else count


def _normalized(rows: pa.Table | pa.RecordBatch, keys: Sequence[DataField]) -> SortKeys:
    arrays = [one_array(rows.column(k.name)) for k in keys]
    return normalized_keys(arrays, [k.type for k in keys])


def _normalized_key(key: bytes, fields: Sequence[DataField]) -> Any:
    values = decode_row(key, [f.type for f in fields])
    arrays = [pa.repeat(to_scalar(v, f.type), 1) for v, f in zip(values, fields, strict=True)]
    return normalized_keys(arrays, [f.type for f in fields])[0].as_py()


def _comparable(value: Any) -> Any:
    """Converts a key to a value that compares as keys do: a string becomes bytes. The key is an Arrow scalar, or comes
    from the bounds in a file's footer.
    """
    plain = value.as_py() if isinstance(value, pa.Scalar) else value
    return plain.encode() if isinstance(plain, str) else plain
