"""Adds to rows the columns that tell where the rows are stored: file, position in the file, partition and bucket."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_places import (
    BUCKET,
    FILE_PATH,
    PARTITION,
    ROW_INDEX,
    place_fields,
    places_among,
)
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.types.arrow import arrow_type, representable
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.buffers import repeated
from bucketline.state.types.char_text import padded_value
from bucketline.state.types.values import to_scalar


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """The values of the hidden columns that tell where a row is stored (its partition, bucket and data file), for the
    rows of one bucket or of one file. `values` maps the name of a hidden column to its value. `with_places` adds these
    columns to rows.
    """

    values: dict[str, pa.Scalar]

    @staticmethod
    def of(schema: TableSchema, bucket: BucketFiles, path: str | None = None) -> "BucketPlace":
        """Returns the place of the rows of a bucket; with `path`, the place of the rows of the file at this path in the
        bucket.
        """
        keys = schema.select(schema.partition_keys)
        stored = decode_row(bucket.partition, [f.type for f in keys])
        partition = {
            f.name: to_scalar(padded_value(value, f.type), f.type) for f, value in zip(keys, stored, strict=True)
        }
        kinds = {f.name: arrow_type(f.type) for f in place_fields(schema)}
        values = {BUCKET: bucket.bucket, PARTITION: partition, FILE_PATH: path}
        return BucketPlace({name: pa.scalar(value, kinds[name]) for name, value in values.items() if name in kinds})


def with_places(
    batches: Iterable[pa.RecordBatch], place: BucketPlace, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yields the batches with the requested columns. A column that a batch does not have gets the same value in all
    rows: the value that `place` has for the column, for example the number of the bucket.
    """
    for batch in batches:
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        arrays = [found[name] if name in found else repeated(place.values[name], batch.num_rows) for name in columns]
        yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields all rows of a file, in file order, with a column of the position of each row in the file, from 0 on."""
    start = 0
    for batch in batches:
        yield batch.append_column(ROW_INDEX, pa.array(np.arange(start, start + batch.num_rows, dtype=np.int64)))
        start += batch.num_rows


def stored_columns(schema: TableSchema, columns: Sequence[str]) -> Sequence[str]:
    """Returns the requested columns that are stored in data files. The other requested columns, such as the path of a
    row's file, are added to the stored columns later. If no requested column is stored, returns one column of the
    table, because a batch without columns would have no rows.
    """
    places = places_among(schema, columns)
    if not places:
        return columns
    stored = [name for name in columns if name not in places]
    return stored or [f.name for f in representable(schema.fields)[:1]]


def refuse_places(schema: TableSchema, columns: Iterable[str], refused: Collection[str]) -> None:
    """Raises UnsupportedTableError, naming the column, if one of the columns is in `refused`."""
    name = next((name for name in places_among(schema, columns) if name in refused), None)
    if name is not None:
        raise UnsupportedTableError(
            f"column {name} cannot be read here, because the values of a row come from several files; compact the "
            "table first, or leave out the column",
            column=name,
        )
