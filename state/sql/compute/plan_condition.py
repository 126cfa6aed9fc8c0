"""Splits a condition on rows of a table at AND: some parts can skip files, and the others are computed for each row.

A part that the module `filters` supports becomes an Arrow expression, with which partitions, buckets and files are
skipped. Every other part, for example a comparison of two columns, is computed by the module `expression`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.sql.compute.condition import ALL_ROWS, Condition
from bucketline.state.sql.compute.expression import SqlExpression, condition, with_blanks
from bucketline.state.sql.compute.filters import translate_filter
from bucketline.state.sql.compute.parsing import (
    check_quoted_names,
    check_spelling,
    conjuncts,
    parse_value,
    quoted_texts,
)
from bucketline.state.sql.dialect import DIALECT
from bucketline.state.types.arrow import arrow_schema
from bucketline.state.types.buffers import one_array
from bucketline.state.types.logical import DataField


@dataclass(frozen=True, slots=True)
class SqlTest:
    """A test of rows that computes an SQL expression."""

    expression: SqlExpression

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """Returns a boolean array: true for each row for which the expression is true, false if it is false or null."""
        return condition(self.expression, columns_of(rows), rows.num_rows)


Filter: TypeAlias = pc.Expression | str | SqlExpression | Condition
"""A condition on the columns of a table: SQL text such as `id > 5 AND name LIKE 'a%'`, or an Arrow expression."""


def plan_condition(filter: Filter | None, fields: Sequence[DataField], added: Sequence[DataField] = ()) -> Condition:
    """Returns the condition for a filter. `added` are columns that files do not contain. SQL text may use the added
    columns; conditions on added columns are computed for each row. Raises OptionError or SchemaMismatchError if the
    filter does not fit the table.
    """
    if filter is None:
        return ALL_ROWS
    if isinstance(filter, Condition):
        return filter
    if isinstance(filter, pc.Expression):
        return Condition(filter)
    if isinstance(filter, SqlExpression):
        check_quoted_names(filter.quoted, [f.name for f in (*fields, *added)], "filter")
        return _planned(filter.text, fields, added)
    if not isinstance(filter, str):
        raise SchemaMismatchError(f"a filter must be SQL text or an Arrow expression, found {type(filter).__name__}")
    check_spelling(filter, "filter")
    check_quoted_names(quoted_texts(filter), [f.name for f in (*fields, *added)], "filter")
    return _planned(filter, fields, added)


def _planned(text: str, fields: Sequence[DataField], added: Sequence[DataField]) -> Condition:
    names = {f.name.lower() for f in added}
    known = (*fields, *added)
    whole: pc.Expression | None = None
    computed, refusals = list[exp.Expression](), list[OptionError]()
    for part in conjuncts(parse_value(text, "filter")):
        if any(c.parts[0].name.lower() in names for c in part.find_all(exp.Column)):
            computed.append(part)
            continue
        try:
            expression = translate_filter(part, fields)
        except OptionError as e:
            if e.column is not None:
                raise
            computed.append(part)
            refusals.append(e)
        else:
            whole = expression if whole is None else whole & expression
    if not computed:
        return Condition(whole)
    joined = " AND ".join(f"({part.sql(DIALECT)})" for part in computed)
    test = with_blanks(SqlExpression(joined), known)
    looked_at = {c.name.lower() for part in computed for c in part.find_all(exp.Column)}
    looked_at |= {c.parts[0].name.lower() for part in computed for c in part.find_all(exp.Column)}
    try:
        condition(test, columns_of(arrow_schema(known).empty_table()), 0)
    except SchemaMismatchError:
        refusal = next((e for e in refusals if "literal" in e.fields), None)
        if refusal is not None:
            # If a literal does not fit its column, the first error describes the problem better.
            raise refusal from None
        raise
    return Condition(whole, SqlTest(test), tuple(f.name for f in known if f.name.lower() in looked_at))


def columns_of(rows: pa.RecordBatch | pa.Table) -> Mapping[str, pa.Array]:
    """Returns the columns by name."""
    return dict(zip(rows.schema.names, map(one_array, rows.columns), strict=True))
