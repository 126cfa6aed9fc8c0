"""Checks that the timestamps that were read from an ORC file are the instants that the file's writer meant.

Paimon's older form of timestamps with local time zone depends on the time zone of the writer, which is not recorded in
a file without other timestamps. A file without a recorded time zone is read as if it was written in UTC. The bounds in
the manifest do not depend on a time zone: if a timestamp is outside them, the file was written in another time zone.

Source: Paimon 2.0 OrcFileFormat (`orc.timestamp-ltz.legacy.type`), OrcSimpleStatsExtractor.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import extension_of
from bucketline.state.format.row_ranges import stats_fields
from bucketline.state.types.binary_row import Timestamp, decode_row
from bucketline.state.types.logical import TypeRoot

_TOLERANCE_MS = 60_000
"""The tolerance, in milliseconds, for values outside the bounds. The difference between two time zones is never this
small, and bounds are rounded by less than this.
"""


def instant_bounds(meta: DataFileMeta, stored: TableSchema) -> Mapping[str, tuple[int, int]]:
    """Returns the bounds of an ORC file's columns of timestamps with local time zone: the smallest and the largest
    value, in milliseconds since 1970, with some tolerance. Columns without bounds are left out.
    """
    if extension_of(meta.file_name) != "orc":
        return {}
    fields = stats_fields(stored, meta)
    counts = meta.value_stats.null_counts
    if counts is None or len(counts) != len(fields):
        return {}
    types = [f.type.as_nullable() for f in fields]
    lows, highs = decode_row(meta.value_stats.min_values, types), decode_row(meta.value_stats.max_values, types)
    bounds = {}
    for field, low, high in zip(fields, lows, highs, strict=True):
        if field.type.root is not TypeRoot.TIMESTAMP_LTZ:
            continue
        if isinstance(low, Timestamp) and isinstance(high, Timestamp):
            bounds[field.name] = (low.millis - _TOLERANCE_MS, high.millis + _TOLERANCE_MS)
    return bounds


def check_instants(column: pa.Array, name: str, bounds: tuple[int, int]) -> None:
    """Raises UnsupportedTableError that names the column, if the column has values outside `bounds`."""
    if not pa.types.is_timestamp(column.type):
        return
    per_milli = {"ms": 1, "us": 1_000, "ns": 1_000_000}[column.type.unit]
    seen = pc.min_max(column.cast(pa.int64())).as_py()
    if seen["min"] is None:
        return
    if seen["min"] < bounds[0] * per_milli or seen["max"] > bounds[1] * per_milli:
        raise UnsupportedTableError(
            f"column {name}: the file was written in an unknown time zone: it holds timestamps outside the bounds "
            "in the manifest",
            column=name,
        )
