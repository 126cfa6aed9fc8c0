"""Turns decoded rows into rows of the table: computes columns, applies the condition, and checks expectations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.column_options import Expectation, Otherwise
from bucketline.state.sql.compute.calls import Context
from bucketline.state.sql.compute.expression import SqlExpression
from bucketline.state.types.buffers import one_array
from bucketline.state.types.if_else import if_else
from bucketline.state.types.row_kind import RowKind
from bucketline.streaming.decode.columns.compute_rows import Bools, Columns, by_halves, condition_of, value_of
from bucketline.streaming.decode.columns.computed_columns import ComputedColumns, JudgedImages, Output
from bucketline.streaming.decode.columns.judge_images import (
    Longs,
    is_new_image,
    judged,
    lacking_old,
    without_moves,
)
from bucketline.streaming.decode.columns.plan_columns import OP
from bucketline.streaming.decode.decoded_rows import Decoded, Unjudged, judge_rows
from bucketline.streaming.decode.rejects import UNEXPECTED
from bucketline.streaming.decode.row_changes import with_left_out
from bucketline.streaming.decode.unavailable import MARKS

_NEEDS_OLD = (
    "an update without the row before it, which `where` needs as well: set REPLICA IDENTITY FULL on the source table"
)
_DELETE = int(RowKind.DELETE)


@dataclass(frozen=True, slots=True)
class Unexpected:
    """The result of checking expectations. `counts` has by the name of an expectation the number of rows that did not
    meet it. `dropped` are the records to leave out. `refused` are the records that an expectation rejects, and `bad`
    the records for which a check could not be computed, both with reasons.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    dropped: frozenset[int] = frozenset()
    refused: Mapping[int, str] = field(default_factory=dict)
    bad: Mapping[int, str] = field(default_factory=dict)


