"""Reads rows of tables with row tracking, and of tables that store the columns of a row in several files (data
evolution).

Source: Paimon 2.0 DataEvolutionSplitRead, DataEvolutionFileReader, DataFileRecordReader.assignRowTracking.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import CorruptFileError, UnsupportedTableError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_ranges import ROW_ID, TRACKED_NAMES, RowRange, written_fields
from bucketline.state.store.read.prune import SchemaOf
from bucketline.state.types.arrow import SEQUENCE


def fill_tracked(batches: Iterable[pa.RecordBatch], file: DataFileMeta) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file, and fills in their row ids and sequence numbers if the file does not store them.

    `batches` must have all rows of the file, in file order. Raises CorruptFileError for a file without row ids.
    """
    start = 0
    for batch in batches:
        for name in TRACKED_NAMES:
            position = batch.schema.get_field_index(name)
            if position < 0 or not batch.column(position).null_count:
                continue
            filled = pc.coalesce(batch.column(position), _computed(name, file, start, batch.num_rows))
            batch = batch.set_column(position, batch.schema.field(position), filled)
        start += batch.num_rows
        yield batch


def columns_of_files(
    group: RowRange, schema: TableSchema, columns: Sequence[str], schema_of: SchemaOf
) -> dict[DataFileMeta, list[str]]:
    """Returns, for each file, the wanted columns that are read from the file. Each column is read from the newest file
    that has it. A column that no file has is read from the newest file, as null or as the value of the partition.
    Raises UnsupportedTableError for a column in vector or blob files.
    """
    apart = {f.id: part for part in group.parts for f in written_fields(schema_of(part.schema_id), part)}
    columns_by_file: dict[DataFileMeta, list[str]] = {}
    held = [(file, {f.id for f in written_fields(schema_of(file.schema_id), file)}) for file in group.files]
    for name in columns:
        constant = name in schema.partition_keys or name in TRACKED_NAMES
        wanted = schema.field(name).id
        owner = None if constant else next((file for file, ids in held if wanted in ids), None)
        if owner is None and wanted in apart:
            raise UnsupportedTableError(
                f"column {name} is stored in a separate file, {apart[wanted].file_name}, which bucketline cannot "
                "read; leave the column out of the columns to read",
                column=name,
            )
        columns_by_file.setdefault(group.files[0] if owner is None else owner, []).append(name)
    return columns_by_file


def side_by_side(streams: Sequence[Iterator[pa.RecordBatch]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields whole rows with the columns of all streams. Each stream holds some of the columns, for the same rows.
    Raises CorruptFileError if a stream has fewer rows than the others.
    """
    waiting: list[pa.RecordBatch | None] = [None] * len(streams)
    while True:
        waiting = [b if b is not None and b.num_rows else next(s, None) for b, s in zip(waiting, streams, strict=True)]
        batches = [b for b in waiting if b is not None]
        if not batches:
            return
        if len(batches) < len(streams):
            raise CorruptFileError("files with columns of the same rows have different numbers of rows")
        rows = min(b.num_rows for b in batches)
        of_name = {name: b.column(name).slice(0, rows) for b in batches for name in b.schema.names}
        if rows:
            yield pa.RecordBatch.from_arrays([of_name[name] for name in schema.names], schema=schema)
        waiting = [b.slice(rows) for b in batches]


def _computed(name: str, file: DataFileMeta, start: int, rows: int) -> pa.Array:
    if name == SEQUENCE:
        return pa.repeat(pa.scalar(file.max_sequence_number, pa.int64()), rows)
    assert name == ROW_ID
    if file.first_row_id is None:
        raise CorruptFileError(
            f"the file {file.file_name} has no row ids, although the table has row tracking", file=file.file_name
        )
    first = file.first_row_id + start
    return pa.array(np.arange(first, first + rows, dtype=np.int64))
