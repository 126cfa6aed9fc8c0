"""The interface of decoders, which turn a source's records into rows of a table, and the type of their result."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from bucketline.state.types.schema_need import NOTHING_NEEDED, SchemaNeed
from bucketline.streaming.decode.moves.key_moves import NO_MOVES, KeyMoves
from bucketline.streaming.decode.rejects import RejectedRows
from bucketline.streaming.decode.seen import NOTHING_SEEN, Seen

NOTHING_BAD: Mapping[int, str] = {}


class DecodedRows(NamedTuple):
    """The result of decoding.

    - `rows` have the table's columns, and the column `_row_kind` if the source tells inserts, updates and deletes
      apart.
    - `rejects` are the bad records that are stored or counted.
    - `need` are the columns and wider types that the records have and the table lacks.
    - `seen` counts the records that give no row.
    - `records` has for each row the number of the record from which the row came (int64, in ascending order); None if
      these numbers are not known.
    - `bad` maps the number of each bad record to the reason why it is bad.
    - `moves` are the records that change the key of a row and leave out values of that row.
    """

    rows: pa.Table
    rejects: RejectedRows | None = None
    need: SchemaNeed = NOTHING_NEEDED
    seen: Seen = NOTHING_SEEN
    records: pa.Array | None = None
    bad: Mapping[int, str] = NOTHING_BAD
    moves: KeyMoves = NO_MOVES


class Decoder(Protocol):
    """A function that turns records into rows, and can be sent to tasks."""

    def __call__(self, records: pa.Table) -> DecodedRows: ...


@runtime_checkable
class MarkingDecoder(Protocol):
    """A decoder that says whether it marks values that the source left out."""

    @property
    def leaves_out_values(self) -> bool:
        """True if the rows have a column UNAVAILABLE, which marks the values that the source left out. Without this
        column such values would look like nulls of the source.
        """
        ...


def leaves_out_values(decode: Decoder) -> bool:
    """Returns True if the decoder marks values that the source left out, in the column UNAVAILABLE of its rows."""
    return isinstance(decode, MarkingDecoder) and decode.leaves_out_values
