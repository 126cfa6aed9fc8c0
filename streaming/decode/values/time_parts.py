"""Converts dates and times that come in parts, and infinite times.

Debezium's `time.precision.mode=structured` writes the parts of a date or a time as an object. For Postgres' infinity
Debezium writes a word, or a number that stands for infinity.
Source: Debezium, io.debezium.time.StructuredTemporal and its types; PostgresValueConverter of Debezium 3.5.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.if_else import if_else

_DATE, _CLOCK = {"year": 4, "month": 2, "day": 2}, {"hour": 2, "minute": 2, "second": 2}
_SECOND_PARTS = {"picoseconds": 12, "nanos": 9}
_OTHER_NUMBERS = ("offsetSeconds", "precision")
_SPECIAL = "specialValue"
_OTHER_TEXTS = (_SPECIAL, "zoneId")
PARTS = pa.struct(
    [(name, pa.int64()) for name in (*_DATE, *_CLOCK, *_SECOND_PARTS, *_OTHER_NUMBERS)]
    + [(name, pa.string()) for name in _OTHER_TEXTS]
)
"""The parts that an object may have."""

WORDS = {"POSITIVE_INFINITY": "infinity", "NEGATIVE_INFINITY": "-infinity"}
_MICROS = {9223372036825200000: "infinity", -9223372036832400000: "-infinity"}
_DAYS = {-622191234: "infinity", 622191149: "-infinity", 622191150: "-infinity"}
_PER_UNIT = {"ms": 1000, "us": 1}


def parts_of(values: pa.Array) -> pa.Array:
    """Takes times as structs of their parts, for example `year`, `month` and `day`. Returns the same times as structs
    that have all fields of `PARTS`; the parts that the given structs lack are null. A null struct stays null.
    """
    columns = [
        pa.nulls(len(values), f.type)
        if values.type.get_field_index(f.name) < 0
        else pc.struct_field(values, [f.name]).cast(f.type)
        for f in PARTS
    ]
    return pa.StructArray.from_arrays(columns, fields=list(PARTS), mask=values.is_null())


def words_of_counts(counts: pa.Array, unit: str) -> pa.Array:
    """Finds the numbers with which Debezium writes infinite times. `counts` are times as numbers of the unit `unit`.
    Returns the string `infinity` or `-infinity` for each number that stands for an infinite time, and null for all
    other numbers.
    """
    known: Mapping[int, str] = _MICROS
    if unit == "d":
        known = _DAYS
    elif unit == "ms":
        # The numbers for infinity, cut to milliseconds or as the driver has them.
        known = {**_MICROS, **{count // _PER_UNIT["ms"]: word for count, word in _MICROS.items()}}
    at = pc.index_in(counts, value_set=pa.array(list(known), counts.type))
    return pa.array(list(known.values()), pa.string()).take(at)


def words_of_parts(parts: pa.Array) -> pa.Array:
    """Returns the text `infinity` or `-infinity` for each time that is infinite; null for every other time. `parts`
    are structs with the parts of times, such as year and month.
    """
    at = pc.index_in(pc.struct_field(parts, _SPECIAL), value_set=pa.array(list(WORDS), pa.string()))
    return pa.array(list(WORDS.values()), pa.string()).take(at)


def texts_of_parts(parts: pa.Array, *, has_date: bool, has_clock: bool) -> pa.Array:
    """Returns local dates, times, or both as ISO 8601 strings. `parts` are structs of `PARTS` (year, month, hour and so
    on, as numbers).

    The string of a null struct is null. If a part is missing, the string is not a valid date or time.
    """
    written = []
    if has_date:
        written.append(_joined(parts, _DATE, "-"))
    if has_clock:
        clock = _joined(parts, _CLOCK, ":")
        written.append(pc.binary_join_element_wise(clock, _fraction(parts), "."))
    text = written[0] if len(written) == 1 else pc.binary_join_element_wise(*written, "T")
    # A value that lacks a part must be refused: it gets a string that is not a valid date or time.
    return if_else(parts.is_valid(), pc.fill_null(text, ""), None)


def offset_seconds(parts: pa.Array) -> pa.Array:
    """Returns by how many seconds the clock of a time is ahead of UTC; 0 if the value does not contain an offset."""
    return pc.fill_null(pc.struct_field(parts, "offsetSeconds"), 0)


def _joined(parts: pa.Array, digits: Mapping[str, int], between: str) -> pa.Array:
    return pc.binary_join_element_wise(
        *(_padded(pc.struct_field(parts, name), count) for name, count in digits.items()), between
    )


def _fraction(parts: pa.Array) -> pa.Array:
    """Returns the digits of the fraction of a second. Arrow reads nine digits, so further digits are cut off."""
    texts = [
        pc.utf8_slice_codeunits(_padded(pc.struct_field(parts, name), count), 0, 9)
        for name, count in _SECOND_PARTS.items()
    ]
    return pc.coalesce(*texts, "0")


def _padded(numbers: pa.Array, digits: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), digits, "0")
