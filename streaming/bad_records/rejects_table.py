"""A table for bad records. Each bad record is one row; the primary key is (query_id, table_name, batch_id, input,
number).

A repeated batch writes the same keys again. If the table or the settings of the job have changed meanwhile, a record
may no longer be bad. The repeated batch then deletes the row that the earlier attempt has written for this record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.sink_options import BAD_RECORDS_TABLE
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.determinism import SYSTEM_WORLD
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.catalog.new_schema import check_table_path, plan_schema
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.table_handle import TableHandle, create_handle, open_handle
from bucketline.state.store.read.table_read import ReadRequest, read_whole
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.write import write_table
from bucketline.state.types.columns_text import columns_text, parse_columns
from bucketline.state.types.row_kind import RowKind
from bucketline.streaming.bad_records.place import BatchName, Rejects
from bucketline.streaming.bad_records.runs import is_begun, note_batch

KEY = ("query_id", "table_name", "batch_id", "input", "number")
REPLAY = "replay"
COLUMNS = (
    "query_id STRING NOT NULL, table_name STRING NOT NULL, batch_id BIGINT NOT NULL, input STRING NOT NULL, "
    "number INT NOT NULL, code STRING, reason STRING, source_table STRING, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP_LTZ(6), key BYTES, value BYTES, headers ARRAY<ROW<key STRING, value BYTES>>, replay BIGINT"
)
"""`query_id` is the commit user of the writer, `table_name` the table that the record was for, `input` a digest of the
input of the batch. `number` counts the bad records of the batch and the table. `replay` says which batch of which
replay has taken the record; it is null before a replay has taken the record.
"""
OPTIONS = {"bucket": "1"}
COMMENT = "Bad records of streaming jobs, written by bucketline"
"""The options and the comment of a table that is created for bad records."""


@dataclass(frozen=True, slots=True)
class RejectsTable:
    """A table of bad records at a path or URI; `storage` are the options to reach its storage."""

    path: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.path

    def prepare(self) -> None:
        """Creates the table if it is missing. Raises OptionError if the table cannot take bad records."""
        self.open()

    def open(self) -> TableHandle:
        """Opens the table, and creates it if it is missing. Raises OptionError if the table cannot take bad records."""
        io, root = file_io_for(self.path, self.storage)
        if Schemas(io, root).latest_id() is None:
            check_table_path(self.path)
            new = plan_schema(
                COLUMNS, KEY, (), OPTIONS, COMMENT, storage_options=self.storage, time_ms=SYSTEM_WORLD.clock.now_ms()
            )
            create_handle(self.path, new, exist_ok=True, world=SYSTEM_WORLD)
        table = open_handle(self.path, self.storage)
        check_rejects_table(table.table_schema, self.path)
        return table

    def put(self, rejects: Rejects) -> str:
        """Stores the bad records of a batch with one commit, and returns where they are; see `BadRecordsPlace.put`.
        There is no commit if nothing changes.
        """
        due = [(batch, rows) for batch, rows in rejects if rows.num_rows or is_begun(self.path, batch)]
        if due:
            table = self.open()
            known = read_whole(table, ReadRequest(("table_name", "number"), _of_batches([b for b, _ in due])))
            changes = pa.concat_tables([_changes(rows, batch, known) for batch, rows in due])
            if changes.num_rows:
                write_table(table, _with_all(table, changes))
        for batch, _ in rejects:
            note_batch(self.path, batch)
        return self.path


def check_rejects_table(schema: TableSchema, name: str) -> None:
    """Checks that a table can take bad records. Raises OptionError with the reason if it cannot."""
    own = {f.name: f.type for f in schema.fields}
    for f in parse_columns(COLUMNS):
        found = own.get(f.name)
        if found is None or found.as_nullable() != f.type.as_nullable():
            _refuse(name, f"it has {'no column' if found is None else f'{found} for'} {f.name} {f.type.as_nullable()}")
    if set(schema.primary_keys) != set(KEY):
        _refuse(name, f"its primary key is ({', '.join(schema.primary_keys)}), not ({', '.join(KEY)})")
    other = [f.name for f in schema.fields if not f.type.nullable and f.name not in KEY]
    if other:
        _refuse(name, f"its column {other[0]} is NOT NULL, but bad records may have a null there")
    merge = schema.settings.merge
    if not merge.engine.keeps_newest or merge.ignore_delete or merge.sequence_fields:
        _refuse(
            name,
            "it does not keep the newest row of each key (leave out merge-engine, ignore-delete and sequence.field)",
        )


def _refuse(name: str, why: str) -> None:
    raise OptionError(
        f"{BAD_RECORDS_TABLE.key}: {name} cannot hold bad records: {why}. Set a table that does not exist, which is "
        f"then created, or create a table with PRIMARY KEY ({', '.join(KEY)}) and "
        f"{columns_text(parse_columns(COLUMNS))}",
        key=BAD_RECORDS_TABLE.key,
        path=name,
    )


def _of_batches(batches: Sequence[BatchName]) -> pc.Expression:
    """Returns a filter that keeps the stored bad records of one batch. `batches` has one name for each table of the
    batch; all names have the same user, batch id and digest.
    """
    first = batches[0]
    same_batch = (pc.field("batch_id") == first.batch_id) & (pc.field("input") == (first.digest or ""))
    same_writer = pc.field("query_id") == first.user
    return same_writer & same_batch & pc.field("table_name").isin([batch.table for batch in batches])


def _with_all(table: TableHandle, changes: pa.Table) -> pa.Table:
    """Returns the rows with all columns of the table that stores bad records. The table may have more columns than bad
    records need: such a column is null.
    """
    for own in table.schema:
        if own.name not in changes.column_names:
            changes = changes.append_column(own.name, pa.nulls(changes.num_rows, own.type))
    return changes


def _changes(rejects: pa.Table, batch: BatchName, known: pa.Table) -> pa.Table:
    """Returns the rows to write for a batch's bad records, and deletes of stored rows that these rows do not replace.
    `known` has the rows that an earlier attempt at the batch has stored.
    """
    gone = np.asarray(known.filter(pc.equal(known["table_name"], batch.table))["number"])
    gone = gone[gone >= rejects.num_rows]
    numbers = np.concatenate([np.arange(rejects.num_rows), gone]).astype(np.int32)
    count = len(numbers)
    kinds = np.where(np.arange(count) < rejects.num_rows, int(RowKind.INSERT), int(RowKind.DELETE)).astype(np.int8)
    columns: dict[str, Any] = {
        "query_id": pa.repeat(batch.user, count),
        "table_name": pa.repeat(batch.table, count),
        "batch_id": pa.repeat(pa.scalar(batch.batch_id, pa.int64()), count),
        "input": pa.repeat(batch.digest or "", count),
        "number": pa.array(numbers),
    }
    for name in rejects.schema.names:
        kind = rejects.schema.field(name).type
        columns[name] = pa.chunked_array([*rejects[name].chunks, pa.nulls(len(gone), kind)], kind)
    columns[REPLAY] = pa.nulls(count, pa.int64())
    columns[ROW_KIND_COLUMN] = pa.array(kinds)
    return pa.table(columns)
