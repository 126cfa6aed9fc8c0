"""Checks, column by column, that the rows of a file are within the bounds by which readers skip files.

Source: Paimon 2.0 SimpleStats, SimpleStatsEvolution.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from bucketline.conf.table.stats_mode import StatsKind, StatsMode
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import DataFileMeta, SimpleStats
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_ranges import stats_fields, written_fields
from bucketline.state.format.stats import (
    Bound,
    ColumnBounds,
    ColumnStats,
    collect_stats,
    is_within,
)
from bucketline.state.types.arrow import representable
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.logical import DataField


class StatsCheck:
    """Compares the statistics of one file's keys and values with the file's rows. The rows that `add` gets must have
    the columns `columns`.
    """

    def __init__(self, schema: TableSchema, stored: TableSchema, file: DataFileMeta) -> None:
        self._schema, self._stored, self._file = schema, stored, file
        self._of_rows: ColumnStats | None = None
        before = {f.id: f.type.as_nullable() for f in stored.fields}
        held = {f.id for f in written_fields(stored, file)}
        without = {f.id for f in stored.fields} - held
        self._fields = tuple(
            f for f in representable(schema.fields) if f.name not in schema.partition_keys and f.id not in without
        )
        self.columns = [f.name for f in self._fields]
        # If a column has another type now, the old bounds say nothing about the values that are read.
        self._compared = tuple(f for f in self._fields if before.get(f.id) == f.type.as_nullable())

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds the next rows of the file to the comparison."""
        of_batch = collect_stats(batch, self._compared, [StatsMode(StatsKind.FULL)] * len(self._compared))
        self._of_rows = of_batch if self._of_rows is None else self._of_rows.merge(of_batch)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Compares the recorded statistics with the rows that were added, which must be all rows of the file. Yields
        for each difference the name of the broken rule, and a message.
        """
        if self._of_rows is None:
            return
        rows = {f.id: b for f, b in zip(self._of_rows.fields, self._of_rows.columns, strict=True)}
        file, stored = self._file, self._stored
        values = stats_fields(stored, file)
        keys = stored.select(stored.trimmed_primary_key)
        for stats, fields in ((file.value_stats, values), (file.key_stats, keys)):
            yield from _compared(stats, fields, rows)


def _compared(
    stats: SimpleStats, fields: Sequence[DataField], rows: dict[int, ColumnBounds]
) -> Iterator[tuple[str, str]]:
    if stats.null_counts is None or len(stats.null_counts) != len(fields):
        return
    types = [f.type.as_nullable() for f in fields]
    try:
        lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    except CorruptFileError as e:
        yield "stats", f"its statistics cannot be read: {e.message}"
        return
    for field, low, high, nulls in zip(fields, lows, highs, stats.null_counts, strict=True):
        bounds = rows.get(field.id)
        if bounds is None:
            continue
        if nulls is not None and nulls != bounds.null_count:
            yield "stats", f"column {field.name} has {bounds.null_count} nulls, but its statistics say {nulls}"
        if not is_within(bounds, _bound(low), _bound(high)):
            message = (
                f"column {field.name} has values outside its statistics, so filters skip rows that they should find"
            )
            yield "stats", message


def _bound(value: object) -> Bound | None:
    return value  # type: ignore[return-value]  # the values of a row are bounds or None
