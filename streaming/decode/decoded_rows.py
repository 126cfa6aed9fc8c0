"""Decoded rows in the types of the table, without the rows of bad records."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.types.arrow import arrow_field, arrow_schema
from bucketline.state.types.fit import fit_array
from bucketline.state.types.logical import DataField
from bucketline.streaming.decode.moves.key_moves import NO_MOVES, KeyMoves, Longs, no_records
from bucketline.streaming.decode.schema_needs import NO_NEED, pruned
from bucketline.streaming.decode.seen import NOTHING_SEEN, Seen


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded rows, in the order of their records.

    - `rows`: the rows, with the table's types.
    - `kinds`: the row kind of each row (int8: 0 is +I, 1 is -U, 2 is +U, 3 is -D).
    - `origin`: the index of each row's record (int64, in ascending order).
    - `bad`: the indices of bad records (int64, in ascending order). `reasons`: why each of them is bad.
    - `seen`: how many other records were skipped, by kind, and the names of the source's tables that records had.
    - `need`: the columns and types that the records need and the table lacks (`schema_needs`), without columns of
      unknown type. Empty if the caller did not ask.
    - `truncates`: the indices of records that truncate the source's table and are not bad.
    - `moves`: the records that change the key of a row and leave out values of that row.
    """

    rows: pa.RecordBatch
    kinds: pa.Array
    origin: pa.Array
    bad: pa.Array
    reasons: pa.Array
    need: pa.DataType = NO_NEED
    seen: Seen = NOTHING_SEEN
    truncates: tuple[int, ...] = ()
    moves: KeyMoves = NO_MOVES


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Rows whose values are not checked yet. `bad` has the bad records that are known so far, each with the reason.

    `lacking` are the records that leave out values. `lacking_inserts` are the records that leave out values and insert
    a row.
    """

    structs: pa.Array
    kinds: npt.NDArray[np.int8]
    origin: npt.NDArray[np.int64]
    bad: dict[int, str]
    need: pa.DataType = NO_NEED
    seen: Seen = NOTHING_SEEN
    truncates: tuple[int, ...] = ()
    lacking: Longs = field(default_factory=no_records)
    lacking_inserts: Longs = field(default_factory=no_records)
    moves: KeyMoves = NO_MOVES


def judge_rows(unjudged: Unjudged, fields: tuple[DataField, ...]) -> Decoded:
    """Checks that the values fit the columns of the table. A record with a value that does not fit becomes a bad
    record. Returns the rows of the good records in the table's types, and all bad records with their reasons.
    """
    bad = dict(unjudged.bad)
    columns = [unjudged.structs.field(f.name) for f in fields]
    for f, column in zip(fields, columns, strict=True):
        for row, reason in misfits(column, f).items():
            bad.setdefault(int(unjudged.origin[row]), reason)
    kinds, origin = pa.array(unjudged.kinds, pa.int8()), pa.array(unjudged.origin, pa.int64())
    if bad:
        keep = pa.array(~np.isin(unjudged.origin, np.fromiter(bad, dtype=np.int64, count=len(bad))))
        columns = [column.filter(keep) for column in columns]
        kinds, origin = kinds.filter(keep), origin.filter(keep)
    fitted = [fit_array(c, f.type, arrow_field(f).type, f.name) for c, f in zip(columns, fields, strict=True)]
    schema = arrow_schema(fields)
    rows = (
        pa.RecordBatch.from_arrays(fitted, schema=schema)
        if fitted
        else pa.RecordBatch.from_struct_array(unjudged.structs)
    )
    reasons = sorted(bad.items())
    return Decoded(
        rows=rows,
        kinds=kinds,
        origin=origin,
        bad=pa.array([at for at, _ in reasons], pa.int64()),
        reasons=pa.array([reason for _, reason in reasons], pa.string()),
        need=pruned(unjudged.need),
        seen=unjudged.seen,
        truncates=unjudged.truncates,
        moves=unjudged.moves,
    )


def misfits(column: pa.Array, field: DataField) -> dict[int, str]:
    """Returns a dict with the reason for each row whose value does not fit the column's type. The values are checked
    together; if that fails, the values that do not fit are found by halving.

    Raises SchemaMismatchError if the array is empty and no array of its Arrow type would fit.
    """
    reasons: dict[int, str] = {}
    rows = np.arange(len(column))
    if not field.type.nullable and column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        reasons = {int(row): f"field {field.name}: null, but the column is NOT NULL" for row in rows[~valid]}
        column, rows = column.filter(pa.array(valid)), rows[valid]
    target = arrow_field(field).type
    pending = [(0, len(column))]
    while pending:
        start, stop = pending.pop()
        try:
            fit_array(column.slice(start, stop - start), field.type, target, field.name)
        except SchemaMismatchError as e:
            if stop == start:
                raise
            if stop - start == 1:
                reasons[int(rows[start])] = e.message
            else:
                half = (start + stop) // 2
                pending += [(start, half), (half, stop)]
    return reasons
