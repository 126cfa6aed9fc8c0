"""Reads the rows of some parts of Parquet files, on an executor, as Spark would. A file is refused if it is not certain
that Spark would read the same rows.

A row group is read in slices, whatever its size: a task holds some pages of each column, and the slice.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bucketline.conf.wording import counted
from bucketline.state.store.datafile.parquet_rows import ParquetRows
from bucketline.streaming.tasks.parquet_files import FilePart, ParquetFiles
from bucketline.streaming.tasks.parquet_fit import UnfitFileError, columns_in_file, row_groups_of

_MOST_ROWS = 64 << 10
_SLICE_BYTES = 16 << 20


def file_rows(share: tuple[FilePart, ...], source: ParquetFiles) -> Iterator[pa.Table]:
    """Yields the rows of the file parts in `share`, part after part. Raises UnfitFileError with the path of a file
    that tasks cannot read.
    """
    for part in share:
        try:
            yield from _rows(part, source)
        except (UnfitFileError, pa.ArrowException, OSError, ValueError) as e:
            why = e.message if isinstance(e, UnfitFileError) else f"{e}".strip().partition("\n")[0][:300]
            raise UnfitFileError(f"{part.path}: {why}", path=part.path) from e


def _rows(part: FilePart, source: ParquetFiles) -> Iterator[pa.Table]:
    path = Path(part.path)
    if (path.parent / f".{path.name}.crc").exists():
        raise UnfitFileError("the file has checksums in a second file next to it, and only Spark checks them")
    if path.stat().st_size != part.file_size:
        raise UnfitFileError(
            f"the size of the file has changed since the batch was planned; it was {counted(part.file_size, 'byte')}"
        )
    with pa.OSFile(str(path)) as source_file, pq.ParquetFile(source_file) as file:
        in_file = columns_in_file(file, source)
        names = {name: in_file[of] for name, of in source.declared_of.items() if of in in_file}
        wanted = list(dict.fromkeys(names[name] for name in source.columns.names if name in names))
        if not wanted:
            raise UnfitFileError("the file has none of the table's columns")
        groups = row_groups_of(file.metadata, part)
        for batch in ParquetRows(source_file).batches(wanted, _MOST_ROWS, _SLICE_BYTES, groups):
            yield _as_spark_reads(batch, names, source.columns)


def _as_spark_reads(batch: pa.RecordBatch, names: dict[str, str], columns: pa.Schema) -> pa.Table:
    """Returns the rows with the requested columns, in the requested types. Raises ArrowInvalid for values that do not
    fit the type.
    """
    arrays = [_column(batch, names.get(field.name), field.type) for field in columns]
    return pa.Table.from_arrays(arrays, schema=columns)


def _column(batch: pa.RecordBatch, name: str | None, arrow_type: pa.DataType) -> pa.Array:
    if name is None:
        return pa.nulls(batch.num_rows, arrow_type)
    values = batch.column(name)
    if values.type != arrow_type:
        values = values.cast(arrow_type)
    if arrow_type == pa.string() or pa.types.is_decimal(arrow_type):
        values.validate(full=True)
    return values
