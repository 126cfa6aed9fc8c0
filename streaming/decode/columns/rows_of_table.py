"""Decoded rows → rows of the table: computed, chosen, and as expected."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketline.state.types.buffers import one_array
from bucketline.state.types.if_else import if_else
from bucketline.state.types.row_kind import RowKind
from bucketline.streaming.decode.columns.compute_rows import by_halves, condition_of, value_of
from bucketline.streaming.decode.columns.computed_columns import ComputedColumns, JudgedImages
from bucketline.streaming.decode.columns.expectations import find_unexpected
from bucketline.streaming.decode.columns.judge_images import (
    is_new_image,
    judged,
    lacking_old,
    without_moves,
)
from bucketline.streaming.decode.columns.plan_columns import OP
from bucketline.streaming.decode.decoded_rows import Decoded, Unjudged, judge_rows
from bucketline.streaming.decode.row_changes import with_left_out
from bucketline.streaming.decode.unavailable import MARKS

_NEEDS_OLD = (
    "an update without the row before it, which `where` judges too: set REPLICA IDENTITY FULL on the source table"
)
_DELETE = int(RowKind.DELETE)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Rows of the table and bad records, as `decoded`; and how many rows were not as expected, by name."""

    decoded: Decoded
    unexpected: Mapping[str, int]


def rows_of_table(
    plan: ComputedColumns, rows: pa.RecordBatch, kinds: pa.Array, origin: pa.Array, marks: pa.Array | None = None
) -> Chosen:
    """The rows of the table. Shapes: n rows of `plan.inputs` in, with their kinds and records, ascending; `marks` say
    which values of the rows are left out, and are a last column of what comes out.

    A record is bad as a whole or not at all. Of a delete only what the table needs of it has to be computed.
    """
    columns = dict(zip(rows.schema.names, map(one_array, rows.columns), strict=True))
    was: npt.NDArray[np.int8] = np.asarray(kinds)
    records: npt.NDArray[np.int64] = np.asarray(origin)
    bad: dict[int, str] = {}
    values: dict[str, pa.Array] = {}
    for output in plan.outputs:
        compute = partial(value_of, output, context=plan.context)
        values[output.field.name], failed = by_halves(compute, columns, len(was))
        for row, why in failed.items():
            if output.is_needed or was[row] != _DELETE:
                bad.setdefault(int(records[row]), f"field {output.field.name}: {why}")
    keeps_old = plan.images is JudgedImages.OWN
    now, stays = without_moves(was, records, [values[name] for name in plan.keys], keeps_old=keeps_old)
    if plan.where is not None:
        now, stays = _where(plan, columns, now, stays, records, bad)
    unexpected = find_unexpected(plan.expect, values, records, is_new_image(now) & stays, plan.context)
    for record, why in (*unexpected.bad.items(), *unexpected.refused.items()):
        bad.setdefault(record, why)
    if unexpected.dropped:
        stays &= ~np.isin(records, np.fromiter(unexpected.dropped, np.int64))
    keep = pa.array(stays)
    fields = tuple(o.field for o in plan.outputs)
    if marks is not None:
        # Of a delete only the key counts.
        values[MARKS.name], fields = if_else(pa.array(now == _DELETE), None, marks), (*fields, MARKS)
    structs = pa.StructArray.from_arrays(list(values.values()), names=list(values)).filter(keep)
    unjudged = Unjudged(structs, now[stays], records[stays], bad)
    return Chosen(judge_rows(with_left_out(unjudged, fields, plan.loose), fields), unexpected.counts)


def _where(
    plan: ComputedColumns,
    columns: Mapping[str, pa.Array],
    kinds: npt.NDArray[np.int8],
    stays: npt.NDArray[np.bool_],
    records: npt.NDArray[np.int64],
    bad: dict[int, str],
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
    where = plan.where
    assert where is not None, "there is a condition"
    test = partial(condition_of, where, context=plan.context)
    truth, failed = by_halves(test, columns, len(kinds))
    is_judged = is_new_image(kinds) if plan.images is JudgedImages.NEW else np.ones(len(kinds), np.bool_)
    for row, why in failed.items():
        if is_judged[row]:
            bad.setdefault(int(records[row]), f"where: {why}")
    passes: npt.NDArray[np.bool_] = np.asarray(truth.fill_null(False))
    if plan.images is JudgedImages.OWN:
        for record in records[lacking_old(kinds, records)].tolist():
            bad.setdefault(record, _NEEDS_OLD)
    inserted = np.zeros(len(kinds), np.bool_)
    if OP in columns and plan.images is JudgedImages.NEW:
        inserted = np.asarray(columns[OP].fill_null("")) == "c"
    kinds, kept = judged(kinds, records, passes, plan.images, inserted)
    return kinds, stays & kept
