"""Record-level expiry (option `record-level.expire-time`): which rows a compaction drops because they are too old, and
which files have such rows.

As in Paimon, only compactions remove expired rows, and readers see a row until then. Source: Paimon 2.0
RecordLevelExpire.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.table.expiry_options import RECORD_LEVEL_TIME_FIELD
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_ranges import stats_fields
from bucketline.state.types.binary_row import Timestamp, decode_row
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataField, TypeRoot

_STAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_MILLIS_FROM = 1_000_000_000_000
"""A BIGINT time of at least this value is in milliseconds, and a smaller one in seconds."""


@dataclass(frozen=True, slots=True)
class RowAge:
    """Rows whose `field` holds a time before `oldest_s` (seconds since the epoch) have expired."""

    field: DataField
    oldest_s: int

    def keeps(self, column: pa.Array) -> pa.Array:
        """Takes the values of the time column, and returns a mask of the rows that stay. A row whose time is null
        stays. The mask has no nulls.
        """
        return pc.greater_equal(_seconds(column, self.field.type.root), pa.scalar(self.oldest_s)).fill_null(True)

    def has_expired(self, file: DataFileMeta, schema_of: Callable[[int], TableSchema]) -> bool:
        """Returns True if the statistics of the file show that one of its rows has expired, and False if they do not
        show it. `schema_of` is a function that takes the id of a schema and returns the schema.
        """
        fields = stats_fields(schema_of(file.schema_id), file)
        if file.value_stats.null_counts is None or len(file.value_stats.null_counts) != len(fields):
            return False
        lows = decode_row(file.value_stats.min_values, [f.type.as_nullable() for f in fields])
        low = next((v for f, v in zip(fields, lows, strict=True) if f.id == self.field.id), None)
        if isinstance(low, Timestamp):
            return low.millis // 1000 < self.oldest_s
        if isinstance(low, int):
            return (low // 1000 if _is_in_millis(low, self.field.type.root) else low) < self.oldest_s
        return False


def row_age(schema: TableSchema, now_ms: int) -> RowAge | None:
    """Returns the limit of age for the rows of a table at the time `now_ms`; None if the table's rows do not expire.

    Raises OptionError if the time column does not exist, or if its type cannot hold a time.
    """
    expiry = schema.settings.expiry
    if expiry.rows_ms is None:
        return None
    field = _time_field(schema, expiry.row_time)
    if field is None:
        raise OptionError(
            f"You should set time field for record-level expire: '{RECORD_LEVEL_TIME_FIELD.key}'",
            key=RECORD_LEVEL_TIME_FIELD.key,
        )
    return RowAge(field, now_ms // 1000 - expiry.rows_ms // 1000)


def check_row_time(schema: TableSchema) -> None:
    """Raises OptionError if the option `record-level.time-field` names a column that does not exist or cannot hold a
    time.
    """
    _time_field(schema, schema.settings.expiry.row_time)


def _time_field(schema: TableSchema, name: str | None) -> DataField | None:
    if name is None:
        return None
    field = next((f for f in schema.fields if f.name == name), None)
    if field is None:
        raise OptionError(
            f"Can not find time field {name} for record level expire.", key=RECORD_LEVEL_TIME_FIELD.key, column=name
        )
    if field.type.root not in (TypeRoot.INT, TypeRoot.BIGINT, *_STAMPS):
        raise OptionError(
            "The record level time field type should be one of INT, BIGINT, or TIMESTAMP, but field type is "
            f"{field.type}.",
            key=RECORD_LEVEL_TIME_FIELD.key,
            column=name,
        )
    return field


def _seconds(column: pa.Array, root: TypeRoot) -> pa.Array:
    values = column.cast(pa.int64())
    if root in _STAMPS:
        return pc.divide(values, _PER_SECOND[column.type.unit])
    if root is TypeRoot.BIGINT:
        return if_else(pc.greater_equal(values, _MILLIS_FROM), pc.divide(values, 1000), values)
    return values


def _is_in_millis(value: int, root: TypeRoot) -> bool:
    return root is TypeRoot.BIGINT and value >= _MILLIS_FROM
