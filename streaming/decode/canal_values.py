"""Converts Canal's values, which are all strings, for columns whose values do not look like JSON's strings: bytes, ENUM
and SET.

Bytes come as a string with one character for each byte (ISO 8859-1). For an ENUM or a SET the binary log has a number;
the labels are in the message's `mysqlType`.
Source: Canal 1.1 FlatMessage and LogEventConvert; Paimon 1.4 CanalRecordParser.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.sources.message_options import SAME_TYPES, TypeMapping, TypeMappings
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.streaming.decode.json_values.json_exact import is_unicode, parse_json
from bucketline.streaming.decode.mysql_types import is_labeled, is_longtext, labeled_text

_TEXTS = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_BYTES = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_TYPES_TEXT = r'"mysqlType"\s*:\s*(?P<types>\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*\})'
_ANY_LABELED = r'(?i):\s*"\s*(?:enum|set)\s*\('
_BEYOND_A_BYTE = r"[^\x{00}-\x{FF}]"


@dataclass(frozen=True, slots=True, eq=False)
class ColumnTypes:
    """The MySQL types of columns, as Canal's messages state them. `types[codes[i]]` maps the column names of message
    i to MySQL types, for example `id` to `bigint(20)`.
    """

    types: tuple[dict[str, str], ...]
    codes: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """The converted values of a column. A value that could not be converted is null; `reasons` has the reason, by the
    position of the value in the column.
    """

    column: pa.Array
    reasons: dict[int, str]


def text_field(field: DataField) -> DataField:
    """Returns the column with the type in which it is read from messages: STRING if `column_of` has to convert the
    values later, otherwise the column's own type.
    """
    if field.type.root in _BYTES or _is_set(field.type):
        return replace(field, type=DataType(TypeRoot.VARCHAR, nullable=field.type.nullable, length=2**31 - 1))
    return field


def has_labels(messages: pa.Array, fields: Sequence[DataField]) -> bool:
    """Returns True if some message may have a value of type ENUM or SET, and one of the columns can store the labels of
    such a value.
    """
    takes = any(f.type.root in _TEXTS or _is_set(f.type) for f in fields)
    return takes and bool(pc.any(pc.match_substring_regex(messages, _ANY_LABELED)).as_py())


def column_types(messages: pa.Array) -> ColumnTypes:
    """Returns the MySQL types of columns, which each of Canal's messages may state in its field `mysqlType`. A message
    without this field gets an empty dict. Equal texts of types are parsed only once.
    """
    texts = pc.struct_field(pc.extract_regex(messages.cast(pa.string()), _TYPES_TEXT), "types")
    encoded = pc.dictionary_encode(texts, null_encoding="encode")
    types = [_types_in(text) for text in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    named = pc.match_substring(messages, '"mysqlType"').to_numpy(zero_copy_only=False)
    unread = np.array([t is None for t in types], dtype=bool)[codes] if len(codes) else np.zeros(0, dtype=bool)
    known: dict[tuple[tuple[str, str], ...], int] = {}
    for at in np.flatnonzero(unread & named):  # null, or nested
        found = _as_types(parse_json(messages[int(at)].as_py()))
        codes[at] = known.setdefault(tuple(found.items()), len(types))
        if codes[at] == len(types):
            types.append(found)
    return ColumnTypes(tuple(t or {} for t in types), codes)


def column_of(
    texts: pa.Array, field: DataField, types: ColumnTypes | None, mapping: TypeMappings = SAME_TYPES
) -> Values:
    """Takes the strings of a column, and returns them converted to the type of the column.

    `types` are MySQL's types from the messages of these strings. With the mapping LONGTEXT, a column BYTES holds the
    strings themselves.
    """
    if field.type.root in _BYTES:
        if types is None or TypeMapping.LONGTEXT_TO_BYTES not in mapping:
            return _bytes_of(texts)
        are_texts = np.array([is_longtext(of.get(field.name, "")) for of in types.types])[types.codes]
        octets = _bytes_of(if_else(pa.array(are_texts), None, texts))
        return Values(if_else(pa.array(are_texts), texts.cast(pa.binary()), octets.column), octets.reasons)
    if _is_set(field.type) or (types is not None and field.type.root in _TEXTS):
        return _labels_of(texts, field, types or ColumnTypes(({},), np.zeros(len(texts), dtype=np.int64)))
    return Values(texts, {})


def _is_set(data_type: DataType) -> bool:
    element = data_type.element
    return data_type.root is TypeRoot.ARRAY and element is not None and element.root in _TEXTS


def _types_in(text: str | None) -> dict[str, str] | None:
    try:
        return None if text is None else _as_types({"mysqlType": parse_json(text.encode())})
    except ValueError:
        return None


def _as_types(message: object) -> dict[str, str]:
    types = message.get("mysqlType") if isinstance(message, dict) else None
    texts = {name: str(kind) for name, kind in types.items()} if isinstance(types, dict) else {}
    return {name: kind for name, kind in texts.items() if is_unicode(name) and is_unicode(kind)}


def _bytes_of(texts: pa.Array) -> Values:
    beyond = pc.fill_null(pc.match_substring_regex(texts, _BEYOND_A_BYTE), False)
    reasons = {}
    if pc.any(beyond).as_py():
        reasons = dict.fromkeys(
            np.flatnonzero(beyond.to_numpy(zero_copy_only=False)).tolist(),
            "is not bytes: Canal sends each byte as a character up to U+00FF",
        )
        texts = if_else(beyond, None, texts)
    filled = texts.fill_null("")
    sizes = pc.utf8_length(filled).to_numpy()
    start, stop = filled.offset, filled.offset + len(filled)
    offsets = np.frombuffer(filled.buffers()[1], np.int32)[start : stop + 1]
    data = filled.buffers()[2]
    characters = b"" if data is None else memoryview(data)[offsets[0] : offsets[-1]]
    encoded = str(characters, "utf-8").encode("latin-1")
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    whole = pa.BinaryArray.from_buffers(pa.binary(), len(filled), [None, pa.py_buffer(ends), pa.py_buffer(encoded)])
    return Values(if_else(texts.is_valid(), whole, None), reasons)


def _labels_of(texts: pa.Array, field: DataField, types: ColumnTypes) -> Values:
    """Converts the numbers of an ENUM or SET column of MySQL to the labels that they stand for, for example `2` to
    `paid`. The labels are in the column's MySQL type. If the messages contain several types for the column, the values
    of each type are converted together.
    """
    is_set, reasons = _is_set(field.type), {}
    arrow = pa.list_(pa.string()) if is_set else pa.string()
    parts, places = [pa.nulls(0, arrow)], [np.zeros(0, dtype=np.int64)]
    for code, of_columns in enumerate(types.types):
        at = np.flatnonzero(types.codes == code)
        if not len(at):
            continue
        declared, part = of_columns.get(field.name, ""), texts.take(pa.array(at))
        if is_set or is_labeled(declared):
            part, bad = _of_each(part, declared, arrow)
            reasons.update({int(at[row]): reason for row, reason in bad.items()})
        parts.append(part)
        places.append(at)
    back = np.argsort(np.concatenate(places), kind="stable")
    return Values(pa.concat_arrays(parts).take(pa.array(back)), reasons)


def _of_each(texts: pa.Array, declared: str, arrow: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """Translates numbers of MySQL's ENUM or SET (`texts`, numbers as text) to their labels. `declared` is the MySQL
    type, for example `enum('new','paid')`.

    Returns the labels as an array of the Arrow type `arrow`, and for each row without a label the reason, by row
    index.
    """
    encoded = pc.dictionary_encode(texts)
    labels: list[str | list[str] | None] = []
    reasons: dict[int, str] = {}
    for number in encoded.dictionary.to_pylist():
        try:
            if not is_labeled(declared):
                raise ValueError("is not a SET, the only type of MySQL that can become an array of strings")
            text = labeled_text(declared, number)
            labels.append((text.split(",") if text else []) if pa.types.is_list(arrow) else text)
        except ValueError as e:
            reasons[len(labels)] = f'"{number}" {e}'
            labels.append(None)
    indices = encoded.indices
    column = pa.array(labels, arrow).take(indices)
    if not reasons:
        return column, {}
    codes = pc.fill_null(indices, -1).to_numpy(zero_copy_only=False)
    return column, {int(row): reasons[int(codes[row])] for row in np.flatnonzero(np.isin(codes, list(reasons)))}
