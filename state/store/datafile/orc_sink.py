"""Writes ORC data files so that Paimon Java can read them.

Paimon's older form of timestamps with local time zone (`orc.timestamp-ltz.legacy.type`, the default) is read as the
time on a clock in the reader's time zone. An ORC timestamp without a time zone is the same for every reader, so if it
holds the time in UTC, every reader gets the right instant. ORC's own timestamps with time zone, as Paimon Java writes
them, are right only for readers in the time zone of the writer.

The C++ writer of ORC also writes in its destructor, where an error would end the whole process. So the writer gets a
stream that raises no errors, but keeps them until Python asks for them.

Source: Paimon 2.0 OrcFileFormat, OrcTypeUtil, OrcFormatWriter.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc

from bucketline.conf.errors import BucketlineError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.datafile.checked_sink import CheckedSink, block_bytes_for
from bucketline.state.types.buffers import leaves

_NANOS_PER_SECOND = 1_000_000_000
_FIELD_ID = b"PARQUET:field_id"
_ORC_ID = b"paimon.id"


class OrcSink:
    """Writes one file into an open stream, with checksums in the footer. Closing this writer leaves the stream open.
    About `stripe_bytes` are buffered. `target_bytes` is the planned size of the file.
    """

    def __init__(
        self,
        sink: pa.NativeFile,
        schema: pa.Schema,
        *,
        codec: str,
        stripe_bytes: int,
        target_bytes: int,
        is_legacy_ltz: bool,
    ) -> None:
        self._stored = [_stored_field(f, is_legacy_ltz) for f in schema]
        # No index is written, because Java would skip matching rows by it: Java orders strings by UTF-16, and NaN has
        # no order.
        self._output = OrcOutput(sink)
        self._sink = CheckedSink(self._output, block_bytes_for(target_bytes))
        self._writer = orc.ORCWriter(pa.PythonFile(self._sink, mode="w"), compression=codec, stripe_size=stripe_bytes)

    def write(self, group: pa.Table) -> None:
        """Adds rows. The columns of `group` are in the order of the schema.

        Raises SchemaMismatchError for a timestamp that readers could not read: a timestamp whose nanoseconds since 1970
        do not fit into 64 bits, or a timestamp before 1970 with a fraction of a second, which pyarrow writes in a form
        that Java refuses.
        """
        columns = [_stored(column, f) for column, f in zip(group.columns, self._stored, strict=True)]
        for column, field in zip(columns, self._stored, strict=True):
            if _holds_timestamps(field.type):
                _refuse_early_fractions(column, field.name)
        with self._output.errors():
            self._writer.write(pa.Table.from_arrays(columns, schema=pa.schema(self._stored)))

    def close(self) -> None:
        """Writes the remaining rows and the footer."""
        with self._output.errors():
            self._writer.close()
            self._sink.finish()


def _stored(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as e:
        raise SchemaMismatchError(
            f"column {field.name}: {e}; ORC can only hold timestamps from 1677-09-21 to 2262-04-11; set 'file.format' "
            "to 'parquet'",
            column=field.name,
        ) from e


def _refuse_early_fractions(column: pa.ChunkedArray, name: str) -> None:
    for leaf in (leaf for chunk in column.chunks for leaf in leaves(chunk)):
        if not pa.types.is_timestamp(leaf.type):
            continue
        nanos = pc.drop_null(leaf).cast(pa.int64()).to_numpy()
        if (nanos[nanos < 0] % _NANOS_PER_SECOND).any():
            raise SchemaMismatchError(
                f"column {name}: ORC cannot hold a timestamp before 1970 with a fraction of a second in a form that "
                "Java reads; set 'file.format' to 'parquet' or 'avro'",
                column=name,
            )


def _holds_timestamps(arrow: pa.DataType) -> bool:
    if pa.types.is_timestamp(arrow):
        return True
    return any(_holds_timestamps(arrow.field(i).type) for i in range(arrow.num_fields))


def _stored_field(field: pa.Field, is_legacy_ltz: bool) -> pa.Field:
    """Returns the column as ORC stores it: nullable, with its field id in the metadata from which Paimon reads it."""
    stored = pa.field(field.name, _stored_type(field.type, is_legacy_ltz))
    number = (field.metadata or {}).get(_FIELD_ID)
    return stored if number is None else stored.with_metadata({_ORC_ID: number})


def _stored_type(arrow: pa.DataType, is_legacy_ltz: bool) -> pa.DataType:
    """Returns the type as ORC stores it. ORC has no times of day, and only one unit for timestamps. With
    `is_legacy_ltz`, timestamps with local time zone are stored without a time zone.
    """
    if pa.types.is_time(arrow):
        return pa.int32()
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("ns", None if is_legacy_ltz else arrow.tz)
    if pa.types.is_struct(arrow):
        return pa.struct([_stored_field(f, is_legacy_ltz) for f in arrow])
    if pa.types.is_map(arrow):
        key = _stored_field(arrow.key_field, is_legacy_ltz).with_nullable(False)
        return pa.map_(key, _stored_field(arrow.item_field, is_legacy_ltz))
    return pa.list_(_stored_field(arrow.value_field, is_legacy_ltz)) if pa.types.is_list(arrow) else arrow


class OrcOutput(io.RawIOBase):
    """A stream into an open file that never raises an error. After the first error nothing more is written."""

    def __init__(self, sink: pa.NativeFile) -> None:
        super().__init__()
        self._sink = sink
        self._size = 0
        self._error: Exception | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        """Returns the number of bytes that were written."""
        return self._size

    def write(self, data: Any) -> int:
        """Writes the bytes, and returns the number of bytes. If the storage fails, or has failed before, the bytes are
        dropped, no error is raised here, and the number is returned all the same. `errors` raises the error of the
        storage later.
        """
        rest = memoryview(data).cast("B")
        if self._error is None:
            try:
                self._sink.write(rest)
            except (OSError, pa.ArrowException, BucketlineError) as e:
                self._error = e
        self._size += len(rest)
        return len(rest)

    def close(self) -> None:
        """Does nothing. The code that opened the file closes it."""

    @contextmanager
    def errors(self) -> Iterator[None]:
        """At the end of the `with` block, raises the error that the storage has raised during this block or an earlier
        block.
        """
        yield
        if self._error is not None:
            raise self._error
