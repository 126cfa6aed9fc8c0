"""Conditions of row changes: one part that files are skipped by, one that is computed for each row.

SQL text that `sql_filter` understands becomes an Arrow expression, and skips partitions, buckets and files. Any other
condition, as one over two columns, is computed by `sql_expression`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.read.table_read import Filter
from bucketline.state.types.arrow import arrow_schema
from bucketline.state.types.buffers import one_array
from bucketline.state.types.sql_expression import SqlExpression, condition, with_blanks
from bucketline.state.types.sql_filter import parse_filter


@dataclass(frozen=True, slots=True)
class Condition:
    """What a row must pass: `expression` where rows are read, `test` afterwards; None passes all."""

    expression: pc.Expression | None = None
    test: SqlExpression | None = None

    def mask(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Which rows that were read pass; None for all."""
        return None if self.test is None else condition(self.test, columns_of(rows), rows.num_rows)


def plan_condition(filter: Filter, schema: TableSchema) -> Condition:
    """The condition of a filter. Raises OptionError and SchemaMismatchError for one that does not fit the table."""
    if isinstance(filter, pc.Expression):
        return Condition(filter)
    if not isinstance(filter, str):
        raise SchemaMismatchError(f"a filter is SQL text or an Arrow expression, found {type(filter).__name__}")
    try:
        return Condition(parse_filter(filter, schema.fields))
    except OptionError as e:
        test = with_blanks(SqlExpression(filter), schema.fields)
        try:
            condition(test, columns_of(arrow_schema(schema.fields).empty_table()), 0)
        except SchemaMismatchError:
            if "literal" in e.fields:
                # A literal that does not fit its column is better named by the first reading.
                raise e from None
            raise
        return Condition(test=test)


def columns_of(rows: pa.RecordBatch | pa.Table) -> Mapping[str, pa.Array]:
    """The columns by name."""
    return dict(zip(rows.schema.names, map(one_array, rows.columns), strict=True))
