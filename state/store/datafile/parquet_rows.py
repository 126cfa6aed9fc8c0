"""Reads rows of Parquet data files, row group by row group."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.store.datafile.stored_names import ids_in
from bucketline.state.types.buffers import leaves
from bucketline.state.types.cast import declared

_BUFFER_BYTES = 1 << 20
"""How many bytes are fetched at once for one column, so that a whole column of a row group is never in memory."""

_PROBE_ROWS = 256
"""How many rows are read first, to measure them. Their size decides how many rows a batch gets."""

_OPTIONAL_KEYS = "Map keys must be annotated as required"
"""A part of Arrow's error message for a file with a MAP whose keys are optional, that is, may be null."""

_BY_ARROW = re.compile(r"parquet-cpp-arrow version ([0-9]{1,4})\.")
_FIXED_BYTES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
"""The bytes that a value takes in memory, by its type in the file. Decimals take 16 bytes."""

_PLAIN = frozenset(("PLAIN", "RLE", "BIT_PACKED"))
"""The encodings in which strings take as many bytes in the file, before compression, as in memory."""

_PLAIN_OR_DICTIONARY = _PLAIN | {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}
"""The encodings in which no value is larger than its whole column in the file."""

_LARGEST_GROUP_BYTES = 4 << 30
"""The largest size of a column in a row group, in bytes, that is believed. If a footer states a larger size, the footer
is damaged or the column is very large; then rows are read and measured.
"""

_SMALL_TEXT_BYTES = 64 << 10
"""The largest number of bytes of strings in a file for which the size in memory is taken from an earlier file. No value
can be larger than this.
"""

_WRAPPED_MICROS = 2**64 // 1000

_MOST_SCHEMAS, _MOST_FOOTER_BYTES = 8, 64 << 10
"""How many schemas are cached with their leaves, and the largest total size of their footers in bytes. A cached schema
keeps the whole footer of its file in memory.
"""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group: its number, the position of its first row in the file, and the bounds of one column (None if they
    are not known).
    """

    number: int
    first_row: int
    row_count: int
    low: object
    high: object


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column of plain values in a Parquet file: its path in the file, its top-level column, its type in the file, and
    the bytes that a value takes in memory (0 for strings).
    """

    path: str
    column: str
    physical_type: str
    value_bytes: int
    is_repeated: bool


class _Leaves:
    """The leaves (columns of plain values) of files. The leaves are found once for all files with the same schema,
    because the search takes long.
    """

    def __init__(self) -> None:
        self._known: tuple[tuple[pa.Schema, pq.ParquetSchema, tuple[_Leaf, ...]], ...] = ()

    def of(self, file: pq.ParquetFile, columns: pa.Schema) -> tuple[_Leaf, ...]:
        """Returns the leaves of a file: its columns of plain values, which include the fields and items of nested
        columns. `columns` are the top-level columns of the file in Arrow's types.
        """
        schema = file.schema
        for names, seen, leaves_of in self._known:
            # Parquet's schemas are equal if their leaves are equal, even if the top-level columns have other names.
            if seen.equals(schema) and names.equals(columns):
                return leaves_of
        file_leaves = tuple(_leaf(schema.column(i)) for i in range(len(schema)))
        if file.metadata.serialized_size <= _MOST_FOOTER_BYTES:
            # This is a single assignment, so other threads see either the new or the old value.
            self._known = ((columns, schema, file_leaves), *self._known[: _MOST_SCHEMAS - 1])
        return file_leaves


def _longest_bound(chunk: pq.ColumnChunkMetaData) -> float:
    """Returns the length in bytes of the smallest or the largest string, whichever is longer; infinite if the footer
    does not have both strings.
    """
    stats = chunk.statistics
    if stats is None or not stats.has_min_max:
        return float("inf")
    return max(len(stats.min_raw), len(stats.max_raw))


def _leaf(column: pq.ColumnSchema) -> _Leaf:
    physical = str(column.physical_type)
    size = 0 if physical == "BYTE_ARRAY" else max(_FIXED_BYTES.get(physical, column.length), 16 * _is_decimal(column))
    path = str(column.path)
    return _Leaf(path, path.split(".")[0], physical, size, bool(column.max_repetition_level))


