"""Column statistics of data files: the minimum, the maximum and the number of nulls of each column.

Paimon's Java code reads the same bounds from Parquet footers. The bounds are shortened as `metadata.stats-mode` says.
Bounds stay unknown if readers do not agree on the order of values (NaN), or if Java has no bounds (timestamps finer
than microseconds). Source: Paimon 2.0 SimpleStatsConverter, SimpleColStatsCollector, ParquetSimpleStatsExtractor.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.table.stats_mode import StatsKind, StatsMode
from bucketline.conf.table.table_settings import TableSettings
from bucketline.state.format.data_file import SimpleStats
from bucketline.state.types.binary_row import Timestamp, encode_row
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.state.types.values import from_scalar

Bound = bool | int | float | str | bytes | Decimal | Timestamp
"""An internal value (`binary_row.decode_row` lists them): a date in days, a time in milliseconds, and so on."""

_MAX_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)

KEY_MODE = StatsMode(StatsKind.TRUNCATE, 128)
"""The statistics mode of the system columns and the `_KEY_*` columns, unless an option sets another mode for the
column. Source: StatsCollectorFactories.
"""


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The minimum and the maximum of a column, at full length (not shortened), and the number of nulls.

    Both bounds are None if every value is null, or if `is_bounded` is False. In the latter case the bounds are unknown,
    and stay unknown when they are merged with other bounds.
    """

    minimum: Bound | None
    maximum: Bound | None
    null_count: int
    is_bounded: bool = True

    def merge(self, other: "ColumnBounds") -> "ColumnBounds":
        """Returns the bounds of all values that the two objects describe."""
        null_count = self.null_count + other.null_count
        if not (self.is_bounded and other.is_bounded):
            return ColumnBounds(None, None, null_count, is_bounded=False)
        return ColumnBounds(
            _pick(self.minimum, other.minimum, sign=-1), _pick(self.maximum, other.maximum, sign=1), null_count
        )


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of a data file, or of some of its rows. `columns` has the bounds of each field in `fields`, in the
    same order.
    """

    fields: tuple[DataField, ...]
    modes: tuple[StatsMode, ...]
    columns: tuple[ColumnBounds, ...]

    def merge(self, other: "ColumnStats") -> "ColumnStats":
        """Returns the statistics of all rows that the two objects describe. The two must have the same fields and the
        same modes.
        """
        assert self.fields == other.fields and self.modes == other.modes, "statistics of different columns"
        columns = tuple(mine.merge(its) for mine, its in zip(self.columns, other.columns, strict=True))
        return ColumnStats(self.fields, self.modes, columns)

    def of_keys(self, keys: Sequence[DataField]) -> "ColumnStats | None":
        """Returns the statistics of the columns in `keys`, with the mode `KEY_MODE` for each of these columns. Returns
        None if no bounds were collected for one of these columns.
        """
        places = {f.name: i for i, f in enumerate(self.fields)}
        positions = [places[k.name] for k in keys if k.name in places and self.modes[places[k.name]].has_bounds]
        if len(positions) < len(keys):
            return None
        return ColumnStats(tuple(keys), (KEY_MODE,) * len(keys), tuple(self.columns[i] for i in positions))

    def to_simple_stats(self) -> tuple[SimpleStats, tuple[str, ...] | None]:
        """Returns the statistics in the dense form of a manifest, and `_VALUE_STATS_COLS`: the names of the columns
        that have statistics.

        If all columns have statistics, None is returned instead of the names. If no column has statistics, the tuple of
        names and the statistics are empty.
        Source: Paimon 2.0 SimpleStatsConverter.toBinary with `metadata.stats-dense-store`.
        """
        kept = [i for i in range(len(self.fields)) if _has_stats(self.fields[i].type, self.modes[i])]
        stats = self._encoded(kept)
        return stats, None if len(kept) == len(self.fields) else tuple(self.fields[i].name for i in kept)

    def to_full_stats(self) -> SimpleStats:
        """Returns the statistics with an element for every field. The element is null if the statistics of the field
        are unknown. Statistics of keys always have this form; all other statistics have this form only if
        `metadata.stats-dense-store` is false.

        Source: Paimon 2.0 SimpleStatsConverter.toBinaryAllMode.
        """
        return self._encoded(range(len(self.fields)))

    def _encoded(self, kept: Sequence[int]) -> SimpleStats:
        types = [self.fields[i].type.as_nullable() for i in kept]
        bounds = [_cut(self.columns[i], self.modes[i]) for i in kept]
        counts = tuple(
            self.columns[i].null_count if _has_stats(self.fields[i].type, self.modes[i]) else None for i in kept
        )
        return SimpleStats(
            encode_row([low for low, _ in bounds], types), encode_row([high for _, high in bounds], types), counts
        )


def collect_stats(
    table: pa.Table | pa.RecordBatch, fields: Sequence[DataField], modes: Sequence[StatsMode]
) -> ColumnStats:
    """Returns the statistics (smallest and largest value, number of nulls) of the rows of `table` for the columns in
    `fields`.

    Columns are found by name, and must have the Arrow types of the fields. `modes` says for each field which statistics
    are wanted. Other columns of the table are ignored.
    """
    columns = tuple(
        _bounds_of(table.column(field.name), field.type, mode) for field, mode in zip(fields, modes, strict=True)
    )
    return ColumnStats(tuple(fields), tuple(modes), columns)


def is_within(bounds: ColumnBounds, low: Bound | None, high: Bound | None) -> bool:
    """Returns True unless the bounds of a column show that the column has a value below `low` or above `high`. If
    bounds are unknown, returns True.
    """
    return _is_beyond(bounds.minimum, low, sign=-1) and _is_beyond(bounds.maximum, high, sign=1)


def unknown_stats(fields: Sequence[DataField]) -> SimpleStats:
    """Returns statistics with a null for every field. Files in the postpone bucket get these statistics for their key
    columns, because no statistics of keys are collected there.
    """
    nothing = [None] * len(fields)
    row = encode_row(nothing, [f.type.as_nullable() for f in fields])
    return SimpleStats(row, row, tuple(nothing))


def stats_modes(
    fields: Sequence[DataField], settings: TableSettings, level: int | None = None
) -> tuple[StatsMode, ...]:
    """Returns the statistics mode of each column in `fields` (the columns of the table) for a file on `level`; None
    stands for a file without a level. The first of these rules that applies decides:

    - If the options set a mode for the column, this mode is used.
    - Columns after the first `metadata.stats-keep-first-n-columns` columns get no statistics.
    - If the options set a mode for the level, this mode is used.
    - Otherwise, the mode of the table is used.

    Raises OptionError for a mode that is not valid.
    Source: Paimon 2.0 StatsCollectorFactories, CoreOptions.
    """
    files = settings.files
    mode = files.stats_mode if level is None else files.stats_mode_per_level.get(level, files.stats_mode)
    modes = []
    for position, field in enumerate(fields):
        own = settings.columns.stats_mode(field.name)
        if own is not None:
            modes.append(own)
        elif 0 <= files.columns_with_stats <= position:
            modes.append(StatsMode(StatsKind.NONE))
        else:
            modes.append(mode)
    return tuple(modes)


def truncate_min(value: Bound, length: int) -> Bound:
    """Shortens a lower bound: returns a value that is not larger than `value` and has at most `length` code points
    (string) or bytes (binary).
    """
    return value[:length] if isinstance(value, str | bytes) else value


def truncate_max(value: Bound, length: int) -> Bound | None:
    """Shortens an upper bound: returns a value that is not smaller than `value` and has at most `length` code points
    (string) or bytes (binary). Returns None if no such value exists.

    Source: Paimon 2.0 TruncateSimpleColStatsCollector. Unlike that class, this function never returns a surrogate,
    which UTF-8 cannot encode.
    """
    if isinstance(value, str) and len(value) > length:
        for end in range(length - 1, -1, -1):
            following = ord(value[end]) + 1
            if following in _SURROGATES:
                following = _SURROGATES.stop
            if following <= _MAX_CODE_POINT:
                return value[:end] + chr(following)
        return None
    if isinstance(value, bytes) and len(value) > length:
        kept = value[:length].rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    return value


def _has_stats(data_type: DataType, mode: StatsMode) -> bool:
    return data_type.is_atomic and mode.kind is not StatsKind.NONE


def _cut(column: ColumnBounds, mode: StatsMode) -> tuple[Bound | None, Bound | None]:
    if column.minimum is None or column.maximum is None or mode.length is None:
        return column.minimum, column.maximum
    high = truncate_max(column.maximum, mode.length)
    # A file has both bounds or none.
    return (None, None) if high is None else (truncate_min(column.minimum, mode.length), high)


def _bounds_of(column: pa.Array | pa.ChunkedArray, data_type: DataType, mode: StatsMode) -> ColumnBounds:
    null_count: int = column.null_count
    if not (mode.has_bounds and data_type.is_atomic) or _is_unbounded(data_type):
        return ColumnBounds(None, None, null_count, is_bounded=False)
    if data_type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return _float_bounds(column, null_count)
    min_max = pc.min_max(column)
    low, high = min_max["min"], min_max["max"]
    if not low.is_valid:
        return ColumnBounds(None, None, null_count)
    minimum, maximum = from_scalar(low, data_type), from_scalar(high, data_type)
    if _is_too_long(minimum, data_type) or _is_too_long(maximum, data_type):
        return ColumnBounds(None, None, null_count, is_bounded=False)
    return ColumnBounds(minimum, maximum, null_count)


def _is_too_long(bound: object, data_type: DataType) -> bool:
    """Returns True if a bound is a decimal with more digits than its type allows. Other writers store sums that have
    too many digits. A decimal with too many digits cannot be stored as a bound.
    """
    if not isinstance(bound, Decimal):
        return False
    return abs(bound) >= Decimal(10) ** ((data_type.precision or 0) - (data_type.scale or 0))


def _float_bounds(column: pa.Array | pa.ChunkedArray, null_count: int) -> ColumnBounds:
    if pc.any(pc.is_nan(column)).as_py():
        return ColumnBounds(None, None, null_count, is_bounded=False)
    min_max = pc.min_max(column)
    low, high = min_max["min"].as_py(), min_max["max"].as_py()
    if low == 0 or high == 0:
        # For Arrow, -0.0 and 0.0 are equal; in key order -0.0 is smaller.
        values = column.drop_null().to_numpy()
        negative = np.signbit(values[values == 0])
        low = -0.0 if low == 0 and negative.any() else low
        high = 0.0 if high == 0 and not negative.all() else -0.0 if high == 0 else high
    return ColumnBounds(low, high, null_count)


def _is_unbounded(data_type: DataType) -> bool:
    """Returns True for the types for which no bounds are stored. For byte strings, Paimon 1.4 writes no bounds. If
    another writer stored bounds, Paimon 1.4 would lose rows, because it compares bytes as signed numbers. For
    timestamps finer than microseconds, Paimon 2.0 writes no bounds.
    """
    if data_type.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return (data_type.precision or 0) > 6
    return data_type.root in (TypeRoot.BINARY, TypeRoot.VARBINARY)


def _pick(one: Bound | None, other: Bound | None, *, sign: int) -> Bound | None:
    if one is None or other is None:
        return other if one is None else one
    mine, its = _rank(one), _rank(other)
    assert type(mine) is type(its)
    greater = mine > its  # type: ignore[operator]  # both are of one column, so of one type
    return one if greater == (sign > 0) else other


def _is_beyond(value: Bound | None, bound: Bound | None, *, sign: int) -> bool:
    """Returns True if `bound` is a lower bound of `value` (for `sign` -1) or an upper bound of `value` (for `sign` 1).
    Also returns True if `value` or `bound` is None, or if `bound` is NaN.
    """
    if value is None or bound is None or bound != bound:
        return True
    return _pick(value, bound, sign=sign) == bound


def _rank(value: Bound) -> object:
    # Python compares 0.0 and -0.0 as equal, so their sign bits are compared.
    if isinstance(value, float):
        return (value, struct.pack(">d", value)[0] < 0x80)
    return value
