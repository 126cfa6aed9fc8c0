"""The one handle on a table that others are given: where it is, its newest schema, and what can be read of it.

Source: Paimon 2.0 FileStoreTable, SchemaManager.createTable.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.new_table import check_new_table, lift_keys
from bucketline.conf.read_options import check_read_options, is_read_option
from bucketline.state.determinism import SYSTEM_CLOCK, Clock
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.lsm.field_options import check_field_options
from bucketline.state.lsm.fold import fold_for
from bucketline.state.store.file_io import file_io_for
from bucketline.state.store.local_compact import compact_table
from bucketline.state.store.local_write import Data, write_table
from bucketline.state.store.scan import group_by_bucket
from bucketline.state.store.schemas import Schemas
from bucketline.state.store.table_handle import TableHandle, branch_path, newest_schema
from bucketline.state.store.table_read import Request, read_table
from bucketline.state.store.versions import Version
from bucketline.state.store.views import files_table, snapshots_table
from bucketline.state.types.arrow import logical_fields
from bucketline.state.types.columns_text import parse_columns
from bucketline.state.types.logical import DataField, DataType


@dataclass(frozen=True, slots=True)
class Table(TableHandle):
    """A table at a path, with the schema that was its newest when the handle was made (see `refreshed`)."""

    def to_arrow(
        self,
        columns: Iterable[str] | None = None,
        filter: pc.Expression | None = None,
        snapshot: Version | None = None,
        read_optimized: bool = False,
        *,
        changes_since: Version | None = None,
    ) -> pa.Table:
        """The rows as one table; arguments and errors are those of `to_batches`."""
        schema, rows = read_table(self, Request(columns, filter, snapshot, read_optimized, changes_since))
        return pa.Table.from_batches(rows, schema=schema)

    def to_batches(
        self,
        columns: Iterable[str] | None = None,
        filter: pc.Expression | None = None,
        snapshot: Version | None = None,
        read_optimized: bool = False,
        *,
        changes_since: Version | None = None,
    ) -> pa.RecordBatchReader:
        """The rows as a stream of record batches, in bounded memory.

        Buckets come in order; keys ascend inside a bucket, unless the table has deletion vectors.
        `columns` are names in the order wanted (None: all); `filter` is a condition on any columns of the table;
        `snapshot` is the id of the snapshot to read, or the name of a tag, with the schema of its time (None: what the
        options say, else the newest, with this handle's schema); `read_optimized` sees only what full compactions have
        written, without merging.
        `changes_since` (an id, 0 for the beginning, or a tag) asks for what was committed after that snapshot up to
        `snapshot` instead: rows as they were stored, commit by commit, with an int8 column `_row_kind` at the end. They
        come from the changelog files of tables that produce them, else from appended files; overwrites are no changes.
        Raises SchemaMismatchError for columns and filters that do not fit, OptionError for a snapshot that is not
        there, UnsupportedTableError for a table whose rows cannot be read rightly, CorruptFileError and StorageError.
        """
        schema, rows = read_table(self, Request(columns, filter, snapshot, read_optimized, changes_since))
        return pa.RecordBatchReader.from_batches(schema, rows)

    def write(self, data: Data, row_kinds: pa.Array | pa.ChunkedArray | str | None = None) -> int:
        """Commits the rows of `data` as one batch, with inline compaction as the options say; the newest snapshot's id.

        `data` is a Table, RecordBatch or RecordBatchReader, matched by column name. `row_kinds` is an int8 array with
        one kind a row (+I 0, -U 1, +U 2, -D 3) or the name of the column that holds them; a column `_row_kind` is found
        by itself. Raises SchemaMismatchError, OptionError, UnsupportedTableError before anything is committed,
        CommitConflictError and CommitOutcomeUnknownError from the commit.
        """
        return write_table(self, data, row_kinds)

    def compact(self, strategy: str = "full", partitions: Sequence[Mapping[str, object]] | None = None) -> int | None:
        """Compacts in this process; the new snapshot's id, None when there was nothing to do.

        `strategy` is "full" (everything to the last level) or "minor" (what the picker says); `partitions` restricts it
        to those that match one of the mappings from partition column to value. Raises OptionError for arguments that do
        not fit, CommitConflictError when another compaction was faster: nothing is lost then.
        """
        return compact_table(self, strategy, partitions)

    def snapshots(self) -> pa.Table:
        """The snapshots there are, oldest first: the columns of Paimon's $snapshots."""
        return snapshots_table(self.snapshot_store)

    def files(self) -> pa.Table:
        """The live data files of the newest snapshot: the columns of Paimon's $files."""
        newest = self.snapshot_store.latest()
        buckets = [] if newest is None else group_by_bucket(self.manifests.live_entries(newest))
        return files_table(self.path, self.table_schema, buckets, self.schema_store.get)


def open_table(path: str, *, options: Mapping[str, str] | None = None) -> Table:
    """The table at a path or URI, with its newest schema.

    `options` reach the storage (`s3.endpoint`, ...), and those about reading say what is seen of the table: `branch`,
    `scan.snapshot-id`, `scan.tag-name`, `scan.timestamp-millis`, `postpone.merge-on-read` and others (`read_options`).
    Raises UnsupportedTableError when there is no table, or one of a newer format; CorruptFileError, StorageError.
    """
    io, root = file_io_for(path, options)
    reading = {key: value for key, value in (options or {}).items() if is_read_option(key)}
    check_read_options(reading)
    table = Table(io, root, newest_schema(io, branch_path(root, reading)), reading)
    return replace(table, table_schema=table.with_read_options(table.table_schema))


def create_table(
    path: str,
    schema: pa.Schema | str,
    primary_key: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
) -> Table:
    """Makes the table at a path or URI, `<warehouse>/<db>.db/<table>`, and opens it; key columns become NOT NULL.

    `schema` is Arrow's or SQL column text (`columns_text`), which can also say what Arrow cannot, as VARCHAR(20).
    Raises OptionError for options and keys that do not fit or a table that exists, SchemaMismatchError for columns that
    Paimon has no type for, UnsupportedTableError on storage that cannot publish. Nothing has been written then.
    """
    rest, keys, partition_keys = lift_keys(dict(options or {}), primary_key, partition_by)
    columns = parse_columns(schema) if isinstance(schema, str) else logical_fields(schema)
    fields = _key_columns_not_null(columns, keys)
    check_new_table(
        rest,
        columns=[f.name for f in fields],
        nested=[f.name for f in fields if not f.type.is_atomic],
        primary_key=keys,
        partition_keys=partition_keys,
    )
    io, root = file_io_for(path, rest)
    io.require_publish()
    new = TableSchema(
        id=0,
        fields=fields,
        highest_field_id=max(_ids(fields), default=-1),
        partition_keys=partition_keys,
        primary_keys=keys,
        options=rest,
        comment=comment,
        time_ms=clock.now_ms(),
    )
    check_field_options(rest, [f.name for f in fields])
    if keys:
        fold_for(new)
    schemas = Schemas(io, root)
    if schemas.latest_id() is not None or not schemas.create(new):
        raise OptionError(f"there is a table at {root} already", key="path", path=root)
    return Table(io, root, new)


def _key_columns_not_null(fields: Sequence[DataField], keys: Sequence[str]) -> tuple[DataField, ...]:
    names = [f.name for f in fields]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise SchemaMismatchError(f"column {twice!r} is declared twice", column=twice)
    return tuple(DataField(f.id, f.name, f.type.not_null()) if f.name in keys else f for f in fields)


def _ids(fields: Iterable[DataField]) -> Iterator[int]:
    for f in fields:
        yield f.id
        yield from _ids_in(f.type)


def _ids_in(data_type: DataType) -> Iterator[int]:
    yield from _ids(data_type.fields)
    for child in (data_type.element, data_type.key, data_type.value):
        if child is not None:
            yield from _ids_in(child)
