"""Columns of every atomic type with ordinary, extreme and null values, in the text form of `peers/rows.py`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NAN, INFINITY = "NaN", float("inf")
_LARGEST_FLOAT = 3.4028234663852886e38
_SMALLEST_FLOAT = 1.401298464324817e-45

VALUES: Mapping[str, Sequence[Any]] = {
    "BOOLEAN": (True, False),
    "TINYINT": (0, -128, 127, -1, 1),
    "SMALLINT": (0, -32768, 32767, -1, 256),
    "INT": (0, -2147483648, 2147483647, -1, 65536),
    "BIGINT": (0, -9223372036854775808, 9223372036854775807, -1, 4294967296),
    "FLOAT": (0.0, -0.0, -INFINITY, INFINITY, NAN, _LARGEST_FLOAT, _SMALLEST_FLOAT, -1.5, 0.10000000149011612),
    "DOUBLE": (0.0, -0.0, -INFINITY, INFINITY, NAN, 1.7976931348623157e308, 5e-324, -1.5, 0.1),
    "DECIMAL(1, 0)": ("0", "-9", "9", "1"),
    "DECIMAL(9, 2)": ("0.00", "-9999999.99", "9999999.99", "0.01", "-0.01"),
    "DECIMAL(18, 18)": ("0.000000000000000000", "-0.999999999999999999", "0.999999999999999999"),
    "DECIMAL(19, 0)": ("0", "-9999999999999999999", "9999999999999999999", "1"),
    "DECIMAL(38, 10)": ("0.0000000000", "-" + "9" * 28 + "." + "9" * 10, "9" * 28 + "." + "9" * 10, "1.0000000000"),
    "STRING": ("", " ", "a", "A", "žluťoučký 🐎", "\x00", "\uffff", "\U0010ffff", "a/b=c%:'\"\\", "x" * 40, "x" * 16),
    "CHAR(5)": ("abcde", "ABCDE", "žluťo", "12345"),
    "VARCHAR(10)": ("", "abcdefghij", "é", "z"),
    "BYTES": ("", "00", "ff", "00ff", "ff" * 40, "7f", "80", "01" * 16),
    "BINARY(4)": ("00000000", "ffffffff", "7fffffff", "80000000"),
    "VARBINARY(8)": ("", "ff", "00", "ffffffffffffffff"),
    "DATE": ("1970-01-01", "0001-01-01", "9999-12-31", "1969-12-31", "1582-10-10", "2024-02-29"),
    "TIME(0)": ("00:00:00", "23:59:59", "12:00:00"),
    "TIME(3)": ("00:00:00", "23:59:59.999000", "12:34:56.789000"),
    "TIMESTAMP(0)": ("1970-01-01T00:00:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59", "1969-12-31T23:59:59"),
    "TIMESTAMP(3)": (
        "1970-01-01T00:00:00",
        "0001-01-01T00:00:00.001000",
        "9999-12-31T23:59:59.999000",
        "1969-12-31T23:59:59.999000",
    ),
    "TIMESTAMP(6)": (
        "1970-01-01T00:00:00",
        "0001-01-01T00:00:00.000001",
        "9999-12-31T23:59:59.999999",
        "1969-12-31T23:59:59.999999",
        "2024-02-29T12:34:56.789012",
    ),
    "TIMESTAMP(9)": (
        "1970-01-01T00:00:00",
        "1677-09-22T00:00:00.000000001",
        "2262-04-11T00:00:00.999999999",
        "1969-12-31T23:59:59.999999999",
        "1970-01-01T00:00:00.000000001",
    ),
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": (
        "1970-01-01T00:00:00",
        "0001-01-01T00:00:00.001000",
        "9999-12-31T23:59:59.999000",
        "1969-12-31T23:59:59.999000",
    ),
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": (
        "1970-01-01T00:00:00",
        "0001-01-01T00:00:00.000001",
        "9999-12-31T23:59:59.999999",
        "1969-12-31T23:59:59.999999",
    ),
    "TIMESTAMP(9) WITH LOCAL TIME ZONE": (
        "1970-01-01T00:00:00",
        "1677-09-22T00:00:00.000000001",
        "2262-04-11T00:00:00.999999999",
    ),
}
"""SQL type → values, none of them null and no two the same."""


def name_of(kind: str) -> str:
    """A column name for a type: `c_` and its words."""
    words = "".join(c if c.isalnum() else " " for c in kind.replace("WITH LOCAL TIME ZONE", "ltz")).split()
    return "c_" + "_".join(words).lower()


BYTES = ("BYTES", "BINARY(4)", "VARBINARY(8)")
FLOATS = ("FLOAT", "DOUBLE")
NANOSECONDS = ("TIMESTAMP(9)", "TIMESTAMP(9) WITH LOCAL TIME ZONE")


def rows(kinds: Iterable[str] = VALUES) -> list[dict[str, Any]]:
    """Rows that hold each value of each type, a null of each, and one row of nulls alone."""
    wanted = {name_of(kind): (*VALUES[kind], None) for kind in kinds}
    count = max(map(len, wanted.values()))
    found = [{name: values[i % len(values)] for name, values in wanted.items()} for i in range(count)]
    return [*found, dict.fromkeys(wanted)]
