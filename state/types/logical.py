"""Paimon's logical types: as Python objects, and as the JSON in schema files.

Source: Paimon 2.0 DataTypes, DataTypeJsonParser. Types are written in upper case, and ` NOT NULL` follows a type that
is not nullable.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from bucketline.state.errors import CorruptFileError

MAX_LENGTH = 2147483647
MAX_DECIMAL_PRECISION = 38
MAX_DEPTH = 64
"""How many types may be nested in each other."""

_MOST_FRACTION_DIGITS = 9


class TypeRoot(Enum):
    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    VARIANT = "VARIANT"
    BLOB = "BLOB"
    ARRAY = "ARRAY"
    MAP = "MAP"
    MULTISET = "MULTISET"
    ROW = "ROW"
    VECTOR = "VECTOR"

    # Types are keys of dictionaries that are read for each column of each file, and Enum's own hash is slow Python
    # code.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class DataType:
    """One logical type. A parameter that the kind of type (`root`) does not have is None. Lengths are in characters or
    bytes.
    """

    root: TypeRoot
    nullable: bool = True
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    element: "DataType | None" = None
    key: "DataType | None" = None
    value: "DataType | None" = None
    fields: "tuple[DataField, ...]" = ()

    @property
    def is_atomic(self) -> bool:
        return self.root not in _CONSTRUCTED

    def not_null(self) -> "DataType":
        return replace(self, nullable=False) if self.nullable else self

    def as_nullable(self) -> "DataType":
        return self if self.nullable else replace(self, nullable=True)

    def __hash__(self) -> int:
        # The hash is needed for each column of each file. It ignores nested types, because few types differ only in
        # them.
        return hash((self.root, self.nullable, self.length, self.precision, self.scale))

    def __str__(self) -> str:
        text = type_to_json(self)
        return text if isinstance(text, str) else str(text["type"])


@dataclass(frozen=True, slots=True)
class DataField:
    """A column, or a sub-field of a ROW. `default_value` is an SQL literal as text."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default_value: str | None = None

    def __hash__(self) -> int:
        return hash((self.id, self.name))


INTEGER_ROOTS = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_CONSTRUCTED = frozenset(
    {TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.ROW, TypeRoot.VECTOR, TypeRoot.VARIANT, TypeRoot.BLOB}
)
_ALIASES = {"INTEGER": "INT", "NUMERIC": "DECIMAL", "DEC": "DECIMAL", "BOOL": "BOOLEAN"}
_TEXT = re.compile(
    r"^(?P<name>[A-Z_]+)\s*(?:\(\s*(?P<args>[0-9,\s]+)\))?"
    r"(?P<zone>\s+WITH(?:OUT)?(?:\s+LOCAL)?\s+TIME\s+ZONE)?(?P<tail>\s+NOT\s+NULL|\s+NULL)?$"
)


def all_fields(fields: Iterable[DataField]) -> Iterator[DataField]:
    """Yields the fields and all fields nested in their types, depth first. A field comes before the fields nested in
    it.
    """
    for field in fields:
        yield field
        yield from _fields_in(field.type)


def _fields_in(data_type: DataType) -> Iterator[DataField]:
    yield from all_fields(data_type.fields)
    for inner in (data_type.element, data_type.key, data_type.value):
        if inner is not None:
            yield from _fields_in(inner)


def types_in(data_type: DataType) -> Iterator[DataType]:
    """Yields the type and all types nested in it, depth first. A type comes before the types nested in it."""
    yield data_type
    for inner in (*(f.type for f in data_type.fields), data_type.element, data_type.key, data_type.value):
        if inner is not None:
            yield from types_in(inner)


def depth_of(data_type: DataType) -> int:
    """Returns how many types are nested in each other; 1 for a type without nested types. A loop counts them, because
    a schema file may have more than Python can follow by recursion.
    """
    depth, level = 0, [data_type]
    while level:
        depth += 1
        level = [
            inner
            for outer in level
            for inner in (*(f.type for f in outer.fields), outer.element, outer.key, outer.value)
            if inner is not None
        ]
    return depth


def parse_type(json_value: object) -> DataType:
    """Returns the logical type for the JSON value `type` of a field in a schema file.

    Raises CorruptFileError if the text is no Paimon type, or if its length, precision or scale is out of range.
    Source: Paimon 2.0 DataTypeJsonParser.
    """
    if isinstance(json_value, str):
        data_type = parse_type_text(json_value)
        problem = range_problem(data_type)
        if problem is not None:
            raise CorruptFileError(f"{json_value} {problem}", type=json_value)
        return data_type
    if not isinstance(json_value, Mapping) or not isinstance(json_value.get("type"), str):
        raise CorruptFileError(f"no type: {json_value!r}")
    name = str(json_value["type"])
    nullable = not name.endswith("NOT NULL")
    root = name.removesuffix("NOT NULL").strip()
    if root in ("ARRAY", "MULTISET"):
        return DataType(TypeRoot[root], nullable, element=parse_type(json_value["element"]))
    if root == "VECTOR":
        return DataType(
            TypeRoot.VECTOR, nullable, length=int(json_value["length"]), element=parse_type(json_value["element"])
        )
    if root == "MAP":
        return DataType(
            TypeRoot.MAP, nullable, key=parse_type(json_value["key"]), value=parse_type(json_value["value"])
        )
    if root == "ROW":
        return DataType(TypeRoot.ROW, nullable, fields=tuple(parse_field(f) for f in json_value["fields"]))
    raise CorruptFileError(f"unknown constructed type {name!r}", type=name)


