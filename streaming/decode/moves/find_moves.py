"""Finds the records that change the key of a row and leave out values of that row."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.streaming.decode.moves.key_moves import NO_MOVES, KeyMoves, Longs
from bucketline.streaming.decode.row_changes import true_of
from bucketline.streaming.decode.source_metadata import source_positions


def key_moves(
    lacking: Longs, inserts: Longs, events: pa.Array, records: Longs, moved: npt.NDArray[np.bool_], *, asks: bool
) -> KeyMoves:
    """Returns the records that may move a row to another key and leave out some of the row's values. For these records
    the driver has to look for the values in the row of the old key.

    - `lacking` are the numbers of the records that leave out values.
    - `inserts` are the numbers of the records that leave out values and insert a row.
    - `records` has for each event the number of its record.
    - `moved` is true for events that are updates and change the key.
    - If `asks` is true, the driver asks for deletes: then the result also has the records that delete a row.
    """
    if not asks and not len(lacking):
        return NO_MOVES
    op = events.field("op")
    creates = true_of(pc.fill_null(pc.equal(op, "c"), False)) & np.isin(records, inserts)
    deletes = true_of(pc.fill_null(pc.equal(op, "d"), False)) & asks
    others = np.setdiff1d(inserts, records[creates])
    inserted = np.concatenate([records[creates], others])
    inserted_at = pa.concat_arrays([_positions(events, creates), pa.nulls(len(others), pa.string())])
    order = np.argsort(inserted, kind="stable")
    return KeyMoves(
        records[moved & np.isin(records, lacking)],
        inserted[order],
        inserted_at.take(pa.array(order)),
        records[deletes],
        _positions(events, deletes),
    )


def _positions(events: pa.Array, mask: npt.NDArray[np.bool_]) -> pa.Array:
    if not mask.any():
        return pa.array([], pa.string())
    return source_positions(events.filter(pa.array(mask)).field("source"))
