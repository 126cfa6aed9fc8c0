"""Types of MySQL's columns as Canal writes them, such as `int unsigned` and `enum('a','b')`.

Source: MySQL 8.4 manual, data types; Paimon 1.4 MySqlTypeUtils, which gives new columns the same types, except for BIT,
geometries, and decimals of unknown size.
"""

import re

import pyarrow as pa

from bucketline.conf.sources.message_options import SAME_TYPES, TypeMapping, TypeMappings

_NAME_AND_SIZE = re.compile(
    r"\s*([a-z][a-z ]*?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)\s*(.*)|(unsigned.*|zerofill.*)?)$"
)
_LABELED = re.compile(r"\s*(enum|set)\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_LABEL = re.compile(r"'((?:[^']|'')*)'")
_UNSIGNED_BIGINT = re.compile(r"\s*(?:bigint\b.*\bunsigned|serial)\b", re.IGNORECASE)
_MOST_DIGITS = 38
_JDBC_SECONDS = 19
"""The length of a timestamp's text without a fraction. Some sources give the length of the text as the size of the
type, instead of the number of digits of the fraction.
"""

_SIGNED = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "mediumint": pa.int32(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "year": pa.int32(),
}
_UNSIGNED = {
    "tinyint": pa.int16(),
    "smallint": pa.int32(),
    "mediumint": pa.int64(),
    "int": pa.int64(),
    "integer": pa.int64(),
    "bigint": pa.decimal128(20, 0),
}
_OTHER = {
    "bool": pa.bool_(),
    "boolean": pa.bool_(),
    "serial": pa.decimal128(20, 0),
    "float": pa.float32(),
    "double": pa.float64(),
    "double precision": pa.float64(),
    "real": pa.float64(),
    "date": pa.date32(),
    "time": pa.time32("ms"),
    "set": pa.list_(pa.string()),
}
_BYTES = (
    *("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
    *("geometry", "point", "linestring", "polygon"),
    *("multipoint", "multilinestring", "multipolygon", "geometrycollection", "geomcollection"),
)
_DECIMALS = ("decimal", "numeric", "fixed", "dec")


def column_type(declared: str, mapping: TypeMappings = SAME_TYPES) -> pa.DataType:
    """Returns the Arrow type for a new column. `declared` is the type of its values in MySQL, as Canal writes it. If no
    other type holds all of the values, returns string.

    `mapping` is the job's `type-mapping`.
    """
    if TypeMapping.TO_STRING in mapping:
        return pa.string()
    kind = _column_type(declared)
    if TypeMapping.TINYINT1_NOT_BOOL in mapping and pa.types.is_boolean(kind) and not is_bit(declared):
        return pa.int8()
    if TypeMapping.LONGTEXT_TO_BYTES in mapping and is_longtext(declared):
        return pa.binary()
    is_unsigned = _UNSIGNED_BIGINT.match(declared) is not None
    return pa.int64() if is_unsigned and TypeMapping.BIGINT_UNSIGNED_TO_BIGINT in mapping else kind


def is_longtext(declared: str) -> bool:
    """Returns True if a type is LONGTEXT."""
    return declared.strip().lower().startswith("longtext")


def is_bit(declared: str) -> bool:
    """Returns True if a type is BIT."""
    return declared.strip().lower().startswith("bit")


def _column_type(declared: str) -> pa.DataType:
    if (labeled := _LABELED.match(declared)) is not None:
        return pa.string() if labeled[1].lower() == "enum" else _OTHER["set"]
    known = _NAME_AND_SIZE.match(declared.lower())
    if known is None:
        return pa.string()
    name, size, scale = known[1], int(known[2] or 0), int(known[3] or 0)
    is_unsigned = "unsigned" in (known[4] or known[5] or "")
    if (name == "tinyint" and size == 1 and not is_unsigned) or (name == "bit" and size <= 1):
        return pa.bool_()
    if name == "bit":
        return pa.int64() if size < 64 else pa.decimal128(20, 0)
    if name in _DECIMALS:
        return pa.decimal128(size, scale) if scale <= size <= _MOST_DIGITS and size else pa.string()
    if name in ("datetime", "timestamp"):
        digits = size - _JDBC_SECONDS - 1 if size >= _JDBC_SECONDS else size
        return pa.timestamp("ms" if digits <= 3 else "us")
    if name in _BYTES:
        return pa.binary()
    return (_UNSIGNED if is_unsigned else _SIGNED).get(name, _OTHER.get(name, pa.string()))


def is_labeled(declared: str) -> bool:
    """Returns True if a type is an ENUM or a SET."""
    return _LABELED.match(declared) is not None


def labeled_text(declared: str, number: str) -> str:
    """Returns the text of an ENUM or SET value. `number` is the number that the binary log has in place of the text,
    and `declared` is the type of the column.

    The text of an ENUM value is its label. The text of a SET value is its labels, joined by commas, as MySQL shows
    them. Raises ValueError with a reason if the number has no label.
    """
    labeled = _LABELED.match(declared)
    assert labeled is not None, declared
    labels = [label.replace("''", "'") for label in _LABEL.findall(labeled[2])]
    if not number.isascii() or not number.isdigit():
        raise ValueError(f"is not the number of a label of {declared}")
    at = int(number)
    if labeled[1].lower() == "enum":
        if at > len(labels):
            raise ValueError(f"is not the number of a label of {declared}")
        # MySQL stores 0, and shows an empty text, for a value that matched no label.
        return labels[at - 1] if at else ""
    if at >> len(labels):
        raise ValueError(f"is not a number that stands for labels of {declared}")
    return ",".join(label for bit, label in enumerate(labels) if at >> bit & 1)
