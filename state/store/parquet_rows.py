"""Rows of Parquet data files, row group by row group.

Source: Paimon 2.0 ParquetReaderFactory (what readers accept); pages' CRC32 is checked where the writer left one.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.types.cast import declared

_BUFFER_BYTES = 1 << 20
"""Bytes fetched at once for one column, so that a reader never holds a whole column of a row group."""


class ParquetRows:
    """A Parquet file that is read from front to back; its constructor reads the footer."""

    declare = staticmethod(declared)

    def __init__(self, source: pa.NativeFile) -> None:
        self._source = source
        self._file = self._opened("us")
        self._row = 0

    @property
    def row_count(self) -> int:
        found: int = self._file.metadata.num_rows
        return found

    @property
    def names(self) -> list[str]:
        """The names of the top-level columns."""
        found: list[str] = self._file.schema_arrow.names
        return found

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of the columns, in file order, as batches of at most `batch_rows`. Raises what pyarrow raises.

        INT96 timestamps come in nanoseconds. Raises UnsupportedTableError for one that 64 bits cannot hold so.
        """
        wide = self._int96_columns(columns)
        exact = iter(())
        if wide:
            exact = self._opened("ns").iter_batches(batch_size=batch_rows, columns=list(columns))
        for batch in self._file.iter_batches(batch_size=batch_rows, columns=list(columns)):
            found = _in_nanoseconds(batch, next(exact), wide) if wide else batch
            self._row += found.num_rows
            yield found

    @property
    def offset(self) -> int:
        """Where the row group begins that is being read, in bytes."""
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
        return pq.ParquetFile(
            self._source,
            buffer_size=_BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit=int96_unit,
        )

    def _int96_columns(self, columns: Sequence[str]) -> frozenset[str]:
        """The wanted top-level columns that hold INT96 values, at any depth."""
        schema = self._file.schema
        leaves = [schema.column(i) for i in range(len(schema))]
        paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
        return frozenset(c for c in columns if any(p == c or p.startswith(f"{c}.") for p in paths))


def _in_nanoseconds(micros: pa.RecordBatch, nanos: pa.RecordBatch, columns: frozenset[str]) -> pa.RecordBatch:
    """The batch read in nanoseconds, once the one in microseconds shows that nothing ran over."""
    for name in columns:
        for coarse, fine in zip(_leaves(micros[name]), _leaves(nanos[name]), strict=True):
            if not pa.types.is_timestamp(coarse.type) or coarse.type == fine.type:
                continue
            back = pc.divide(fine.cast(pa.int64()), 1000)
            # Division cuts towards zero, the reader floors; one microsecond is no overflow.
            gap = pc.max(pc.abs(pc.subtract(back, coarse.cast(pa.int64())))).as_py()
            if gap is not None and gap > 1:
                raise UnsupportedTableError(
                    f"column {name} holds a timestamp outside of 1677-09-21 to 2262-04-11, the years that 64 bits "
                    "of nanoseconds can hold",
                    column=name,
                )
    return nanos


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _leaves(child)
    elif pa.types.is_map(array.type):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif pa.types.is_list(array.type):
        yield from _leaves(array.flatten())
    else:
        yield array
