"""Writes Avro data files in blocks of some thousand rows. Each block is encoded column by column.

Source: Paimon 2.0 AvroFileFormat.
"""

from collections.abc import Sequence

import pyarrow as pa

from bucketline.state.format.avro.encode import AvroEncoder
from bucketline.state.types.logical import DataField

BLOCK_ROWS = 16384
BLOCK_BYTES = 4 << 20
"""The size of the rows of a block, in bytes of Arrow data (a single row may be larger). It limits the memory of
encoding, and of readers.
"""


class AvroSink:
    """Writes one file into an open stream. Closing this writer leaves the stream open.

    The sync marker of the file is made from `file_name`, so that no other file has the same marker. Raises
    UnsupportedTableError for columns that Avro cannot store.
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
        """Adds rows. The columns of `group` are found by name."""
        row_bytes = max(1, group.nbytes // max(1, group.num_rows))
        block_rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES // row_bytes))
        for start in range(0, group.num_rows, block_rows):
            for part in self._encoder.block(group.slice(start, block_rows)):
                self._sink.write(part)

    def close(self) -> None:
        """Does nothing, because an Avro file ends with its last block."""
