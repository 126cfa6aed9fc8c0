"""Checks the precisions and scales in the types of a data file's columns against the schema under which the file was
written.

Files hold plain numbers, so a damaged digit in a schema file would change what the numbers mean. Other tools widen
types and have their own rules for units of time. So a file is refused only if exactly one of its columns differs, and
the SQL names of the two types differ by one bit.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from bucketline.state.errors import CorruptFileError
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.logical import DataField, DataType, TypeRoot, parse_type_text

_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_PRECISIONS = {"ms": range(4), "us": range(4, 7), "ns": range(7, 10)}
_ASCII_BITS = 7

_Pair = tuple[DataType, list[DataType]]
"""A type in the schema, and the types that the file may have for it."""


def check_types(types: Mapping[str, pa.DataType], stored: Sequence[DataField], *, has_units: bool) -> None:
    """Raises CorruptFileError that names the column, if a file's columns cannot have the types of its schema.

    `types` are the types that the file states for its columns. `has_units` says whether these types include the unit of
    a timestamp.
    """
    odd = [(f.name, pair) for f in stored if f.name in types for pair in _different(f.type, types[f.name], has_units)]
    if len(odd) != 1:
        return
    ((name, (declared, possible)),) = odd
    match = next((p for p in possible if _is_one_bit_off(p, declared)), None)
    if match is not None:
        raise CorruptFileError(
            f"column {name} is {declared.as_nullable()} in the schema and {match} in the file: one bit is flipped in "
            "the schema file or in the data file; restore the damaged file from a copy",
            column=name,
            expected=str(declared),
            found=str(match),
        )


def _different(declared: DataType, arrow: pa.DataType, has_units: bool) -> Iterator[_Pair]:
    """Compares the type of a column in the schema (`declared`), and the types of the values inside the column, with the
    types in the file (`arrow`). Yields a pair for each type whose precision or scale differs: the type in the schema,
    and the types that the file's type can stand for. Other differences are ignored.
    """
    if declared.root is TypeRoot.DECIMAL and pa.types.is_decimal(arrow):
        if (declared.precision, declared.scale) != (arrow.precision, arrow.scale):
            yield declared, [DataType(TypeRoot.DECIMAL, precision=arrow.precision, scale=arrow.scale)]
    elif declared.root in _TIMESTAMPS and pa.types.is_timestamp(arrow):
        if has_units and arrow_type(declared).unit != arrow.unit:
            plain = declared.as_nullable()
            yield declared, [replace(plain, precision=p) for p in _PRECISIONS.get(arrow.unit, ())]
    elif declared.root is TypeRoot.ROW and pa.types.is_struct(arrow):
        for field in declared.fields:
            position = arrow.get_field_index(field.name)
            if position >= 0:
                yield from _different(field.type, arrow.field(position).type, has_units)
    elif declared.element is not None and (pa.types.is_list(arrow) or pa.types.is_map(arrow)):
        inner = arrow.key_type if pa.types.is_map(arrow) else arrow.value_type
        yield from _different(declared.element, inner, has_units)
    elif declared.key is not None and declared.value is not None and pa.types.is_map(arrow):
        yield from _different(declared.key, arrow.key_type, has_units)
        yield from _different(declared.value, arrow.item_type, has_units)


def _is_one_bit_off(file_type: DataType, declared: DataType) -> bool:
    """Returns True if flipping a single bit in the name of `file_type` makes it the name of `declared`."""
    text, wanted = str(file_type), declared.as_nullable()
    for place, letter in enumerate(text):
        for bit in range(_ASCII_BITS):
            with suppress(CorruptFileError):
                if parse_type_text(f"{text[:place]}{chr(ord(letter) ^ 1 << bit)}{text[place + 1 :]}") == wanted:
                    return True
    return False
