"""What turns a source's records into rows of a table, and what it gives back."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa

from bucketline.state.types.schema_need import NOTHING_NEEDED, SchemaNeed
from bucketline.streaming.decode.rejects import RejectedRows
from bucketline.streaming.decode.seen import NOTHING_SEEN, Seen

NOTHING_BAD: Mapping[int, str] = {}


class DecodedRows(NamedTuple):
    """The rows in records, the records that became no rows, what the records need and the table does not have, and what
    else was seen in them.

    Rows are the table's columns, with `_row_kind` where the records have kinds. `records` (int64, ascending) says of
    each row which record it is of; None where it is not known. `bad` are the numbers of bad records, with the reasons.
    """

    rows: pa.Table
    rejects: RejectedRows | None = None
    need: SchemaNeed = NOTHING_NEEDED
    seen: Seen = NOTHING_SEEN
    records: pa.Array | None = None
    bad: Mapping[int, str] = NOTHING_BAD


class Decoder(Protocol):
    """Turns records into rows; a value that travels."""

    def __call__(self, records: pa.Table) -> DecodedRows: ...
