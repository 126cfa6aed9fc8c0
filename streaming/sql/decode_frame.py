"""`bl.decode`: turns a DataFrame of records (for example from Kafka) into rows, for use in your own `foreachBatch`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from bucketline.conf.column_options import COLUMN_OPTIONS, column_options
from bucketline.conf.errors import OptionError
from bucketline.conf.job import SOURCE_DECODE, BadRecords, RecordFormat
from bucketline.conf.option import UNLIMITED, did_you_mean, parse_enum
from bucketline.conf.sources.message_options import (
    MESSAGE_OPTIONS,
    TRUNCATE,
    TYPES,
    UNAVAILABLE_KEY,
    Truncate,
    Unavailable,
    message_options,
)
from bucketline.conf.sources.registry_options import REGISTRY_OPTIONS, registry_options
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.determinism import SYSTEM_WORLD
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.state.store.table.table import Table, handle_of
from bucketline.state.types.arrow import arrow_schema
from bucketline.streaming.bad_records.place import described
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.rejects import REJECTS_SCHEMA, RejectedRecordsError
from bucketline.streaming.decode.step_for_table import decode_step, step_for
from bucketline.streaming.reader.spark_rows import fit, spark_arrow, spark_schema
from bucketline.streaming.worker import in_worker

BAD_RECORD_COLUMN = "_bad_record"
_FAIL, _KEEP = "fail", "keep"
_WHAT_HELPS = f"Correct the source; or set bad_records='{_KEEP}', and look at the column {BAD_RECORD_COLUMN}"
_ZONE = "spark.sql.session.timeZone"
_KNOWN = (*MESSAGE_OPTIONS, *COLUMN_OPTIONS, *REGISTRY_OPTIONS.values())


def decode(
    frame: Any,
    format: str,
    columns: str | Table,
    primary_key: Sequence[str] = (),
    *,
    bad_records: str = "fail",
    options: Mapping[str, str] | None = None,
) -> Any:
    """Returns the rows that are in a DataFrame of records, as a job with `decode: format` decodes them. The column
    `_row_kind` holds the row kinds.

    `frame` has the columns of Spark's Kafka source, or at least `value`; it may be a stream. `columns` is a text with
    columns in SQL, or the table that the rows are for. A table also says the primary key, so `primary_key` must be
    left out. `options` are the options of a job file for messages and columns (`types.created`, `source.registry.url`,
    `select`, `where`, ...). With `bad_records="keep"` a bad record becomes a row of nulls, with the record and the
    reason in the column `_bad_record`; this column is null in all other rows. With `"fail"` the first bad record ends
    the query.

    Raises OptionError for options that do not fit. Raises SchemaMismatchError or UnsupportedTableError if no record
    could become a row with these columns.
    """
    if bad_records not in (_FAIL, _KEEP):
        raise OptionError(f"bad_records is {bad_records!r}; use '{_FAIL}' or '{_KEEP}'", key="bad_records")
    schema = _schema_of(columns, primary_key)
    step = replace(_step(format, schema, bad_records, options or {}), zone=frame.sparkSession.conf.get(_ZONE))
    task = _DecodeTask(step_for(step, schema), keeps=bad_records == _KEEP)
    if "value" not in frame.columns:
        raise OptionError(
            f"the records must be in a column 'value'; the columns are {', '.join(frame.columns)}", key="frame"
        )
    read = frame.select(*(name for name in task.step.input_columns if name in frame.columns))
    return read.mapInArrow(in_worker(task), spark_schema(task.columns, {}))


def _schema_of(columns: str | Table, primary_key: Sequence[str]) -> TableSchema:
    if isinstance(columns, Table):
        if primary_key:
            raise OptionError(
                "the primary key is taken from the table; leave primary_key out, or give columns as SQL text",
                key="primary_key",
            )
        return handle_of(columns).table_schema
    options = {"bucket": "1"} if primary_key else {}
    now_ms = SYSTEM_WORLD.clock.now_ms()
    return plan_schema(columns, primary_key, (), options, None, storage_options={}, time_ms=now_ms)


def _step(format: str, schema: TableSchema, bad_records: str, options: Mapping[str, str]) -> DecodeStep:
    known = {option.key for option in _KNOWN}
    for key in options:
        if key not in known and not key.startswith(TYPES):
            raise OptionError(f"unknown option {key!r} of decode{did_you_mean(key, known)}", key=key)
    messages = message_options(options)
    for option, is_set in (
        (TRUNCATE, messages.truncate is Truncate.APPLY),
        (UNAVAILABLE_KEY, messages.unavailable is Unavailable.KEEP),
    ):
        if is_set:
            raise OptionError(
                f"{option.key} = {options[option.key]} needs the rows of a table, which bl.decode does not read; use a "
                "job file",
                key=option.key,
            )
    allowed = BadRecords("", UNLIMITED) if bad_records == _KEEP else BadRecords(None, 0)
    try:
        kind = parse_enum(RecordFormat)(format)
    except OptionError as e:
        raise e.reworded(f"format: {e.message}") from e
    step = decode_step(kind, schema, allowed, messages, registry_options(options), column_options(options))
    if step is None:
        raise OptionError(
            "format is 'none', but decode needs the format of the messages, for example 'json'", key=SOURCE_DECODE.key
        )
    return step


@dataclass(frozen=True, slots=True)
class _DecodeTask:
    """The function that a Spark task calls to decode records to rows. If `keeps` is true, a bad record becomes a row
    of nulls, with the record and the reason in an additional column.
    """

    step: DecodeStep
    keeps: bool

    @property
    def columns(self) -> pa.Schema:
        """Returns the schema of the rows, in the table's types."""
        own = arrow_schema(self.step.fields).append(pa.field(ROW_KIND_COLUMN, pa.int8(), nullable=False))
        if not self.keeps:
            return own
        bad = pa.field(BAD_RECORD_COLUMN, pa.struct(list(REJECTS_SCHEMA)))
        return pa.schema([*(f.with_nullable(True) for f in own), bad])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        target = spark_arrow(self.columns)
        for batch in batches:
            for rows in self._rows(pa.Table.from_batches([batch])).combine_chunks().to_batches():
                yield fit(rows, target)

    def _rows(self, records: pa.Table) -> pa.Table:
        decoded = self.step(records)
        rows = decoded.rows
        if ROW_KIND_COLUMN not in rows.column_names:
            rows = rows.append_column(ROW_KIND_COLUMN, pa.array(np.zeros(rows.num_rows, np.int8)))
        bad = REJECTS_SCHEMA.empty_table()
        if decoded.rejects is not None:
            bad = pa.ipc.open_stream(decoded.rejects.blob).read_all()
        if not self.keeps:
            if bad.num_rows:
                raise RejectedRecordsError(f"a bad record: {described(bad)}. {_WHAT_HELPS}", rejected=bad.num_rows)
            return rows.cast(self.columns)
        kept = pa.chunked_array(bad.to_struct_array().chunks, pa.struct(list(REJECTS_SCHEMA)))
        columns = [
            pa.chunked_array([*rows[f.name].chunks, pa.nulls(bad.num_rows, f.type)], f.type)
            if f.name != BAD_RECORD_COLUMN
            else pa.chunked_array([pa.nulls(rows.num_rows, f.type), *kept.chunks], f.type)
            for f in self.columns
        ]
        return pa.Table.from_arrays(columns, schema=self.columns)
