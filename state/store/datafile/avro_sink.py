"""Writes Avro data files: blocks of some thousand rows, each encoded in whole columns.

Source: Paimon 2.0 AvroFileFormat.
"""

from collections.abc import Sequence

import pyarrow as pa

from bucketline.state.format.avro.encode import AvroEncoder
from bucketline.state.types.logical import DataField

BLOCK_ROWS = 16384
BLOCK_BYTES = 4 << 20
"""Arrow bytes of the rows of a block, unless one row has more: what encoding holds, and what a reader unpacks."""


class AvroSink:
    """One file being written; closing it leaves the sink open.

    `file_name` makes the sync marker one that no other file has. Raises UnsupportedTableError for columns that Avro
    has no place for.
    """

    def __init__(
        self,
        sink: pa.NativeFile,
        fields: Sequence[DataField],
        file_name: str,
        *,
        codec: str,
        codec_level: int | None,
    ) -> None:
        self._sink = sink
        self._encoder = AvroEncoder(tuple(fields), codec, codec_level, file_name.encode())
        sink.write(self._encoder.header())

    def write(self, group: pa.Table) -> None:
        """Adds rows of the columns, in order; columns are found by name."""
        row_bytes = max(1, group.nbytes // max(1, group.num_rows))
        block_rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES // row_bytes))
        for start in range(0, group.num_rows, block_rows):
            for part in self._encoder.block(group.slice(start, block_rows)):
                self._sink.write(part)

    def close(self) -> None:
        """Nothing: a container ends with its last block."""
