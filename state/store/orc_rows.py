"""Rows of ORC data files, stripe by stripe.

Source: Paimon 2.0 OrcReaderFactory, OrcTypeUtil.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.types.cast import declared
from bucketline.state.types.logical import DataType, TypeRoot

_OUT_OF_RANGE = "out of range for nanosecond"


class OrcRows:
    """An ORC file that is read from front to back; its constructor reads the footer."""

    offset = 0
    """pyarrow does not tell where stripes begin."""

    def __init__(self, source: pa.NativeFile) -> None:
        self._file = orc.ORCFile(source)

    @property
    def row_count(self) -> int:
        found: int = self._file.nrows
        return found

    @property
    def names(self) -> list[str]:
        """The names of the top-level columns."""
        found: list[str] = self._file.schema.names
        return found

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of the columns, in file order, as batches of at most `batch_rows`. Raises what pyarrow raises.

        Memory: the wanted columns of one stripe.
        """
        for number in range(self._file.nstripes):
            stripe = self._stripe(number, columns)
            for start in range(0, stripe.num_rows, batch_rows):
                yield stripe.slice(start, batch_rows)

    def declare(self, column: pa.Array, stored: DataType) -> pa.Array:
        """As other formats, but text of a fixed length comes padded with spaces, and timestamps in nanoseconds."""
        found = declared(column, stored)
        return pc.utf8_rtrim(found, " ") if stored.root is TypeRoot.CHAR else found

    def _stripe(self, number: int, columns: Sequence[str]) -> pa.RecordBatch:
        try:
            return self._file.read_stripe(number, columns=list(columns))
        except pa.ArrowInvalid as e:
            if _OUT_OF_RANGE not in str(e):
                raise
            raise UnsupportedTableError(
                f"stripe {number} holds a timestamp outside of 1677-09-21 to 2262-04-11, the years that 64 bits of "
                "nanoseconds can hold; ORC timestamps are read so",
                stripe=number,
            ) from e
