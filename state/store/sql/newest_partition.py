"""Replaces each `sys.max_pt('t')` by the newest partition of the table, before a query or a condition is used.

Source: Paimon 2.0 ReplacePaimonFunctions.
"""

from dataclasses import replace
from typing import Any

from sqlglot import exp

from bucketline.state.sql.compute.parsing import parse_value
from bucketline.state.sql.dialect import DIALECT, refused
from bucketline.state.sql.newest_partition import NewestPartitionCall, newest_partition_calls
from bucketline.state.sql.queries import read_query
from bucketline.state.sql.statement import Query
from bucketline.state.store.read.views import value_text
from bucketline.state.store.sql.partitions import stored_partitions
from bucketline.state.store.sql.session import SqlSession
from bucketline.state.store.table.table import handle_of
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.columns_text import quoted_text
from bucketline.state.types.logical import INTEGER_ROOTS


def with_newest_partitions(session: SqlSession, query: Query) -> Query:
    """Returns the query with the value of the newest partition in place of each call of `sys.max_pt`. Raises
    OptionError for a table without partitions.
    """
    text = _with_literals(session, query.text)
    if text is query.text:
        return query
    again = read_query(text)
    relations = zip(again.relations, query.relations, strict=True)
    return replace(again, relations=tuple(replace(new, options=old.options) for new, old in relations))


def with_newest_partition(session: SqlSession, condition: exp.Expression) -> exp.Expression:
    """Returns the condition with the value of the newest partition in place of each call of `sys.max_pt`. Raises
    OptionError for a table without partitions.
    """
    text = condition.sql(DIALECT)
    changed = _with_literals(session, text)
    return condition if changed is text else parse_value(changed, "WHERE")


def _with_literals(session: SqlSession, text: str) -> str:
    for call in reversed(list(newest_partition_calls(text))):
        text = f"{text[: call.start]}{_literal(session, call)}{text[call.end :]}"
    return text


def _literal(session: SqlSession, call: NewestPartitionCall) -> str:
    """Returns the largest value of the first partition column, among the partitions with files, as an SQL literal: a
    number if the call is compared with a value and the column has an integer type, otherwise a string.
    """
    handle = handle_of(session.table(call.table))
    schema = handle.table_schema
    if not schema.partition_keys:
        raise refused(f"max_pt: {call.table} has no partition columns")
    types = [f.type for f in schema.select(schema.partition_keys)]
    firsts = (decode_row(key, types)[0] for key in stored_partitions(handle))
    values: list[Any] = [value for value in firsts if value is not None]
    if not values:
        raise refused(f"max_pt: {call.table} has no partition with data")
    text = value_text(max(values), types[0])
    return text if call.is_compared and types[0].root in INTEGER_ROOTS else quoted_text(text)