def parse_type_text(text: str) -> DataType:
    """Returns the type that a text like `DECIMAL(9, 2) NOT NULL` describes. The type has no types nested in it."""
    match = _TEXT.match(text.strip().upper())
    if match is None:
        raise CorruptFileError(f"unknown type {text!r}", type=text)
    name = _ALIASES.get(match["name"], match["name"])
    nullable = match["tail"] is None or "NOT" not in match["tail"]
    if match["zone"] is not None and "LOCAL" in match["zone"]:
        name = "TIMESTAMP_LTZ"
    try:
        args = [int(a) for a in match["args"].split(",")] if match["args"] else []
        return _atomic(name, args, nullable)
    except (KeyError, IndexError, ValueError) as e:
        raise CorruptFileError(f"unknown type {text!r}", type=text) from e


def range_problem(data_type: DataType) -> str | None:
    """Returns what is wrong with the length, precision or scale of a type, as the end of an error message; None if all
    are in range.

    Source: Paimon 2.0 DecimalType, CharType, TimestampType, TimeType.
    """
    precision = data_type.precision or 0
    if data_type.length is not None and not 1 <= data_type.length <= MAX_LENGTH:
        return f"needs a length from 1 to {MAX_LENGTH}"
    if data_type.root is TypeRoot.DECIMAL and not 1 <= precision <= MAX_DECIMAL_PRECISION:
        return f"needs a precision from 1 to {MAX_DECIMAL_PRECISION}"
    if data_type.root is TypeRoot.DECIMAL and (data_type.scale or 0) > precision:
        return "needs a scale from 0 to its precision"
    if data_type.root is not TypeRoot.DECIMAL and precision > _MOST_FRACTION_DIGITS:
        return f"needs a precision from 0 to {_MOST_FRACTION_DIGITS}"
    return None


def _atomic(name: str, args: list[int], nullable: bool) -> DataType:
    if name == "STRING":
        return DataType(TypeRoot.VARCHAR, nullable, length=MAX_LENGTH)
    if name == "BYTES":
        return DataType(TypeRoot.VARBINARY, nullable, length=MAX_LENGTH)
    root = TypeRoot[name]
    if root in _CONSTRUCTED and root not in (TypeRoot.VARIANT, TypeRoot.BLOB):
        raise KeyError(name)
    if root in (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY):
        return DataType(root, nullable, length=args[0] if args else 1)
    if root is TypeRoot.DECIMAL:
        return DataType(root, nullable, precision=args[0] if args else 10, scale=args[1] if len(args) > 1 else 0)
    if root is TypeRoot.TIME:
        return DataType(root, nullable, precision=args[0] if args else 0)
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return DataType(root, nullable, precision=args[0] if args else 6)
    return DataType(root, nullable)


def parse_field(json_value: Mapping[str, object]) -> DataField:
    """Returns the field that a JSON object describes. If the object has no description or no default, the field has
    None instead.
    """
    description, default = json_value.get("description"), json_value.get("defaultValue")
    return DataField(
        id=int(str(json_value["id"])),
        name=str(json_value["name"]),
        type=parse_type(json_value["type"]),
        description=None if description is None else str(description),
        default_value=None if default is None else str(default),
    )


def type_to_json(data_type: DataType) -> str | dict[str, object]:
    """Returns the type as schema files write it: a string, or a JSON object if other types are nested in the type."""
    suffix = "" if data_type.nullable else " NOT NULL"
    root = data_type.root
    if root in (TypeRoot.ARRAY, TypeRoot.MULTISET, TypeRoot.VECTOR):
        assert data_type.element is not None
        json_object: dict[str, object] = {"type": root.value + suffix, "element": type_to_json(data_type.element)}
        return json_object | {"length": data_type.length} if root is TypeRoot.VECTOR else json_object
    if root is TypeRoot.MAP:
        assert data_type.key is not None and data_type.value is not None
        return {
            "type": "MAP" + suffix,
            "key": type_to_json(data_type.key),
            "value": type_to_json(data_type.value),
        }
    if root is TypeRoot.ROW:
        return {"type": "ROW" + suffix, "fields": [field_to_json(f) for f in data_type.fields]}
    return _atomic_text(data_type) + suffix


def _atomic_text(data_type: DataType) -> str:
    root = data_type.root
    if root is TypeRoot.VARCHAR and data_type.length == MAX_LENGTH:
        return "STRING"
    if root is TypeRoot.VARBINARY and data_type.length == MAX_LENGTH:
        return "BYTES"
    if root in (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY):
        return f"{root.value}({data_type.length})"
    if root is TypeRoot.DECIMAL:
        return f"DECIMAL({data_type.precision}, {data_type.scale})"
    if root in (TypeRoot.TIME, TypeRoot.TIMESTAMP):
        return f"{root.value}({data_type.precision})"
    if root is TypeRoot.TIMESTAMP_LTZ:
        return f"TIMESTAMP({data_type.precision}) WITH LOCAL TIME ZONE"
    return str(root.value)


def field_to_json(field: DataField) -> dict[str, object]:
    """Returns the JSON object of a field. A description or default that is None is left out, because Paimon reads an
    explicit null as the string "null".
    """
    json_object: dict[str, object] = {"id": field.id, "name": field.name, "type": type_to_json(field.type)}
    if field.description is not None:
        json_object["description"] = field.description
    if field.default_value is not None:
        json_object["defaultValue"] = field.default_value
    return json_object
