"""Arrow columns as the text form of rows that golden files and peers share (`tests.support.peers.rows`), and back.

Needs pyarrow alone, so that it also works in the environment of another Paimon implementation.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

_EPOCH = datetime(1970, 1, 1)
_UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def rows_of(table: Any) -> list[dict[str, Any]]:
    """The rows of an Arrow table or batch, in its order."""
    columns = [[text(v, f.type) for v in _python_values(table.column(i))] for i, f in enumerate(table.schema)]
    return [dict(zip(table.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def table_of(rows: Sequence[Mapping[str, Any]], schema: Any) -> Any:
    """An Arrow table of the schema; columns that a row leaves out are null."""
    columns = [pa.array([parse(row.get(f.name), f.type) for row in rows], f.type) for f in schema]
    return pa.table(columns, schema=schema)


def text(value: Any, kind: Any) -> Any:
    """The text form of a Python value of an Arrow type; a timestamp is a whole number of units, or a datetime."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return "NaN" if value != value else value
    if pa.types.is_decimal(kind):
        return str(value)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return value.hex()
    if pa.types.is_timestamp(kind):
        return _timestamp_text(value, kind)
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return value.isoformat()
    if pa.types.is_list(kind):
        return [text(element, kind.value_type) for element in value]
    if pa.types.is_map(kind):
        return [[text(key, kind.key_type), text(item, kind.item_type)] for key, item in value]
    if pa.types.is_struct(kind):
        return {field.name: text(value[field.name], field.type) for field in kind}
    return value


def parse(value: Any, kind: Any) -> Any:
    """What `pa.array` takes for the text form of a value; the inverse of `text`."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return bytes.fromhex(value)
    if pa.types.is_timestamp(kind):
        whole, _, fraction = value.partition(".")
        since = datetime.fromisoformat(whole) - _EPOCH
        per_second = _UNITS_PER_SECOND[kind.unit]
        nanos = int(fraction.ljust(9, "0")) if fraction else 0
        return (since.days * 86_400 + since.seconds) * per_second + nanos * per_second // 1_000_000_000
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_time(kind):
        return datetime.fromisoformat(f"1970-01-01T{value}").time()
    if pa.types.is_list(kind):
        return [parse(element, kind.value_type) for element in value]
    if pa.types.is_map(kind):
        return [(parse(key, kind.key_type), parse(item, kind.item_type)) for key, item in value]
    if pa.types.is_struct(kind):
        return {field.name: parse(value.get(field.name), field.type) for field in kind}
    return value


def _python_values(column: Any) -> Iterable[Any]:
    """Python values of a column; timestamps as whole units since the epoch, which keeps nanoseconds."""
    values: Iterable[Any] = column.cast(pa.int64() if pa.types.is_timestamp(column.type) else column.type).to_pylist()
    return values


def _timestamp_text(value: Any, kind: Any) -> str:
    if isinstance(value, datetime):  # inside a nested value
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return moment.isoformat()
    per_second = _UNITS_PER_SECOND[kind.unit]
    seconds, units = divmod(value, per_second)
    nanos = units * (1_000_000_000 // per_second)
    clock = (_EPOCH + timedelta(seconds=seconds)).isoformat()
    if nanos == 0:
        return clock
    return f"{clock}.{nanos // 1000:06d}" if nanos % 1000 == 0 else f"{clock}.{nanos:09d}"
