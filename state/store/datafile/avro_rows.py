"""Reads rows of Avro data files, block by block."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from bucketline.state.format.avro.columns import AvroColumns
from bucketline.state.types.cast import declared


class AvroRows:
    """An Avro file that is read from front to back. The constructor reads the header. An Avro file does not record how
    many rows it has.
    """

    row_count = None
    has_units = True
    declare = staticmethod(declared)

    def __init__(self, source: pa.NativeFile) -> None:
        self._columns = AvroColumns(source.read, source.size())

    @property
    def names(self) -> list[str]:
        """Returns the names of the top-level columns."""
        return self._columns.names

    @property
    def ids(self) -> dict[str, int]:
        """Returns an empty mapping, because Avro files have no field ids."""
        return {}

    @property
    def types(self) -> dict[str, pa.DataType]:
        """Returns the types that the file states, by column name; an empty mapping if the file was not written by
        Paimon.
        """
        return self._columns.declared

    @property
    def offset(self) -> int:
        """Returns the offset of the current block in the file, in bytes."""
        return self._columns.offset

    def batches(self, columns: Sequence[str], batch_rows: int, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows, with these columns, in file order. A batch has at most `batch_rows` rows and about
        `batch_bytes` bytes.

        Blocks are small, so several blocks make a batch. Raises CorruptFileError and UnsupportedTableError.
        """
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in self._columns.batches(columns):
            waiting.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if rows >= batch_rows or size >= batch_bytes:
                yield from _joined(waiting, batch_rows)
                waiting, rows, size = [], 0, 0
        if waiting:
            yield from _joined(waiting, batch_rows)


def _joined(batches: list[pa.RecordBatch], batch_rows: int) -> list[pa.RecordBatch]:
    whole = pa.Table.from_batches(batches).combine_chunks()
    parts: list[pa.RecordBatch] = whole.to_batches(max_chunksize=batch_rows)
    return parts
