"""Finds the table that records declare: its columns and its primary key, or an error that says what the records
lack.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.conf.job import CREATE, CREATE_PRIMARY_KEY, CREATE_SCHEMA, RecordFormat
from bucketline.conf.sources.message_options import TYPES
from bucketline.streaming.decode.declared.declared_rows import DeclaredRow
from bucketline.streaming.decode.schema_needs import joined

_TYPED_BY_JOB = (
    RecordFormat.JSON,
    RecordFormat.DEBEZIUM_JSON,
    RecordFormat.DEBEZIUM_FLAT_JSON,
)


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """The table that the records of a source declare: its columns, and the names of its primary key columns. The
    columns have the order of the first record, and then come columns that only later records have. `primary_key` is
    empty for a table without a primary key.
    """

    columns: pa.Schema
    primary_key: tuple[str, ...]


def declared_table(
    rows: Iterable[DeclaredRow], decode: RecordFormat, given_key: Sequence[str] = ()
) -> DeclaredTable | None:
    """Returns the table that these rows declare; None if there are no rows. `given_key` is the primary key in the job's
    settings.

    A column that some rows lack is nullable, unless it is in the key. Raises OptionError that says what to write: for a
    column whose type is not declared or is declared in two ways, and for a key that is not declared.
    """
    known = list(rows)
    if not known:
        return None
    columns = _columns(known, decode)
    names = [column.name for column in columns]
    key = tuple(given_key) or _key(known, decode, names)
    required = [column.with_nullable(column.nullable and column.name not in key) for column in columns]
    return DeclaredTable(pa.schema(required), key)


def _columns(rows: Sequence[DeclaredRow], decode: RecordFormat) -> list[pa.Field]:
    columns: dict[str, pa.Field] = {}
    for row in rows:
        for column in row.columns:
            columns[column.name] = _both(columns.get(column.name, column), column)
    undeclared = [name for name, column in columns.items() if pa.types.is_null(column.type)]
    if undeclared:
        by_types = f"set {', '.join(TYPES + name for name in undeclared[:3])}, or " if decode in _TYPED_BY_JOB else ""
        raise OptionError(
            f"create: auto: the records do not declare the type of {', '.join(undeclared)}, and types "
            f"are not guessed; {by_types}write all columns in {CREATE_SCHEMA.key}",
            key=CREATE.key,
            columns=", ".join(undeclared),
        )
    everywhere = set.intersection(*({column.name for column in row.columns} for row in rows))
    return [c if c.name in everywhere else c.with_nullable(True) for c in columns.values()]


def _both(one: pa.Field, other: pa.Field) -> pa.Field:
    """Returns a column that can hold the values of both columns. Raises OptionError if only one of the two columns is a
    string, or no type holds the values of both.
    """
    kind = joined(one.type, other.type)
    is_text = pa.types.is_string(kind) or pa.types.is_null(kind)
    if is_text and not all(pa.types.is_string(t) or pa.types.is_null(t) for t in (one.type, other.type)):
        raise OptionError(
            f"create: auto: the records declare column {one.name!r} as {one.type} and as {other.type}; write all "
            f"columns in {CREATE_SCHEMA.key}",
            key=CREATE.key,
            column=one.name,
        )
    return pa.field(one.name, kind, one.nullable or other.nullable)


def _key(rows: Sequence[DeclaredRow], decode: RecordFormat, columns: Sequence[str]) -> tuple[str, ...]:
    keys = list(dict.fromkeys(row.key for row in rows))
    for problem in _key_problems(keys, decode, columns):
        raise OptionError(
            f"create: auto: {problem}; write the primary key in {CREATE_PRIMARY_KEY.key}", key=CREATE_PRIMARY_KEY.key
        )
    return keys[0] or ()


def _key_problems(
    keys: Sequence[tuple[str, ...] | None], decode: RecordFormat, columns: Sequence[str]
) -> Iterator[str]:
    if len(keys) > 1:
        shown = sorted("none" if key is None else f"({', '.join(key)})" for key in keys)
        yield f"the records declare several primary keys: {', '.join(shown[:5])}"
    elif keys[0] is None and decode.has_row_kinds:
        yield f"the records do not declare a primary key, which decode: {decode.value} needs"
    missing = [name for name in keys[0] or () if name not in columns]
    if missing:
        yield f"the fields {', '.join(missing)} of the records' keys are not columns of the rows"
