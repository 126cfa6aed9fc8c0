"""Internal values (those of `decode_row`) as Arrow columns, for tests that know values and need columns."""

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa

from bucketline.state.types.binary_row import Timestamp
from bucketline.state.types.logical import DataType, TypeRoot

_SIMPLE = {
    TypeRoot.BOOLEAN: pa.bool_(),
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INT: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
    TypeRoot.CHAR: pa.string(),
    TypeRoot.VARCHAR: pa.string(),
    TypeRoot.BINARY: pa.binary(),
    TypeRoot.VARBINARY: pa.binary(),
}


def timestamp_unit(data_type: DataType) -> str:
    precision = data_type.precision or 0
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def column_of(values: Sequence[object], data_type: DataType) -> pa.Array:
    """The values as the Arrow column that a table of this type has."""
    root = data_type.root
    if root in _SIMPLE:
        return pa.array(values, _SIMPLE[root])
    if root is TypeRoot.DECIMAL:
        assert all(v is None or isinstance(v, Decimal) for v in values)
        return pa.array(values, pa.decimal128(data_type.precision, data_type.scale))
    if root is TypeRoot.DATE:
        return pa.array(values, pa.int32()).cast(pa.date32())
    if root is TypeRoot.TIME:
        return pa.array(values, pa.int32()).cast(pa.time32("ms"))
    zone = "UTC" if root is TypeRoot.TIMESTAMP_LTZ else None
    unit = timestamp_unit(data_type)
    return pa.array([_ticks(v, unit) for v in values], pa.int64()).cast(pa.timestamp(unit, zone))


def _ticks(value: object, unit: str) -> int | None:
    if value is None:
        return None
    assert isinstance(value, Timestamp)
    per_milli = {"ms": 1, "us": 1_000, "ns": 1_000_000}[unit]
    return value.millis * per_milli + value.nanos_of_milli * per_milli // 1_000_000
