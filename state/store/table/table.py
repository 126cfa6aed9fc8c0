"""`Table`: what users hold, with one method for each operation and nothing of what is behind it.

Source: Paimon 2.0 FileStoreTable, SchemaManager.createTable.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Self

import pyarrow as pa

from bucketline.conf.advice import advise_read
from bucketline.conf.open_options import open_options
from bucketline.state.commit.schema_change import (
    AddColumn,
    DropColumn,
    RenameColumn,
    SchemaChange,
    SetOption,
    UnsetOption,
)
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.sql.compute.conditions import Filter
from bucketline.state.store.catalog.alter import alter_table, column_changes, column_path, column_type, position_of
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.new_schema import check_table_path, plan_schema
from bucketline.state.store.catalog.table_handle import TableHandle, create_handle, open_handle
from bucketline.state.store.catalog.tell_once import tell_all
from bucketline.state.store.catalog.versions import Version
from bucketline.state.store.doctor.examine import examine
from bucketline.state.store.doctor.finding import Finding
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.maintenance.expiry import ExpireResult
from bucketline.state.store.maintenance.orphans import OrphanResult, remove_orphan_files
from bucketline.state.store.read.table_read import Request, live_files, read_table, read_whole
from bucketline.state.store.read.views import snapshots_table
from bucketline.state.store.system.tables import system_table
from bucketline.state.store.table.compact import compact_table
from bucketline.state.store.table.maintenance import (
    branch_table,
    expire_table,
    expire_table_partitions,
    forward_table,
    mark_table_done,
    milliseconds,
    roll_back_table,
    tag_table,
    tags_table,
    unbranch_table,
    untag_table,
)
from bucketline.state.store.table.merge import merge_rows
from bucketline.state.store.table.overwrite import drop_partitions, overwrite_table, truncate_table
from bucketline.state.store.table.rescale import rescale_table
from bucketline.state.store.table.row_changes import delete_rows, update_rows
from bucketline.state.store.table.write import Data, SpreadData, write_table
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.types.logical import DataType


@dataclass(frozen=True, repr=False)
class Table:
    """A table at a path, with the schema that was its newest when it was opened (see `refreshed`).

    `open_table` and `create_table` make it.
    """

    _handle: TableHandle

    def __repr__(self) -> str:
        return f"Table({self.uri!r})"

    @property
    def path(self) -> str:
        """The path of the table's folder."""
        return self._handle.path

    @property
    def uri(self) -> str:
        """The path or URI that opens the table in any process, whatever its working directory."""
        return self._handle.uri

    @property
    def schema(self) -> pa.Schema:
        """The columns, in order, as Arrow fields."""
        return self._handle.schema

    @property
    def options(self) -> dict[str, str]:
        """The table's options, with those that it was opened with."""
        return self._handle.options

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of the primary key; empty for append tables."""
        return self._handle.primary_key

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return self._handle.partition_by

    @property
    def comment(self) -> str | None:
        """The table's comment."""
        return self._handle.comment

    def refreshed(self) -> Self:
        """The same table with its newest schema."""
        return replace(self, _handle=self._handle.refreshed())

    def to_arrow(
        self,
        columns: Iterable[str] | None = None,
        filter: Filter | None = None,
        snapshot: Version | None = None,
        read_optimized: bool = False,
        *,
        changes_since: Version | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """The rows as one table; parts of it are read at the same time, at most eight, one on each core. Arguments,
        order of rows and errors are those of `to_batches`.
        """
        return read_whole(self._handle, Request(columns, filter, snapshot, read_optimized, changes_since, limit))

    def to_batches(
        self,
        columns: Iterable[str] | None = None,
        filter: Filter | None = None,
        snapshot: Version | None = None,
        read_optimized: bool = False,
        *,
        changes_since: Version | None = None,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """The rows as a stream of record batches, in bounded memory.

        Buckets come in order; keys ascend inside a bucket, unless the table has deletion vectors.
        `columns` are names in the order wanted (None: all). `filter` is a condition on any columns of the table, as an
        Arrow expression or as SQL text (`amount > 7.5 AND name LIKE 'a%'`). At most `limit` rows come. `snapshot` is
        the id of a snapshot or the name of a tag, read with the schema of its time; by default the snapshot that the
        options name, else the newest with this handle's schema. `read_optimized` reads only the last level, without
        merging. `changes_since` (an id, 0 for the beginning, or a tag) reads what was committed after that snapshot, up
        to `snapshot`, instead: rows as they were stored, commit by commit, with an int8 column `_row_kind` at the end.
        They come from changelog files if the table has them, else from appended files; overwrites give no changes.
        Raises SchemaMismatchError for columns and filters that do not fit, OptionError for a snapshot that does not
        exist, UnsupportedTableError for a table that cannot be read, CorruptFileError and StorageError.
        """
        schema, rows = read_table(
            self._handle, Request(columns, filter, snapshot, read_optimized, changes_since, limit)
        )
        return pa.RecordBatchReader.from_batches(schema, rows)

    def write(self, data: Data, row_kinds: pa.Array | pa.ChunkedArray | str | None = None) -> WriteResult:
        """Commits the rows of `data` as one batch, with inline compaction as the options say. Returns the newest
        snapshot's id, with `.visible` and `.dropped` (`WriteResult`).

        `data` is a Table, RecordBatch or RecordBatchReader, matched by column name. `row_kinds` is an int8 array with
        one row kind per row (+I 0, -U 1, +U 2, -D 3), or the name of the column that has them; by default the column
        `_row_kind`, if there is one. Raises SchemaMismatchError, OptionError, UnsupportedTableError before anything is
        committed, CommitConflictError and CommitOutcomeUnknownError from the commit; CommittedNotVisibleError after it,
        if readers do not see the rows yet: they are in the table, and must not be written again.
        """
        return write_table(self._handle, data, row_kinds)

    def delete(self, filter: Filter, *, engine: Engine = LOCAL_ENGINE) -> WriteResult:
        """Deletes the rows that pass the filter, in one commit. Returns the newest snapshot's id,
        unchanged where no row passes.

        `filter` is an Arrow expression or SQL text. Where another writer changed the same keys since they were read,
        the delete is planned again, a few times at most. Raises UnsupportedTableError for tables in which a delete does
        not remove a row, CommitConflictError where others keep coming first, and as `write`.
        """
        return delete_rows(self._handle, filter, engine=engine)

    def update(
        self, filter: Filter, assignments: Mapping[str, object], *, engine: Engine = LOCAL_ENGINE
    ) -> WriteResult:
        """Changes columns of the rows that pass the filter, in one commit. Returns as `delete`.

        `assignments` maps columns to plain values, to SQL (`bl.expr("amount * 2")`) or to Arrow expressions, over the
        columns as they were. Columns of the primary key stay. Raises UnsupportedTableError for merge engines that
        combine rows, SchemaMismatchError for what cannot be set, computed or stored, and as `delete`.
        """
        return update_rows(self._handle, filter, assignments, engine=engine)

    def merge(
        self,
        source: SpreadData,
        on: Sequence[str],
        when_matched: Mapping[str, object] | str | None = None,
        when_not_matched: str | None = "insert",
        *,
        engine: Engine = LOCAL_ENGINE,
    ) -> WriteResult:
        """Joins the rows of `source` to the table's by the columns `on`, and changes the table in one commit. Returns
        as `delete`.

        `when_matched` is what becomes of a row of the table that a source row matches: new values as in `update`, over
        the columns of both (`bl.expr("source.amount")`), or `"delete"`, or None: it stays. `when_not_matched` =
        `"insert"` writes the source rows that match no row; None leaves them out. With
        `engine=bucketline.spark_engine(spark)`, Spark's tasks join and write, and `source` may be a Spark DataFrame.
        Raises SchemaMismatchError where several source rows match one row, and as `update` and `delete`.
        """
        return merge_rows(self._handle, source, on, when_matched, when_not_matched, engine=engine)

    def overwrite(
        self,
        data: SpreadData,
        partition: Mapping[str, object] | None = None,
        row_kinds: pa.Array | pa.ChunkedArray | str | None = None,
        *,
        engine: Engine = LOCAL_ENGINE,
    ) -> WriteResult:
        """Replaces the rows of partitions by those of `data`. Returns the newest snapshot's id, unchanged where nothing
        is replaced.

        `partition` maps partition columns to values: matching partitions are replaced, and are empty afterwards if they
        get no rows. Without it, those that get rows are replaced, or the whole table if it has no partitions or
        `dynamic-partition-overwrite` is false. `data` and `row_kinds` as in `write`; no changelog is written. With
        `engine=bucketline.spark_engine(spark)`, Spark's tasks write, and `data` may be a Spark DataFrame. Raises
        SchemaMismatchError, OptionError, UnsupportedTableError before anything is committed, and as `write`.
        """
        return overwrite_table(self._handle, data, partition, row_kinds, engine=engine)

    def truncate(self) -> WriteResult:
        """Removes all rows, in one commit; no changelog is written. Returns the newest snapshot's id."""
        return truncate_table(self._handle)

    def drop_partitions(self, partitions: Sequence[Mapping[str, object]]) -> WriteResult:
        """Removes all rows of the partitions that match one of the mappings from partition column to value, in one
        commit; no changelog is written. Returns the newest snapshot's id, unchanged where none matches."""
        return drop_partitions(self._handle, partitions)

    def compact(
        self,
        strategy: str = "full",
        partitions: Sequence[Mapping[str, object]] | None = None,
        *,
        order_by: Sequence[str] | None = None,
        order_strategy: str | None = None,
        engine: Engine = LOCAL_ENGINE,
    ) -> int | None:
        """Compacts; the new snapshot's id, None when there was nothing to do.

        `engine` does the work: this process, or Spark's tasks (`bucketline.spark_engine(spark)`). `strategy` is "full"
        (everything to the last level) or "minor" (what the picker says); `partitions` restricts it to those that match
        one of the mappings from partition column to value. Postponed rows are moved to their buckets on the way.
        In an append table without buckets `order_by` names columns and `order_strategy` says how rows are sorted by
        them while all files are rewritten: "order", "zorder" or "hilbert". Spark's tasks sort a range each.
        Raises OptionError for arguments that do not fit, UnsupportedTableError for a table that is not sorted,
        CommitConflictError when another compaction was faster: nothing is lost then.
        """
        return compact_table(
            self._handle, strategy, partitions, order_by=order_by, order_strategy=order_strategy, engine=engine
        )

    def rescale(
        self,
        bucket_num: int,
        partitions: Sequence[Mapping[str, object]] | None = None,
        *,
        engine: Engine = LOCAL_ENGINE,
    ) -> int | None:
        """Gives partitions of a fixed or postpone table another number of buckets.

        Returns the new snapshot's id, None when there was nothing to do. `partitions` and `engine` as in `compact`:
        those partitions are written anew whatever count they have, as Paimon does; without it all that have another
        count are, and a fixed table's `bucket` option follows. Postponed rows stay where they are. Raises OptionError,
        UnsupportedTableError, and CommitConflictError when a partition was changed meanwhile.
        """
        return rescale_table(self._handle, bucket_num, partitions, engine=engine)

    def snapshots(self) -> pa.Table:
        """All snapshots, oldest first, with the columns of Paimon's $snapshots."""
        return snapshots_table(self._handle.snapshot_store)

    def files(self) -> pa.Table:
        """The live data files of the snapshot that the options name, else the newest: the columns of Paimon's $files.

        Files of a fallback branch are among them only for partitions of which this branch has files, but shows none.
        """
        return live_files(self._handle)

    def system(self, name: str) -> pa.Table:
        """A system table, with Paimon's columns: `snapshots`, `files`, `schemas`, `options`, `tags`, `branches`,
        `consumers`, `manifests`, `partitions`, `buckets`, `aggregation_fields`, `table_indexes`, `statistics`, `ro`,
        `audit_log` or `binlog`. Raises OptionError for another name."""
        schema, rows = system_table(self._handle, name)
        return pa.Table.from_batches(rows, schema=schema)

    def tags(self) -> pa.Table:
        """All tags, by snapshot, with the columns of Paimon's $tags; `time_retained` is a duration."""
        return tags_table(self._handle)

    def create_tag(self, name: str, snapshot: int | None = None, retained: timedelta | None = None) -> None:
        """Names a snapshot (None: the newest) and keeps its files until the tag is deleted, or for `retained`
        (None: `tag.default-time-retained`, if the table says so)."""
        tag_table(self._handle, name, snapshot, retained)

    def delete_tag(self, name: str) -> bool:
        """Removes a tag and the files that only it needs; False when there is none."""
        return untag_table(self._handle, name)

    def branches(self) -> list[str]:
        """The names of the branches beside `main`."""
        return Branches(self._handle.io, self.path).known()

    def create_branch(self, name: str, tag: str | None = None) -> None:
        """Creates a branch: empty, or at a tag. Open it with the option `branch`, to read and to write it."""
        branch_table(self._handle, name, tag)

    def delete_branch(self, name: str) -> bool:
        """Removes a branch; False when there is none. `remove_orphan_files` finds the files that only it used."""
        return unbranch_table(self._handle, name)

    def fast_forward(self, branch: str) -> int:
        """Makes the branch's history that of the table itself, and returns the id of its newest snapshot.

        What the table has beyond the last snapshot that both share is replaced; so are its schemas, and tags of the
        same name. The branch stays. No writer of the table may be active. Raises OptionError for a branch that is not
        there or has no snapshot.
        """
        return forward_table(self._handle, branch)

    def rollback_to(self, target: int | str) -> int:
        """Makes a snapshot, by id or tag, the newest again; newer snapshots and their tags are removed, and the tag of
        a stream moves back. No writer may be active."""
        return roll_back_table(self._handle, target)

    def expire_snapshots(
        self,
        *,
        retain_min: int | None = None,
        retain_max: int | None = None,
        older_than: timedelta | None = None,
        limit: int | None = None,
    ) -> ExpireResult:
        """Removes old snapshots and the files that only they needed; None means: as the table's options say. Tags whose
        time is over go too, and changelogs that have outlived their snapshots for as long as the options say.

        `limit` is the most snapshots to remove (None: all that may be removed). Files of tags, branches and consumers
        stay.
        """
        return expire_table(
            self._handle, retain_min=retain_min, retain_max=retain_max, older_than=older_than, limit=limit
        )

    def expire_partitions(self, older_than: timedelta | None = None) -> tuple[str, ...]:
        """Drops the partitions that have expired, in one commit or several, and returns their folders' names.

        By the options `partition.expiration-*` and `partition.timestamp-*` of the table; `older_than` replaces
        `partition.expiration-time`. Writers do this as well, every `partition.expiration-check-interval`. Raises
        OptionError where nothing says when partitions expire, and as `overwrite`.
        """
        return expire_table_partitions(self._handle, older_than=older_than)

    def mark_done(self, partitions: Sequence[Mapping[str, object]] | None = None) -> tuple[str, ...]:
        """Marks partitions as done and returns their folders' names: by a `_SUCCESS` file in each folder, a report to a
        server, or in the REST catalog, as `partition.mark-done-action` says.

        `partitions` as in `compact`; None: all. Streams do this as well, by `partition.idle-time-to-done`. Raises
        OptionError for another action, StorageError for a mark that was not accepted, UnsupportedTableError where the
        catalog takes none.
        """
        return mark_table_done(self._handle, partitions)

    def remove_orphan_files(
        self, dry_run: bool = True, older_than: timedelta = timedelta(days=1), *, no_writers: bool = False
    ) -> OrphanResult:
        """Finds the files that no snapshot, tag or branch names, and removes them unless it is a dry run.

        Only those that have not changed for `older_than`. Of what is removed that is at least a day, since files that a
        writer has made and not committed yet look the same. `no_writers` lifts that limit. Danger: if anybody writes to
        the table after all, Paimon or a job that is paused included, its next snapshot can name files that are gone,
        and rows are lost. Raises FilesTooYoungError for less than a day without `no_writers` (a dry run takes any age),
        UnsupportedTableError for storage that does not tell when a file was written, CorruptFileError when it is not
        known what is in use.
        """
        age_ms = milliseconds(older_than, "older_than")
        return remove_orphan_files(self._handle, dry_run=dry_run, older_than_ms=age_ms, no_writers=no_writers)

    def doctor(self, rows: bool = False) -> list[Finding]:
        """Finds what is broken in this table, errors first. `rows` also reads the live rows. Changes nothing."""
        return examine(self._handle, rows=rows)

    def alter(self, *changes: SchemaChange) -> Self:
        """The table after changes of its schema (`schema_change`), all of which make one version of it.

        Raises SchemaMismatchError for a column that cannot be changed so, OptionError for an option.
        """
        return replace(self, _handle=alter_table(self._handle, changes))

    def add_column(
        self,
        name: str | Sequence[str],
        type: str | pa.DataType | DataType,
        *,
        comment: str | None = None,
        position: str | None = None,
    ) -> Self:
        """Adds a nullable column; does nothing if it exists with this type.

        `name` is a column, or the path to a field in one (`["address", "zip"]`; `element` and `value` lead into
        collections); `type` is SQL text, as `DECIMAL(9, 2)`; `position` is `first` or `after <column>`.
        """
        return self.alter(
            AddColumn(column_path(name), column_type(type), comment=comment, position=position_of(position))
        )

    def drop_column(self, name: str | Sequence[str]) -> Self:
        """Drops a column that is not part of a key."""
        return self.alter(DropColumn(column_path(name)))

    def rename_column(self, name: str | Sequence[str], to: str) -> Self:
        """Renames a column that is not a partition column; existing rows keep their values."""
        return self.alter(RenameColumn(column_path(name), to))

    def alter_column(
        self,
        name: str | Sequence[str],
        *,
        type: str | pa.DataType | DataType | None = None,
        nullable: bool | None = None,
        comment: str | None = None,
        position: str | None = None,
    ) -> Self:
        """Changes the properties that are not None. A type may only change to one that holds every old value; an
        empty comment removes it."""
        data_type = None if type is None else column_type(type)
        changes = column_changes(
            column_path(name), data_type=data_type, nullable=nullable, comment=comment, position=position
        )
        return self.alter(*changes)

    def set_options(self, options: Mapping[str, str]) -> Self:
        """Sets options of the table; those that its files depend on cannot change once it has snapshots."""
        return self.alter(*(SetOption(key, value) for key, value in options.items()))

    def unset_options(self, *keys: str) -> Self:
        """Sets options back to their defaults."""
        return self.alter(*map(UnsetOption, keys))


def handle_of(table: Table) -> TableHandle:
    """The stores and settings behind a table, for what works on it inside this package."""
    return table._handle


def open_table(
    path: str,
    *,
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    world: World = SYSTEM_WORLD,
) -> Table:
    """The table at a path or URI, with its newest schema.

    `options` are read options: `branch`, `scan.snapshot-id`, `scan.tag-name`, `scan.timestamp-millis`,
    `postpone.merge-on-read` and others; and options of the sink, for writing and compacting through this handle:
    `visibility-timeout`, `merge-memory`, `local-directory`. `storage_options` (`s3.endpoint`, ...) say how its storage
    is reached, and are never stored. `world` is for tests: where time and chance come from.
    Raises OptionError for other options, TableNotFoundError when there is no table, BranchNotFoundError,
    UnsupportedTableError for one of a newer format; CorruptFileError, StorageError.
    """
    table = Table(open_handle(path, storage_options, *open_options(options or {}), world=world))
    tell_all(table.path, advise_read(handle_of(table).table_schema.options))
    return table


def create_table(
    path: str,
    schema: pa.Schema | str,
    primary_key: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
    *,
    exist_ok: bool = False,
    storage_options: Mapping[str, str] | None = None,
    world: World = SYSTEM_WORLD,
) -> Table:
    """Creates the table at a path or URI, `<warehouse>/<db>.db/<table>`, and opens it; key columns become NOT NULL.

    `schema` is an Arrow schema or SQL column text, which also has types that Arrow does not have, as VARCHAR(20).
    `exist_ok` opens an existing table, whatever its columns and options. `storage_options` (`s3.endpoint`, ...) say how
    the storage is reached; they are refused among `options`, which are stored. Raises OptionError for options and keys
    that do not fit or a table that exists, SchemaMismatchError for columns that Paimon has no type for,
    UnsupportedTableError on storage that cannot publish. Nothing has been written then.
    """
    check_table_path(path)
    now_ms = world.clock.now_ms()
    new = plan_schema(
        schema, primary_key, partition_by, options, comment, storage_options=storage_options, time_ms=now_ms
    )
    made = create_handle(path, new, exist_ok=exist_ok, world=world)
    return open_table(path, storage_options=storage_options, world=world) if made is None else Table(made)
