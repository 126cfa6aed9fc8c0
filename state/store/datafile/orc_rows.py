"""Reads rows of ORC data files, stripe by stripe."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc

from bucketline.conf.table.table_settings import DataFileSettings
from bucketline.state.errors import CorruptFileError, UnsupportedTableError
from bucketline.state.format.orc_tail import OrcTail, read_tail, writer_zone
from bucketline.state.sql.compute.zones import local_column
from bucketline.state.store.datafile.checked_file import checked_source
from bucketline.state.store.datafile.stored_names import ids_in
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.cast import declared
from bucketline.state.types.logical import DataType, TypeRoot

_OUT_OF_RANGE = "out of range for nanosecond"
_UTC = frozenset({"UTC", "GMT", "Etc/UTC", "Z"})

_SURE_FROM_NS = -2_145_916_800 * 10**9
"""1902-01-01 00:00, in nanoseconds since 1970."""

_DAY_NS = 86_400 * 10**9
_SECOND_NS = 10**9
_MILLI_NS = 999_999


class OrcRows:
    """An ORC file that is read from front to back. The constructor reads the footer. If the file has checksums, they
    are checked. `settings` are the table's settings when the file was written.
    """

    has_units = False

    def __init__(self, source: pa.NativeFile, settings: DataFileSettings) -> None:
        self._checked = checked_source(source)
        self._source = source if self._checked is None else pa.PythonFile(self._checked, mode="r")
        with self._damage_named():
            self._file = orc.ORCFile(self._source)
        self._is_legacy = settings.legacy_instants
        self._tail: OrcTail | None = None
        self._number = 0
        self._zone = "UTC"

    @property
    def row_count(self) -> int:
        count: int = self._file.nrows
        return count

    @property
    def names(self) -> list[str]:
        """Returns the names of the top-level columns."""
        names: list[str] = self._file.schema.names
        return names

    @property
    def ids(self) -> dict[str, int]:
        """Returns the field ids of the top-level columns, by column name. Columns without a field id are left out."""
        return ids_in(self._file.schema, b"paimon.id")

    @property
    def types(self) -> dict[str, pa.DataType]:
        """Returns the types that the file states for columns that have a field id, by column name."""
        ids = self.ids
        return {f.name: f.type for f in self._file.schema if f.name in ids}

    @property
    def offset(self) -> int:
        """Returns the offset of the current stripe in the file, in bytes; 0 if it is not known."""
        try:
            stripes = self._read_tail().stripes
        except CorruptFileError:
            return 0
        return stripes[self._number].offset if self._number < len(stripes) else 0

    def batches(self, columns: Sequence[str], batch_rows: int, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows, with these columns, in file order, in batches of at most `batch_rows` rows and about
        `batch_bytes` bytes. Raises the errors of pyarrow.

        Batches are slices of a stripe. The memory of the stripe is freed when none of its batches is used any more. In
        memory are the wanted columns of one stripe.
        """
        has_times = any(_has_times(f.type) for f in self._file.schema if f.name in columns)
        if self._checked is not None and set(columns) >= set(self.names):
            self._checked.read_in_long_pieces()
        for number in range(self._file.nstripes):
            self._number = number
            if has_times:
                tail = self._read_tail()
                self._zone = writer_zone(self._read_at, tail, tail.stripes[number])
            with self._damage_named():
                stripe = self._stripe(number, columns)
            row_bytes = max(1, stripe.nbytes // max(1, stripe.num_rows))
            size = max(1, min(batch_rows, batch_bytes // row_bytes))
            for start in range(0, stripe.num_rows, size):
                yield stripe.slice(start, size)

    def declare(self, column: pa.Array, stored: DataType) -> pa.Array:
        """Returns a column in its declared type. Timestamps with local time zone may be shifted: in Paimon's older form
        of ORC files, an instant is stored as the wall-clock time that it has in the writer's time zone, as if this were
        a UTC time.
        """
        if self._zone not in _UTC:
            if stored.root is TypeRoot.TIMESTAMP_LTZ and self._is_legacy:
                return local_column(column.cast(pa.timestamp("ns", self._zone))).cast(arrow_type(stored))
            if stored.root is TypeRoot.TIMESTAMP:
                self._check_old(column)
                column = _with_sign_of_instant(column, self._zone)
        return declared(column, stored)

    def _check_old(self, column: pa.Array) -> None:
        """Raises UnsupportedTableError for times before 1902. Until 1901 the writer's time zone may have used local
        mean time, which ORC's reader converts wrongly.
        """
        oldest = pc.min(column).cast(pa.int64()).as_py()
        if oldest is not None and oldest < _SURE_FROM_NS:
            raise UnsupportedTableError(
                f"stripe {self._number} was written in the zone {self._zone} and holds a timestamp before 1902, which "
                "cannot be read exactly",
                stripe=self._number,
                zone=self._zone,
            )

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        """If ORC's reader has turned a checksum error into another error, raises the checksum error instead."""
        try:
            yield
        except (pa.ArrowException, OSError) as e:
            if self._checked is not None and self._checked.error is not None:
                raise self._checked.error from e
            raise

    def _read_tail(self) -> OrcTail:
        if self._tail is None:
            self._tail = read_tail(self._read_at, self._source.size())
        return self._tail

    def _read_at(self, offset: int, length: int) -> bytes:
        self._source.seek(offset)
        data: bytes = self._source.read(length)
        return data

    def _stripe(self, number: int, columns: Sequence[str]) -> pa.RecordBatch:
        try:
            return self._file.read_stripe(number, columns=list(columns))
        except pa.ArrowInvalid as e:
            if _OUT_OF_RANGE not in str(e):
                raise
            raise UnsupportedTableError(
                f"stripe {number} holds a timestamp outside of 1677-09-21 to 2262-04-11; ORC timestamps are read as "
                "nanoseconds in 64 bits, which cannot hold it",
                stripe=number,
            ) from e


def _with_sign_of_instant(column: pa.Array, zone: str) -> pa.Array:
    """Returns the wall-clock times of a column, which was written in the time zone `zone`, without an error of one
    second that ORC's C++ reader makes close to 1970.

    ORC rounds seconds towards zero. So for a time before 1970 with a fraction larger than a millisecond, a reader must
    subtract one second. Whether a time is before 1970, the writer decides by the UTC time, but the C++ reader decides
    by the wall-clock time. Times for which the two decide differently are corrected.
    """
    values = column.cast(pa.int64()).fill_null(_DAY_NS).to_numpy(zero_copy_only=False)
    near = np.flatnonzero(np.abs(values) < _DAY_NS)
    nanos = values[near] % _SECOND_NS
    near, nanos = near[nanos > _MILLI_NS], nanos[nanos > _MILLI_NS]
    if not len(near):
        return column
    shown = values[near] - nanos
    taken_off = np.where(shown < 0, _SECOND_NS, 0)
    clock = pa.array(shown + taken_off, pa.int64()).cast(pa.timestamp("ns"))
    instants = pc.assume_timezone(clock, zone, ambiguous="earliest", nonexistent="earliest").cast(pa.int64())
    meant = np.where(instants.to_numpy() < 0, _SECOND_NS, 0)
    # The second before 1970 needs no correction, because zero has no sign.
    is_sure = shown != -_SECOND_NS
    mended = values.copy()
    mended[near] += np.where(is_sure, taken_off - meant, 0)
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(mended, pa.int64(), mask=nulls).cast(column.type)


def _has_times(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(arrow)) or any(_has_times(arrow.field(i).type) for i in range(arrow.num_fields))