_LEAVES = _Leaves()


class TextSizes:
    """The memory that a row's strings take, as measured in the file that was read last. The measured size is used for
    string columns whose size in memory does not follow from the footer.

    A file that was written in the same way is assumed to have rows of the same size, because it takes long to read the
    first rows of each file only to measure them.
    """

    def __init__(self) -> None:
        self._seen: dict[frozenset[str], tuple[float, float]] = {}

    def of(self, columns: frozenset[str], packed_bytes: float, longest: float) -> float | None:
        """Returns how many bytes a row of these columns takes in memory, as measured in an earlier file. Returns None
        if no file was measured, or if the rows of this file may be much larger.

        `packed_bytes` is the size of the columns in this file. `longest` is the length of their longest values,
        according to the footer. The longest values matter because, with a dictionary, many rows may have a long value
        that the file holds only once.
        """
        seen = self._seen.get(columns)
        if seen is None or packed_bytes > min(2 * seen[0], _SMALL_TEXT_BYTES) or longest > 2 * seen[1]:
            return None
        return seen[1]

    def note(self, columns: frozenset[str], packed_bytes: float, row_bytes: float) -> None:
        self._seen[columns] = packed_bytes, row_bytes


class ParquetRows:
    """A Parquet file that is read from front to back. The constructor reads the footer."""

    declare = staticmethod(declared)
    has_units = True

    def __init__(self, source: pa.NativeFile) -> None:
        self._source = source
        self._file = self._opened("us")
        self.schema: pa.Schema = self._file.schema_arrow
        """The columns of the file in Arrow's types. Columns with INT96 values have microseconds."""
        self._row = 0

    @property
    def row_count(self) -> int:
        count: int = self._file.metadata.num_rows
        return count

    @property
    def names(self) -> list[str]:
        """Returns the names of the top-level columns."""
        names: list[str] = self.schema.names
        return names

    @cached_property
    def ids(self) -> dict[str, int]:
        """Returns the field ids of the top-level columns that have one, by name."""
        return ids_in(self.schema, b"PARQUET:field_id")

    @property
    def types(self) -> dict[str, pa.DataType]:
        """Returns the types that the file states for columns that have a field id, by column name. INT96 timestamps are
        in nanoseconds.
        """
        ids = self.ids
        types = {f.name: f.type for f in self.schema if f.name in ids}
        for name in self._int96_columns(list(types)):
            if pa.types.is_timestamp(types[name]):
                types[name] = pa.timestamp("ns")
            else:
                del types[name]
        return types

    def batches(
        self,
        columns: Sequence[str],
        batch_rows: int,
        batch_bytes: int,
        groups: Sequence[int] | None = None,
        sizes: TextSizes | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows, with these columns, in file order, in batches of at most `batch_rows` rows and about
        `batch_bytes` bytes. Raises the errors of pyarrow.

        The bytes of a row are estimated from the rows before it, also from earlier files that were read with the same
        `sizes`. With `groups`, only the row groups with these numbers are read; the numbers must ascend.

        INT96 timestamps are in nanoseconds, or in microseconds if 64 bits cannot hold the nanoseconds of some value of
        a batch. Raises UnsupportedTableError if the nanoseconds of a timestamp inside a nested value do not fit.
        """
        wide = self._int96_columns(columns)
        in_nanoseconds = self._opened("ns") if wide else None
        waiting = list(range(self._file.num_row_groups) if groups is None else groups)
        row_bytes = self._first_row_bytes(columns, waiting[:1], batch_bytes, sizes or TextSizes())
        while waiting:
            size = max(1, min(batch_rows, int(batch_bytes / row_bytes)))
            together, waiting = self._portion(waiting, size)
            # A pool with one thread would only cost switches between threads.
            wanted = {
                "batch_size": size,
                "row_groups": together,
                "columns": list(columns),
                "use_threads": pa.cpu_count() > 1,
            }
            exact = iter(()) if in_nanoseconds is None else in_nanoseconds.iter_batches(**wanted)
            seen_rows = seen_bytes = 0
            for batch in self._file.iter_batches(**wanted):
                rows = _in_nanoseconds(batch, next(exact), wide, counts_back=self._counts_back) if wide else batch
                self._row += rows.num_rows
                seen_rows += rows.num_rows
                seen_bytes += rows.nbytes
                yield rows
            row_bytes = max(1, seen_bytes / max(1, seen_rows))

    def _portion(self, groups: list[int], row_count: int) -> tuple[list[int], list[int]]:
        """Splits the row groups into two lists, and returns both: the groups to read now, which have at least
        `row_count` rows if the file has so many, and the groups to read later.
        """
        rows = 0
        for position, number in enumerate(groups):
            rows += self._file.metadata.row_group(number).num_rows
            if rows >= row_count:
                return groups[: position + 1], groups[position + 1 :]
        return groups, []

    def _first_row_bytes(
        self, columns: Sequence[str], groups: Sequence[int], batch_bytes: int, sizes: TextSizes
    ) -> float:
        """Returns how many bytes one of the first rows takes in memory. For plain values the footer states the size.
        For a value from a dictionary, the size of the whole dictionary is an upper bound; if rows of this size would
        not fit into one batch, some rows are read and measured.
        """
        if not groups:
            return 1.0
        meta = self._file.metadata.row_group(groups[0])
        known, bound, longest, packed, wanted = 1.0, 0.0, 0.0, set[str](), frozenset(columns)
        for i, leaf in enumerate(self._leaves):
            if leaf.column not in wanted:
                continue
            if leaf.is_repeated:
                bound = float("inf")
                packed.add(leaf.column)
            elif leaf.physical_type != "BYTE_ARRAY":
                known += leaf.value_bytes
            else:
                chunk = meta.column(i)
                size, encodings = chunk.total_uncompressed_size, set(chunk.encodings)
                if encodings <= _PLAIN and 0 <= size < _LARGEST_GROUP_BYTES:
                    known += size / max(1, meta.num_rows)
                else:
                    bound += size if encodings <= _PLAIN_OR_DICTIONARY and size >= 0 else float("inf")
                    packed.add(leaf.column)
                    longest += _longest_bound(chunk)
        if not packed or (known + bound) * meta.num_rows <= batch_bytes:
            return known + bound
        seen = sizes.of(frozenset(packed), bound, longest)
        if seen is not None:
            return known + seen
        probe = {"batch_size": _PROBE_ROWS, "row_groups": groups, "columns": list(packed), "use_threads": False}
        first = next(self._file.iter_batches(**probe), None)
        if first is None or not first.num_rows:
            return known
        text: float = first.nbytes / first.num_rows
        sizes.note(frozenset(packed), bound, text)
        return known + text

    def row_groups(self, column: str) -> list[RowGroup]:
        """Returns the row groups in the footer, with the bounds of a top-level column. Raises ValueError for a damaged
        footer.
        """
        meta = self._file.metadata
        groups = []
        first_row = 0
        for number in range(meta.num_row_groups):
            group = meta.row_group(number)
            chunk = self._chunk(group, column)
            stats = None if chunk is None else chunk.statistics
            low, high = (stats.min, stats.max) if stats is not None and stats.has_min_max else (None, None)
            groups.append(RowGroup(number, first_row, group.num_rows, low, high))
            first_row += group.num_rows
        return groups

    def _chunk(self, group: pq.RowGroupMetaData, column: str) -> pq.ColumnChunkMetaData | None:
        """Returns the column of a row group; None if it does not exist. Raises ValueError if the footer states two
        types for the column: Arrow would end the whole process if it read the bounds of such a column.
        """
        for i, leaf in enumerate(self._leaves):
            if leaf.path == column:
                chunk = group.column(i)
                if chunk.physical_type != leaf.physical_type:
                    raise ValueError(
                        f"its footer states two types for column {column}: {chunk.physical_type} and "
                        f"{leaf.physical_type}"
                    )
                return chunk
        return None

    @property
    def offset(self) -> int:
        """Returns the offset of the current row group in the file, in bytes."""
        first_row = 0
        meta = self._file.metadata
        for number in range(meta.num_row_groups):
            group = meta.row_group(number)
            if self._row < first_row + group.num_rows and group.num_columns:
                first = group.column(0)
                return int(first.dictionary_page_offset or first.data_page_offset)
            first_row += group.num_rows
        return 0

    def _opened(self, int96_unit: str) -> pq.ParquetFile:
        # A column of a small file is fetched as a whole, because a buffer would be larger than the column.
        buffer_bytes = 0 if self._source.size() <= _BUFFER_BYTES else _BUFFER_BYTES
        try:
            return pq.ParquetFile(
                self._source,
                buffer_size=buffer_bytes,
                pre_buffer=False,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit=int96_unit,
            )
        except pa.ArrowInvalid as e:
            if _OPTIONAL_KEYS not in str(e):
                raise
            raise UnsupportedTableError(
                "a MAP in this Parquet file has optional keys, as Paimon wrote them before release 0.9, and bucketline "
                "cannot read such a file; compact the table fully with Paimon first"
            ) from e

    @property
    def _counts_back(self) -> bool:
        """Returns True if the writer of the file stores INT96 times before 1970 with a negative time of day. The Java
        library does this, and so does Arrow before release 23.
        """
        writer = str(self._file.metadata.created_by or "")
        arrow = _BY_ARROW.match(writer)
        return writer.startswith("parquet-mr") or (arrow is not None and int(arrow[1]) < 23)

    def _int96_columns(self, columns: Sequence[str]) -> frozenset[str]:
        """Returns the wanted top-level columns that hold INT96 values, at any depth."""
        return frozenset(c for c in columns if any(p == c or p.startswith(f"{c}.") for p in self.int96_paths))

    @cached_property
    def int96_paths(self) -> tuple[str, ...]:
        """Returns the paths of the columns with INT96 values, as `column` or `column.inner`."""
        return tuple(leaf.path for leaf in self._leaves if leaf.physical_type == "INT96")

    @cached_property
    def _leaves(self) -> tuple[_Leaf, ...]:
        return _LEAVES.of(self._file, self.schema)


def _is_decimal(leaf: pq.ColumnSchema) -> bool:
    return bool(leaf.logical_type.type == "DECIMAL")


def _in_nanoseconds(
    micros: pa.RecordBatch, nanos: pa.RecordBatch, columns: frozenset[str], *, counts_back: bool
) -> pa.RecordBatch:
    """Returns the batch `nanos`, in which some INT96 columns may be replaced. `columns` are the names of the INT96
    columns. `micros` holds the same rows with times in microseconds. If a column has a time whose nanoseconds do not
    fit into 64 bits, the whole column is taken from `micros`.

    Some writers store a time before 1970 with a negative time of day (`counts_back`), but Arrow reads the time of day
    as a number without a sign. In nanoseconds, the 64 bits wrap around, so the result is right nevertheless. In
    microseconds, the result is 584 years too late. Times in the years 2262 to 2554 look the same in a file, and are
    read as times before 1970.
    """
    for name in columns:
        position = nanos.schema.get_field_index(name)
        for coarse, fine in zip(leaves(micros[name]), leaves(nanos[name]), strict=True):
            if not pa.types.is_timestamp(coarse.type) or coarse.type == fine.type:
                continue
            back = pc.divide(fine.cast(pa.int64()), 1000)
            # Division rounds towards zero, but the reader rounds down, so a difference of one microsecond is no
            # overflow.
            gaps = pc.drop_null(pc.subtract(coarse.cast(pa.int64()), back)).to_numpy()
            if counts_back:
                gaps = np.where(gaps > _WRAPPED_MICROS // 2, gaps - _WRAPPED_MICROS, gaps)
            if len(gaps) and np.abs(gaps).max() > 1:
                if pa.types.is_timestamp(micros[name].type):
                    nanos = nanos.set_column(position, micros.schema.field(name), micros[name])
                    continue
                raise UnsupportedTableError(
                    f"column {name} holds a timestamp outside of 1677-09-21 to 2262-04-11, the years that 64 bits "
                    "of nanoseconds can hold; leave the column out of the columns to read",
                    column=name,
                )
    return nanos
