"""Finds the columns and types that messages of Canal need and a table lacks. All values are strings, so the types come
from the field `mysqlType`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from bucketline.conf.sources.message_options import SAME_TYPES, TypeMappings
from bucketline.state.types.logical import DataField
from bucketline.streaming.decode.json_values.json_exact import Literal, parse_json
from bucketline.streaming.decode.json_values.json_shape import row_shape
from bucketline.streaming.decode.mysql_types import column_type
from bucketline.streaming.decode.schema_needs import NO_NEED, WatchFor, joined_all, need_of

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


def need_of_types(
    types: Iterable[Mapping[str, str]], fields: Sequence[DataField], mapping: TypeMappings = SAME_TYPES
) -> pa.DataType:
    """Returns the columns that MySQL's tables have and the table lacks, with types that hold their values.

    `mapping` is the job's `type-mapping`.
    """
    known = {f.name for f in fields}
    needs = []
    for of_columns in types:
        new = [(name, column_type(declared, mapping)) for name, declared in of_columns.items() if name not in known]
        needs.append(pa.struct(new) if new else NO_NEED)
    return joined_all(needs)


def need_of_bad(text: bytes, fields: Sequence[DataField]) -> pa.DataType:
    """Takes a message that could not be read, and returns the wider types that columns need for the message's integers
    and fractions; the null type if no column is too narrow for them.
    """
    shape = row_shape(tuple(fields))
    with suppress(ValueError):
        message = parse_json(text)
        images = [message.get("data"), message.get("old")] if isinstance(message, dict) else []
        given = [row for rows in images if isinstance(rows, list) for row in rows if isinstance(row, dict)]
        return joined_all(need_of({n: _number(v) for n, v in row.items()}, shape, WatchFor.WIDER) for row in given)
    return NO_NEED


def _number(value: object) -> object:
    return Literal(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