def find_unexpected(
    expect: Sequence[Expectation], columns: Columns, origin: Longs, looked_at: Bools, context: Context
) -> Unexpected:
    """Checks the rows of the table against the expectations, and returns the result.

    `looked_at` marks the rows to check, which are the rows after changes. `origin` has the number of each row's record.
    If a check cannot be computed for a row, its record is bad.
    """
    counts: dict[str, int] = {}
    dropped: set[int] = set()
    refused: dict[int, str] = {}
    bad: dict[int, str] = {}
    for expectation in expect:
        check = partial(condition_of, SqlExpression(expectation.check), context=context)
        truth, failed = by_halves(check, columns, len(origin))
        bad |= {int(origin[row]): f"expect.{expectation.name}: {why}" for row, why in failed.items() if looked_at[row]}
        rows = np.flatnonzero(looked_at & ~np.asarray(truth.fill_null(True)))
        if not len(rows):
            continue
        counts[expectation.name] = len(rows)
        records = [int(record) for record in origin[rows]]
        if expectation.otherwise is Otherwise.DROP:
            dropped.update(records)
        elif expectation.otherwise is Otherwise.REJECT:
            refused |= {
                r: f"{UNEXPECTED}{expectation.name}: not {expectation.check}" for r in records if r not in refused
            }
    return Unexpected(counts, frozenset(dropped), refused, bad)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The rows of the table and the bad records (`decoded`), and by the name of each expectation the number of rows
    that did not meet it (`unexpected`).
    """

    decoded: Decoded
    unexpected: Mapping[str, int]


def rows_of_table(
    plan: ComputedColumns,
    rows: pa.RecordBatch,
    kinds: pa.Array,
    origin: pa.Array,
    marks: pa.Array | None = None,
    *,
    keeps_old: bool = False,
) -> Chosen:
    """Takes decoded rows with the columns `plan.inputs`, their kinds, and the numbers of their records in ascending
    order. Returns the rows of the table. If `keeps_old` is true, an update whose key stays also gives its older row, as
    -U.

    `marks` say which values of the rows are left out; they become the last column of the result. If a record is bad, it
    gives no row at all. For a delete only the columns that the table needs are computed.
    """
    columns = dict(zip(rows.schema.names, map(one_array, rows.columns), strict=True))
    was: npt.NDArray[np.int8] = np.asarray(kinds)
    records: npt.NDArray[np.int64] = np.asarray(origin)
    bad: dict[int, str] = {}
    passes: Bools = np.ones(len(was), np.bool_)
    inserted: Bools = np.zeros(len(was), np.bool_)
    if plan.where is not None:
        passes, inserted = _passes(plan, columns, was, records, bad), _inserted(plan, columns)
        left_out = inserted & ~passes
        if left_out.any():
            # As in SQL, nothing is computed from rows that are left out: SELECT might fail for their values.
            keep = pa.array(~left_out)
            columns = {name: column.filter(keep) for name, column in columns.items()}
            marks = None if marks is None else marks.filter(keep)
            was, records = was[~left_out], records[~left_out]
            passes, inserted = passes[~left_out], inserted[~left_out]
    values: dict[str, pa.Array] = {}
    failures: list[tuple[Output, dict[int, str]]] = []
    for output in plan.outputs:
        compute = partial(value_of, output, context=plan.context)
        values[output.field.name], failed = by_halves(compute, columns, len(was))
        failures.append((output, failed))
    now, stays = without_moves(was, records, [values[name] for name in plan.keys], keeps_old=keeps_old)
    judged_out: Bools = np.zeros(len(was), np.bool_)
    if plan.where is not None:
        if plan.images is JudgedImages.OWN:
            for record in records[lacking_old(now, records)].tolist():
                bad.setdefault(record, _NEEDS_OLD)
        now, kept = judged(now, records, passes, plan.images, inserted)
        judged_out = ~kept
        stays = stays & kept
    for output, failed in failures:
        for row, why in failed.items():
            if not judged_out[row] and (output.is_needed or now[row] != _DELETE):
                bad.setdefault(int(records[row]), f"field {output.field.name}: {why}")
    unexpected = find_unexpected(plan.expect, values, records, is_new_image(now) & stays, plan.context)
    for record, why in (*unexpected.bad.items(), *unexpected.refused.items()):
        bad.setdefault(record, why)
    if unexpected.dropped:
        stays &= ~np.isin(records, np.fromiter(unexpected.dropped, np.int64))
    keep = pa.array(stays)
    fields = tuple(o.field for o in plan.outputs)
    if marks is not None:
        # Only the key of a delete is needed.
        values[MARKS.name], fields = if_else(pa.array(now == _DELETE), None, marks), (*fields, MARKS)
    structs = pa.StructArray.from_arrays(list(values.values()), names=list(values)).filter(keep)
    unjudged = Unjudged(structs, now[stays], records[stays], bad)
    return Chosen(judge_rows(with_left_out(unjudged, fields, plan.loose), fields), unexpected.counts)


def _passes(
    plan: ComputedColumns,
    columns: Mapping[str, pa.Array],
    kinds: npt.NDArray[np.int8],
    records: npt.NDArray[np.int64],
    bad: dict[int, str],
) -> Bools:
    """Returns a mask of the rows that meet the job's condition `where`. If the condition cannot be computed for a row,
    the number of the row's record is put into `bad`, with the reason. An old row counts as bad only if `where` applies
    to old rows.
    """
    where = plan.where
    assert where is not None, "there is a condition"
    test = partial(condition_of, where, context=plan.context)
    truth, failed = by_halves(test, columns, len(kinds))
    is_judged = is_new_image(kinds) if plan.images is JudgedImages.NEW else np.ones(len(kinds), np.bool_)
    for row, why in failed.items():
        if is_judged[row]:
            bad.setdefault(int(records[row]), f"where: {why}")
    passes: Bools = np.asarray(truth.fill_null(False))
    return passes


def _inserted(plan: ComputedColumns, columns: Mapping[str, pa.Array]) -> Bools:
    """Returns for each row whether its key is new according to the source. If a row with a new key does not meet the
    job's condition, it is simply left out. No delete is needed, because the table has no older row of this key.
    """
    count = len(next(iter(columns.values())))
    if plan.images is JudgedImages.INSERTS:
        return np.ones(count, np.bool_)
    if OP in columns and plan.images is JudgedImages.NEW:
        is_insert: Bools = np.asarray(pc.fill_null(pc.equal(columns[OP], "c"), False))
        return is_insert
    return np.zeros(count, np.bool_)
