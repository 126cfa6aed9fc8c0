"""Reads from each record the columns with their types, and the key, that the record declares for its row. Types are
never guessed from values.

| records | columns come from | key comes from |
|---|---|---|
| Debezium, with schemas | the schema, also their nullability | the record's key |
| Debezium, without schemas | the job's `types` | the record's key |
| Avro | the schema, also their nullability | the record's key, if it is an Avro record |
| Canal | the field `mysqlType` | the field `pkNames` |
| `json` | the job's `types` | no key |

Source: Kafka 4.0 JsonConverter; Debezium 3.5 change event keys and values; Canal 1.1 FlatMessage.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from bucketline.conf.job import RecordFormat
from bucketline.conf.sources.message_options import SAME_TYPES, MessageOptions, TypeMapping, TypeMappings
from bucketline.streaming.decode.avro.avro_frames import SchemaName, frames_of
from bucketline.streaming.decode.avro.avro_schema import AvroKind
from bucketline.streaming.decode.avro.avro_source import source_of, value_node
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.debezium_envelope import Images
from bucketline.streaming.decode.json_values.json_declared import declared_type, nodes_of
from bucketline.streaming.decode.json_values.json_exact import parse_json
from bucketline.streaming.decode.json_values.json_shape import SourceSchema, source_fields
from bucketline.streaming.decode.mysql_types import column_type
from bucketline.streaming.decode.row_changes import as_binary, has_text

_OPS = ("c", "r", "u", "d")
_CANAL_ROWS = ("INSERT", "ROW", "UPDATE", "DELETE")
_ADDED = "__"
"""The prefix of fields that ExtractNewRecordState adds. They do not belong to the row."""
_NO_SCHEMA: SourceSchema = {}
_EVENT = Images(())


@dataclass(frozen=True, slots=True)
class DeclaredRow:
    """The columns that a record declares, and the names of the key columns (`key`). A column without a declared type
    has the null type. `key` is None if the record declares no key.
    """

    columns: tuple[pa.Field, ...]
    key: tuple[str, ...] | None


def declared_rows(
    values: pa.Array,
    keys: pa.Array,
    decode: RecordFormat,
    messages: MessageOptions,
    schemas: RegistrySchemas | None = None,
) -> Iterator[DeclaredRow]:
    """Yields each different set of columns that records declare for their rows, once. Records without a row are
    ignored. `values` and `keys` are the values and the keys of the records, as binary arrays.

    `schemas` returns the schemas of Avro records; None for JSON records. Raises RegistryError if the registry does not
    answer.
    """
    rows = (
        _of_json(values, keys, decode, messages)
        if schemas is None
        else _of_avro(values, keys, decode, schemas, messages.type_mapping)
    )
    known: set[DeclaredRow] = set()
    for row in rows:
        if row not in known:
            known.add(row)
            yield row


def _of_avro(
    values: pa.Array, keys: pa.Array, decode: RecordFormat, schemas: RegistrySchemas, mapping: TypeMappings
) -> Iterator[DeclaredRow]:
    present = values.filter(pa.array(has_text(values)))
    key_names = _avro_keys(keys.filter(pa.array(has_text(values))), schemas)
    for group in frames_of(present).groups:
        source = _record(group.name, schemas)
        if source is not None and decode is RecordFormat.DEBEZIUM_AVRO:
            source = _EVENT.row_schema(source) if "op" in source_fields(source) else None
        if source is not None:
            columns = declared_columns(source, mapping)
            for key in dict.fromkeys(key_names.get(at) for at in group.positions.tolist()):
                yield DeclaredRow(columns, key)


def _avro_keys(keys: pa.Array, schemas: RegistrySchemas) -> dict[int, tuple[str, ...]]:
    """Returns the field names of each key that is an Avro record, by the position of the key in `keys`. All other keys
    are left out, for example keys that are only a number or a string.
    """
    names: dict[int, tuple[str, ...]] = {}
    framed = keys.fill_null(b"")
    for group in frames_of(framed).groups:
        source = _record(group.name, schemas)
        if source is not None:
            names |= dict.fromkeys(group.positions.tolist(), tuple(source_fields(source)))
    return names


def _record(name: SchemaName, schemas: RegistrySchemas) -> SourceSchema | None:
    """Returns the schema with the id or GUID `name` from the registry. Returns None if the registry has no schema
    with this name, or if the schema does not describe an Avro record.
    """
    schema = schemas.schema(name)
    if isinstance(schema, str) or value_node(schema.root).kind is not AvroKind.RECORD:
        return None
    return source_of(schema)


def declared_columns(source: SourceSchema, mapping: TypeMappings = SAME_TYPES) -> tuple[pa.Field, ...]:
    """Returns the columns of a row with the schema `source`. Only this function decides which type a column of a new
    table gets for a type of the source.

    `mapping` is the job's `type-mapping`.
    """
    fields = source_fields(source).items()
    is_nullable = TypeMapping.TO_NULLABLE in mapping
    types = {name: declared_type(node, mapping) for name, node in fields}
    return tuple(
        pa.field(name, types[name], is_nullable or pa.types.is_null(types[name]) or node.get("optional") is not False)
        for name, node in fields
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """The job's settings about types: the types of columns that records do not declare, and the mapping of declared
    types.
    """

    known: Mapping[str, pa.DataType]
    mapping: TypeMappings


def _of_json(values: pa.Array, keys: pa.Array, decode: RecordFormat, messages: MessageOptions) -> Iterator[DeclaredRow]:
    mapping = messages.type_mapping
    known = {name: declared_type(node, mapping) for name, node in source_fields(nodes_of(messages.types)).items()}
    asked = _Asked(known, mapping)
    for value, key in zip(as_binary(values).to_pylist(), as_binary(keys).to_pylist(), strict=True):
        with suppress(ValueError):
            record = None if value is None else parse_json(value)
            if isinstance(record, dict):
                yield from _READERS[decode](record, key, asked)


def _debezium(record: Mapping[str, object], key: bytes | None, asked: _Asked) -> Iterator[DeclaredRow]:
    event, schema = _unwrapped(record)
    if event is None or event.get("op") not in _OPS:
        return
    row = event.get("after") or event.get("before")
    columns = declared_columns(_EVENT.row_schema(schema), asked.mapping) or _named(row, asked.known)
    yield DeclaredRow(columns, _json_key(key))


def _flat(record: Mapping[str, object], key: bytes | None, asked: _Asked) -> Iterator[DeclaredRow]:
    row, schema = _unwrapped(record)
    if row is not None:
        columns = declared_columns(schema, asked.mapping) or _named(row, asked.known)
        yield DeclaredRow(tuple(c for c in columns if not c.name.startswith(_ADDED)), _json_key(key))


def _plain(record: Mapping[str, object], key: bytes | None, asked: _Asked) -> Iterator[DeclaredRow]:
    yield DeclaredRow(_named(record, asked.known), None)


def _canal(record: Mapping[str, object], key: bytes | None, asked: _Asked) -> Iterator[DeclaredRow]:
    types = record.get("mysqlType")
    if record.get("type") in _CANAL_ROWS and isinstance(types, Mapping):
        columns = tuple(
            pa.field(str(name), column_type(str(declared), asked.mapping)) for name, declared in types.items()
        )
        yield DeclaredRow(columns, _texts(record.get("pkNames")))


_READERS: Mapping[
    RecordFormat,
    Callable[[Mapping[str, object], bytes | None, _Asked], Iterator[DeclaredRow]],
] = {
    RecordFormat.JSON: _plain,
    RecordFormat.DEBEZIUM_JSON: _debezium,
    RecordFormat.DEBEZIUM_FLAT_JSON: _flat,
    RecordFormat.CANAL_JSON: _canal,
}


def _named(row: object, known: Mapping[str, pa.DataType]) -> tuple[pa.Field, ...]:
    """Returns the columns of a row without a schema, with the types that the job declares."""
    return tuple(pa.field(str(name), known.get(str(name), pa.null())) for name in row) if isinstance(row, dict) else ()


def _unwrapped(record: Mapping[str, object]) -> tuple[dict[str, object] | None, SourceSchema]:
    """Takes a record of Kafka Connect's JSON converter, `{"schema": ..., "payload": ...}`, and returns the payload and
    the schema. The payload is None if it is not an object; the schema is empty if there is none. A record without a
    member `payload` is itself the payload.
    """
    if "payload" not in record:
        return dict(record), _NO_SCHEMA
    payload, schema = record["payload"], record.get("schema")
    return payload if isinstance(payload, dict) else None, schema if isinstance(schema, Mapping) else _NO_SCHEMA


def _json_key(key: bytes | None) -> tuple[str, ...] | None:
    with suppress(ValueError):
        record = None if key is None else parse_json(key)
        payload = _unwrapped(record)[0] if isinstance(record, dict) else None
        return tuple(payload) if payload else None
    return None


def _texts(names: object) -> tuple[str, ...] | None:
    return tuple(map(str, names)) if isinstance(names, list) and names else None
