"""Chooses partitions by values that a user has typed: `dt=2024-01-01`, or a mapping in Python."""

import re
from collections.abc import Callable, Mapping, Sequence

from bucketline.conf.errors import OptionError
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.partition_text import cast_text, legacy_text
from bucketline.state.format.paths import default_partition_name, partition_values
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.char_text import padded_value
from bucketline.state.types.logical import INTEGER_ROOTS, DataField, DataType, TypeRoot

_WHOLE = re.compile(r"-?\d+")

PartitionTest = Callable[[bytes], bool]


def choose_partitions(schema: TableSchema, choices: Sequence[Mapping[str, object]] | None) -> PartitionTest:
    """Returns a test that is true for a serialized partition if at least one of `choices` matches it. If `choices` is
    None, the test is true for every partition.

    A choice gives values of some or all partition columns. A value has the form in which it is printed, or the form in
    the folder's name; None stands for the default partition. Raises OptionError for a column that is not a partition
    column, and for a value that no partition can have, such as `x` for an INT.
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
    wanted = [{name: _text(value, default) for name, value in choice.items()} for choice in choices]

    fields = {f.name: f for f in schema.select(schema.partition_keys)}
    for choice in wanted:
        for name, text in choice.items():
            _check_value(fields[name], text, default)
            if text != default:
                choice[name] = str(padded_value(text, fields[name].type))

    def test(partition: bytes) -> bool:
        forms = _forms(schema, partition)
        return any(all(text in forms[name] for name, text in choice.items()) for choice in wanted)

    return test


def _forms(schema: TableSchema, partition: bytes) -> dict[str, set[str]]:
    """Returns, for each partition column, all strings that stand for its value in the partition."""
    fields = schema.select(schema.partition_keys)
    forms = {name: {text} for name, text in partition_values(schema, partition)}
    for f, value in zip(fields, decode_row(partition, [f.type for f in fields]), strict=True):
        if value is None:
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


def _check_value(field: DataField, text: str, default: str) -> None:
    if field.type.root in INTEGER_ROOTS and text != default and not _WHOLE.fullmatch(text):
        raise OptionError(
            f"{text!r} is not a value of partition column {field.name!r}, which is {field.type.as_nullable()}; give a "
            f"whole number, or {default} for rows without a value",
            key=field.name,
            value=text,
        )


def _text(value: object, default: str) -> str:
    if value is None:
        return default
    return str(value).lower() if isinstance(value, bool) else str(value)
