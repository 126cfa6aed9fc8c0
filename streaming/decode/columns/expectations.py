"""Checks the expectations of a job: rows that do not meet them are counted by name, and left out, refused, or stop the
job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bucketline.conf.column_options import Expectation, Otherwise
from bucketline.state.sql.compute.calls import Context
from bucketline.state.sql.compute.expression import SqlExpression
from bucketline.streaming.decode.columns.compute_rows import Bools, Columns, by_halves, condition_of
from bucketline.streaming.decode.columns.judge_images import Longs
from bucketline.streaming.decode.rejects import UNEXPECTED


@dataclass(frozen=True, slots=True)
class Unexpected:
    """How many rows did not meet expectations, by name; the records to leave out; and the records to refuse, with
    reasons.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    dropped: frozenset[int] = frozenset()
    refused: Mapping[int, str] = field(default_factory=dict)
    bad: Mapping[int, str] = field(default_factory=dict)


def find_unexpected(
    expect: Sequence[Expectation], columns: Columns, origin: Longs, looked_at: Bools, context: Context
) -> Unexpected:
    """Checks the rows of the table against the expectations.

    Only the rows in `looked_at` are checked: the rows after changes. If a check cannot be computed for a row, its
    record is bad.
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
