"""Makes the index of a data file while its rows are written: a bloom filter for each column that the options name.

The size of a filter depends on the number of distinct values in the file, and is at most what the options allow. So a
file of ten rows does not get a filter for a million values.

Source: Paimon 2.0 DataFileIndexWriter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.table.index_options import BloomColumn
from bucketline.state.format.index.bloom_filter import BLOOM_FILTER, BloomFilter, BloomSize, Hashes, bloom_hashes
from bucketline.state.format.index.file_index import encode_file_index, index_name
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.buffers import one_array, own_copy
from bucketline.state.types.logical import DataType


@dataclass(frozen=True, slots=True)
class IndexedField:
    """A column with a bloom filter, and the type of the values in the filter. For a map column this is the type of the
    map's values; for other columns it is the column's type.
    """

    column: BloomColumn
    type: DataType


def indexed_fields(schema: TableSchema) -> tuple[IndexedField, ...]:
    """Returns the columns of a table that get bloom filters. Raises OptionError if the option names a column that the
    table does not have.
    """
    found = []
    types = {f.name: f.type for f in schema.fields}
    for column in schema.settings.files.bloom_columns:
        kind = types.get(column.column)
        if kind is not None and column.map_key is not None:
            kind = kind.value
        if kind is None:
            raise OptionError(
                f"'file-index.{BLOOM_FILTER}.columns' names {index_name(column.column, column.map_key)!r}, which the "
                f"table does not have; take it out of the option",
                key=f"file-index.{BLOOM_FILTER}.columns",
                column=column.column,
            )
        found.append(IndexedField(column, kind))
    return tuple(found)


class IndexOfRows:
    """The index of one file, to which rows are added. For each column the index first takes 8 bytes of memory for each
    row. When a column has as many values as the options allow for a filter, its filter is made; from then on the column
    takes one byte of memory for each bit of the filter.
    """

    def __init__(self, fields: Sequence[IndexedField]) -> None:
        self._parts = [_Filled(field) for field in fields]

    def add(self, rows: pa.Table) -> None:
        """Adds rows of the file to the index."""
        for part in self._parts:
            part.add(rows)

    def to_bytes(self) -> bytes | None:
        """Returns the whole index as bytes; None if no column is indexed."""
        if not self._parts:
            return None
        return encode_file_index({part.name: {BLOOM_FILTER: part.to_bytes()} for part in self._parts})


class _Filled:
    """The bloom filter of one column. Hashes of values are collected first, because their number decides the size of
    the filter. When there are as many hashes as the options allow, a filter of the largest size is made, and further
    hashes go into it.
    """

    def __init__(self, field: IndexedField) -> None:
        self.name = index_name(field.column.column, field.column.map_key)
        self._field = field
        self._hashes: list[Hashes] = []
        self._held = 0
        self._filter: BloomFilter | None = None

    def add(self, rows: pa.Table) -> None:
        hashes = bloom_hashes(_values(rows, self._field.column), self._field.type)
        if self._filter is not None:
            self._filter.add(hashes)
            return
        self._hashes.append(hashes)
        self._held += len(hashes)
        most = self._field.column.items
        if self._held <= most:
            return
        different = _different(self._hashes)
        # Hashes that occur several times are stored once, if that frees half of the memory.
        if 2 * len(different) <= most:
            self._hashes, self._held = [different], len(different)
        else:
            self._filter = self._filled(different, most)
            self._hashes = []

    def to_bytes(self) -> bytes:
        if self._filter is not None:
            return self._filter.to_bytes()
        different = _different(self._hashes)
        return self._filled(different, max(1, len(different))).to_bytes()

    def _filled(self, hashes: Hashes, items: int) -> BloomFilter:
        filled = BloomFilter(BloomSize.of(items, self._field.column.wrong_share))
        filled.add(hashes)
        return filled


def _values(rows: pa.Table, column: BloomColumn) -> pa.Array:
    """Returns the values to index: the values of a column, or, for a map column, the values under one key."""
    values = one_array(rows.column(column.column))
    if column.map_key is None:
        return values
    maps = own_copy(values)
    keys, items = maps.keys, maps.items
    return items.filter(pc.equal(keys, pa.scalar(column.map_key).cast(keys.type)))


def _different(hashes: Sequence[Hashes]) -> Hashes:
    ordered = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *hashes]))
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered
