"""Chooses partitions by values that a user has typed: `dt=2024-01-01`, or a mapping in Python."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.partition_text import cast_text, legacy_text
from bucketline.state.format.paths import default_partition_name, partition_values
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.char_text import padded_value
from bucketline.state.types.logical import INTEGER_ROOTS, DataField, DataType, TypeRoot
from bucketline.state.types.values import from_scalar

_WHOLE = re.compile(r"-?\d+")
_NUMBERS, _TIMES = (int, float, Decimal), (date, time)
_TIME_ROOTS = (TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_ROOTS_BY_TEXT = (*INTEGER_ROOTS, TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY)

PartitionTest = Callable[[bytes], bool]


def choose_partitions(schema: TableSchema, choices: Sequence[Mapping[str, object]] | None) -> PartitionTest:
    """Returns a test that is true for a serialized partition if at least one of `choices` matches it. If `choices` is
    None, the test is true for every partition.

    A choice maps some or all partition columns to values. A value may be a text, in the form in which the value is
    printed or in the form of the folder's name. The name of the default partition stands for a null and for blank
    texts, because they share a folder. None stands for a null alone. Any other value of Python, such as 1.5 or a date,
    stands for this value alone. Raises OptionError for a column that is not a partition column, and for a value that no
    partition can have, such as `x` for an INT.
    """
    if choices is None:
        return lambda partition: True
    if isinstance(choices, Mapping):
        raise OptionError(f"partitions must be a list of mappings; write [{dict(choices)!r}]", key="partitions")
    for choice in choices:
        for name in choice:
            if name not in schema.partition_keys:
                have = ", ".join(schema.partition_keys) or "none"
                raise OptionError(f"{name!r} is no partition column; the partition columns are {have}", key=name)
    default = default_partition_name(schema)
    fields = {f.name: f for f in schema.select(schema.partition_keys)}
    wanted = [
        {name: _wanted_text(fields[name], value, default) for name, value in choice.items()} for choice in choices
    ]

    def test(partition: bytes) -> bool:
        forms = _forms(schema, partition)
        return any(all(text in forms[name] for name, text in choice.items()) for choice in wanted)

    return test


def _forms(schema: TableSchema, partition: bytes) -> dict[str, set[str | None]]:
    """Returns, for each partition column, all texts that stand for the column's value in the partition. If the value is
    null, None is one of these texts.
    """
    fields = schema.select(schema.partition_keys)
    forms: dict[str, set[str | None]] = {name: {text} for name, text in partition_values(schema, partition)}
    for f, value in zip(fields, decode_row(partition, [f.type for f in fields]), strict=True):
        if value is None:
            forms[f.name].add(None)
            continue
        for text_of in (cast_text, legacy_text):
            try:
                text = text_of(padded_value(value, f.type), f.type)
            except UnsupportedTableError:
                continue
            forms[f.name] |= {text, short_text(text, f.type)}
    return forms


def short_text(text: str, data_type: DataType) -> str:
    """Returns a partition value in the form in which Spark prints it. `text` is the value with all digits. In a
    timestamp, the zeros at the end of the fraction are removed: `12:00:00.500` becomes `12:00:00.5`.
    """
    has_fraction = data_type.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ) and "." in text
    return text.rstrip("0").rstrip(".") if has_fraction else text


def _wanted_text(field: DataField, value: object, default: str) -> str | None:
    """Returns the text that `_forms` has for a partition with this value; None if the value is None. Raises OptionError
    for a value that the column cannot have.
    """
    if value is None:
        return None
    if isinstance(value, _NUMBERS + _TIMES) and field.type.root not in _ROOTS_BY_TEXT:
        return _text_of_value(field, value)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if field.type.root in INTEGER_ROOTS and text != default and not _WHOLE.fullmatch(text):
        raise _no_value(field, text, f"give a whole number, or {default} for rows without a value")
    return text if text == default else str(padded_value(text, field.type))


def _text_of_value(field: DataField, value: object) -> str:
    """Returns the text that `_forms` has for a partition with this value, which is a number, a date or a time of
    Python. Raises OptionError if the value does not have the column's type.
    """
    remedy = "give a value of this type, or its text"
    if isinstance(value, _NUMBERS) == (field.type.root in _TIME_ROOTS):
        raise _no_value(field, value, remedy)
    try:
        scalar = pa.scalar(value, arrow_type(field.type))
        # Arrow cuts a timestamp or a time that is more exact than the column. No partition has such a value.
        if isinstance(value, _TIMES) and scalar.cast(pa.scalar(value).type) != pa.scalar(value):
            raise _no_value(field, value, remedy)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        raise _no_value(field, value, remedy) from None
    return legacy_text(from_scalar(scalar, field.type), field.type)


def _no_value(field: DataField, value: object, remedy: str) -> OptionError:
    return OptionError(
        f"{value!r} is not a value of partition column {field.name!r}, which is {field.type.as_nullable()}; {remedy}",
        key=field.name,
        value=str(value),
    )
