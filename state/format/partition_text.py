"""Converts partition values to the text in folder names, as Paimon's Java code does. There are two forms: the legacy
form, and the value cast to STRING.

Source: Paimon 2.0 InternalRowPartitionComputer, CastExecutors to STRING; Double.toString and LocalDateTime.toString of
Java.
"""

from collections.abc import Callable
from decimal import Context, Decimal

import numpy as np

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.types.binary_row import Timestamp
from bucketline.state.types.logical import DataType, TypeRoot

_MILLIS_PER_DAY = 86_400_000
_NANOS_PER_MILLI = 1_000_000
_PLAIN_FROM, _PLAIN_TO = Decimal("1e-3"), Decimal("1e7")
_TWO_DIGITS = Context(prec=2)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_STAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


def legacy_text(value: object, data_type: DataType) -> str:
    """Returns the text of a value if `partition.legacy-name` is true. The text is what Java's toString returns for
    the internal value.

    `value` must be an internal value (`binary_row.decode_row` lists the kinds of values), and must not be None.
    Raises UnsupportedTableError for BINARY, because Java writes the address of an array there, which differs in each
    process.
    """
    if data_type.root in _BYTES:
        raise _unsupported(data_type, "set partition.legacy-name to false")
    if data_type.root in _STAMPS:
        assert isinstance(value, Timestamp)
        return _iso_text(value)
    return _plain_text(value, data_type)


def cast_text(value: object, data_type: DataType) -> str:
    """Returns the text of a value if `partition.legacy-name` is false. The text is the value cast to STRING.

    `value` must be an internal value (`binary_row.decode_row` lists the kinds of values), and must not be None.
    Raises UnsupportedTableError for TIMESTAMP_LTZ, whose text depends on the zone of the writing JVM, and for bytes
    that are no UTF-8.
    """
    root = data_type.root
    if root is TypeRoot.TIMESTAMP_LTZ:
        raise _unsupported(data_type, "set partition.legacy-name to true")
    if root is TypeRoot.TIMESTAMP:
        assert isinstance(value, Timestamp) and data_type.precision is not None
        return _sql_text(value, data_type.precision)
    if root is TypeRoot.DATE:
        assert isinstance(value, int)
        return "{:04d}-{:02d}-{:02d}".format(*_civil(value))
    if root is TypeRoot.TIME:
        assert isinstance(value, int) and data_type.precision is not None
        return _time_text(value, data_type.precision)
    if root in _BYTES:
        assert isinstance(value, bytes)
        try:
            return value.decode()
        except UnicodeDecodeError as e:
            raise _unsupported(
                data_type, "a partition value of type BINARY is no valid UTF-8, so it has no folder name"
            ) from e
    return _plain_text(value, data_type)


def double_text(value: float) -> str:
    """Returns the text of Java's Double.toString: `1.0`, `1.0E10`, `NaN`, `-Infinity`."""
    return _float_text(value, repr)


def float_text(value: float) -> str:
    """Returns the text of Java's Float.toString, for a value that a 32-bit float holds exactly."""
    return _float_text(value, lambda v: str(np.format_float_scientific(np.float32(v), unique=True)))


def _plain_text(value: object, data_type: DataType) -> str:
    root = data_type.root
    if root is TypeRoot.BOOLEAN:
        return "true" if value else "false"
    if root is TypeRoot.DECIMAL:
        return f"{value:f}"
    if isinstance(value, float):
        return float_text(value) if root is TypeRoot.FLOAT else double_text(value)
    return str(value)


def _float_text(value: float, shortest: Callable[[float], str]) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    number = Decimal(shortest(value))
    sign = "-" if number.is_signed() else ""
    if number == 0:
        return f"{sign}0.0"
    if _PLAIN_FROM <= abs(number) < _PLAIN_TO:
        text = f"{abs(number):f}"
        whole, _, fraction = text.partition(".")
        return f"{sign}{whole}.{fraction.rstrip('0') or '0'}"
    if len(number.normalize().as_tuple().digits) == 1:
        # Java always writes at least two digits, and chooses the nearest ones: 4.9E-324, although 5E-324 would be
        # enough.
        number = _TWO_DIGITS.create_decimal_from_float(value)
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{number.adjusted()}"


def _iso_text(value: Timestamp) -> str:
    """Returns the text of Java's LocalDateTime.toString. The text ends after the minute, after the second, or after 3,
    6 or 9 digits of a second, as early as the value allows.
    """
    days, millis = divmod(value.millis, _MILLIS_PER_DAY)
    year, month, day = _civil(days)
    text = f"{_iso_year(year)}-{month:02d}-{day:02d}T{millis // 3_600_000:02d}:{millis // 60_000 % 60:02d}"
    second = millis // 1000 % 60
    nano = millis % 1000 * _NANOS_PER_MILLI + value.nanos_of_milli
    if second == 0 and nano == 0:
        return text
    text += f":{second:02d}"
    if nano == 0:
        return text
    if nano % _NANOS_PER_MILLI == 0:
        return f"{text}.{nano // _NANOS_PER_MILLI:03d}"
    return f"{text}.{nano // 1000:06d}" if nano % 1000 == 0 else f"{text}.{nano:09d}"


def _sql_text(value: Timestamp, precision: int) -> str:
    days, millis = divmod(value.millis, _MILLIS_PER_DAY)
    fraction = f"{millis % 1000 * _NANOS_PER_MILLI + value.nanos_of_milli:09d}"
    while len(fraction) > precision and fraction.endswith("0"):
        fraction = fraction[:-1]
    date = "{:04d}-{:02d}-{:02d}".format(*_civil(days))
    return f"{date} {_clock(millis)}" + (f".{fraction}" if fraction else "")


def _time_text(millis: int, precision: int) -> str:
    """Returns a time as `hours:minutes:seconds`. If `precision` is not 0, a dot and 1 to `precision` digits follow,
    without further zeros at the end.
    """
    text = _clock(millis)
    if precision == 0:
        return text
    digits = f"{millis % 1000:03d}"[:precision].rstrip("0")
    return f"{text}.{digits or '0'}"


def _clock(millis: int) -> str:
    return f"{millis // 3_600_000:02d}:{millis // 60_000 % 60:02d}:{millis // 1000 % 60:02d}"


def _civil(days: int) -> tuple[int, int, int]:
    """Returns year, month and day of a date, given in days since 1970-01-01. The year may be outside of 1 to 9999, to
    which Python's datetime is limited.
    """
    date = np.datetime64(days, "D")
    month = date.astype("datetime64[M]")
    months = int(month.astype(np.int64))
    return months // 12 + 1970, months % 12 + 1, int((date - month.astype("datetime64[D]")).astype(np.int64)) + 1


def _iso_year(year: int) -> str:
    if year > 9999:
        return f"+{year}"
    return f"-{-year:04d}" if year < 0 else f"{year:04d}"


def _unsupported(data_type: DataType, remedy: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"a partition column of type {data_type} has no folder name that every writer agrees on; {remedy}",
        type=str(data_type),
    )
