"""Builds the Avro schema of a data file, as Paimon's Java code does, and tells which columns an Avro file cannot store.

Source: Paimon 2.0 AvroSchemaConverter, PostponeBucketFileStoreWrite (the fallback to the table's format).
"""

import json
import re
from collections.abc import Sequence
from typing import NoReturn

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.avro.schema import NAMESPACE, Json, nullable
from bucketline.state.types.buffers import TIMESTAMP_ROOTS
from bucketline.state.types.logical import DataField, DataType, TypeRoot, types_in

# The names of fields that Avro allows and all readers accept.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_TIME_PRECISION = 3
_MAX_TIMESTAMP_PRECISION = 6
_PLAIN: dict[TypeRoot, str] = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "int",
    TypeRoot.SMALLINT: "int",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "long",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.CHAR: "string",
    TypeRoot.VARCHAR: "string",
    TypeRoot.BINARY: "bytes",
    TypeRoot.VARBINARY: "bytes",
}
_TEXT_ROOTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)


def is_representable(fields: Sequence[DataField]) -> bool:
    """Returns True if rows with these columns can be stored as Avro records that Paimon's Java code can read."""
    try:
        data_schema(fields)
        refuse_unread_by_java(fields)
    except UnsupportedTableError:
        return False
    return True


def refuse_unread_by_java(fields: Sequence[DataField]) -> None:
    """Raises UnsupportedTableError, which names the column, for a MULTISET of anything but strings, at any depth of
    nesting. Paimon's Java code reads the entries of such a MULTISET as entries of a MAP, and fails.

    `data_schema` allows such a MULTISET, because an earlier release may have created the table, and the table must stay
    writable.
    """
    for field in fields:
        if any(t.root is TypeRoot.MULTISET and not is_text_map(t) for t in types_in(field.type)):
            _refuse(field.name, f"Paimon's Java code cannot read {field.type.as_nullable()} from Avro")


def data_schema(fields: Sequence[DataField]) -> bytes:
    """Returns the Avro schema of records with these columns, as JSON text.

    Raises UnsupportedTableError, which names the column, for a type or a column name that Avro does not have.
    """
    record = _record("record", fields, NAMESPACE)
    return json.dumps(record, separators=(",", ":")).encode()


def is_text_map(data_type: DataType) -> bool:
    """Returns True if a MAP or MULTISET is stored as an Avro map, because its keys are strings. Every other MAP or
    MULTISET is stored as an array of entries.
    """
    return map_entry(data_type)[0].root in _TEXT_ROOTS


def map_entry(data_type: DataType) -> tuple[DataType, DataType]:
    """Returns the type of the keys and the type of the values of a MAP, as Avro declares them. A MULTISET is stored as
    a map whose keys are the elements and whose values are the counts.
    """
    if data_type.root is TypeRoot.MULTISET:
        assert data_type.element is not None
        return data_type.element, DataType(TypeRoot.INT)
    assert data_type.key is not None and data_type.value is not None
    return data_type.key, data_type.value


def _record(name: str, fields: Sequence[DataField], namespace: str | None = None) -> dict[str, Json]:
    declared: list[Json] = []
    for field in fields:
        if _NAME.fullmatch(field.name) is None:
            raise UnsupportedTableError(
                f"column {field.name}: Avro allows only names of letters, digits and _ that do not begin with a digit; "
                "rename the column, or use parquet or orc as format",
                column=field.name,
            )
        declared.append(_field(field.name, field.type, f"{name}_{field.name}"))
    space: dict[str, Json] = {} if namespace is None else {"namespace": namespace}
    return {"type": "record", "name": name, **space, "fields": declared}


def _field(name: str, data_type: DataType, path: str) -> dict[str, Json]:
    kind = _of(data_type.not_null(), path)
    return nullable(name, kind) if data_type.nullable else {"name": name, "type": kind}


def _of(data_type: DataType, path: str) -> Json:
    if data_type.nullable:
        return ["null", _of(data_type.not_null(), path)]
    root = data_type.root
    if root in _PLAIN:
        return _PLAIN[root]
    precision = data_type.precision or 0
    if root is TypeRoot.DECIMAL:
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": data_type.scale}
    if root is TypeRoot.DATE:
        return {"type": "int", "logicalType": "date"}
    if root is TypeRoot.TIME and precision <= _MAX_TIME_PRECISION:
        return {"type": "int", "logicalType": "time-millis"}
    if root in TIMESTAMP_ROOTS and precision <= _MAX_TIMESTAMP_PRECISION:
        # Paimon's Java code has swapped Avro's names for timestamps with and without a time zone.
        kind = "local-timestamp" if root is TypeRoot.TIMESTAMP_LTZ else "timestamp"
        return {"type": "long", "logicalType": f"{kind}-{'millis' if precision <= 3 else 'micros'}"}
    if root is TypeRoot.ROW and data_type.fields:
        return _record(path, data_type.fields)
    if root is TypeRoot.ARRAY:
        assert data_type.element is not None
        return {"type": "array", "items": _of(data_type.element, path)}
    if root in (TypeRoot.MAP, TypeRoot.MULTISET):
        return _map(data_type, path)
    _refuse(path, f"{data_type.as_nullable()} cannot be stored in Avro")


def _map(data_type: DataType, path: str) -> Json:
    key, value = map_entry(data_type)
    if is_text_map(data_type):
        return {"type": "map", "values": _of(value, path)}
    entry: list[Json] = [_field("key", key, f"{path}_key"), _field("value", value, f"{path}_value")]
    return {"type": "array", "items": {"type": "record", "name": path, "fields": entry}, "logicalType": "map"}


def _refuse(path: str, why: str) -> NoReturn:
    raise UnsupportedTableError(
        f"column {path.removeprefix('record_')}: {why}; choose another type, or parquet or orc as format",
        column=path.removeprefix("record_"),
    )
