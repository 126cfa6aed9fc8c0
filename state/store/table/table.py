"""`Table`: the object that users get for a table, with one method for each operation.
Source: Paimon 2.0 FileStoreTable, SchemaManager.createTable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from bucketline.state.sql.compute.plan_condition import Filter
from bucketline.state.store.catalog.alter import alter_table, column_changes, column_path, column_type, position_of
from bucketline.state.store.catalog.new_schema import check_table_path, plan_schema
from bucketline.state.store.catalog.table_handle import TableHandle, create_handle, open_handle
from bucketline.state.store.catalog.tell_once import tell_all
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.table.care.kept_table import KeptTable
from bucketline.state.store.table.compact import compact_table
from bucketline.state.store.table.merge import merge_rows
from bucketline.state.store.table.overwrite import drop_partitions, overwrite_table, truncate_table
from bucketline.state.store.table.rescale import rescale_table
from bucketline.state.store.table.row_changes import delete_rows, update_rows
from bucketline.state.store.table.write import Data, SpreadData, write_table
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.types.logical import DataType


@dataclass(frozen=True, repr=False)
class Table(KeptTable):
    """A table at a path, with the schema that was the newest when the table was opened (`refreshed` returns the
    table with the schema that is the newest now).

    `open_table` and `create_table` return a Table.
    """

    def write(self, data: Data, row_kinds: pa.Array | pa.ChunkedArray | str | None = None) -> WriteResult:
        """Commits the rows of `data` as one batch, and compacts at once if the options say so. Returns the newest
        snapshot's id as a `WriteResult`, which also has the attributes `visible` and `dropped`.

        `data` is a Table, RecordBatch or RecordBatchReader, matched by column name. `row_kinds` is an int8 array with
        one row kind per row (+I 0, -U 1, +U 2, -D 3), or the name of the column that holds the row kinds; by default
        the column `_row_kind`, if there is one.

        Raises SchemaMismatchError, OptionError, UnsupportedTableError before anything is committed. Raises
        CommitConflictError and CommitOutcomeUnknownError from the commit. Raises CommittedNotVisibleError after the
        commit if readers do not see the rows yet: these rows are in the table, and must not be written again.
        """
        return write_table(self._handle, data, row_kinds)

    def delete(self, filter: Filter, *, engine: Engine = LOCAL_ENGINE) -> WriteResult:
        """Deletes the rows that meet the filter, in one commit. Returns the newest snapshot's id, which is unchanged if
        no row meets the filter.

        `filter` is an Arrow expression or SQL text. If another writer has changed the same keys since the rows were
        read, the delete is planned again, a few times at most. Raises UnsupportedTableError for tables in which a
        delete does not remove a row, CommitConflictError if other writers keep changing the same keys, and the errors
        of `write`.
        """
        return delete_rows(self._handle, filter, engine=engine)

    def update(
        self, filter: Filter, assignments: Mapping[str, object], *, engine: Engine = LOCAL_ENGINE
    ) -> WriteResult:
        """Changes columns of the rows that meet the filter, in one commit. Returns what `delete` returns.

        `assignments` maps columns to plain values, to SQL (`bl.expr("amount * 2")`) or to Arrow expressions. SQL and
        expressions see the columns as they were before the update. Columns of the primary key cannot be set. Raises
        UnsupportedTableError for merge engines that combine rows, SchemaMismatchError for a value that cannot be set,
        computed or stored, and the errors of `delete`.
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
        """Joins the rows of `source` to the rows of the table by the columns `on`, and changes the table in one commit.
        Returns what `delete` returns.

        `when_matched` says what happens to a row of the table that a source row matches. The argument is a mapping of
        new values as in `update`, which may use columns of both rows (`bl.expr("source.amount")`); or `"delete"`; or
        None, which leaves the row unchanged. `when_not_matched` = `"insert"` inserts the source rows that match no row;
        None leaves these rows out. With `engine=bucketline.spark_engine(spark)`, Spark's tasks join and write, and
        `source` may be a Spark DataFrame. Raises SchemaMismatchError if several source rows match one row, and the
        errors of `update` and `delete`.
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
        """Replaces the rows of partitions by the rows of `data`. Returns the newest snapshot's id, which is unchanged
        if nothing is replaced.

        `partition` maps partition columns to values: the partitions that match are replaced, and a partition that gets
        no rows is empty afterwards. Without `partition`, the partitions that get rows are replaced; if the table has no
        partitions or `dynamic-partition-overwrite` is false, the whole table is replaced. `data` and `row_kinds` have
        the same form as in `write`. No changelog is written. With `engine=bucketline.spark_engine(spark)`, Spark's
        tasks write, and `data` may be a Spark DataFrame.

        Raises SchemaMismatchError, OptionError, UnsupportedTableError before anything is committed, and the errors of
        `write`.
        """
        return overwrite_table(self._handle, data, partition, row_kinds, engine=engine)

    def truncate(self) -> WriteResult:
        """Removes all rows, in one commit; no changelog is written. Returns the newest snapshot's id."""
        return truncate_table(self._handle)

    def drop_partitions(self, partitions: Sequence[Mapping[str, object]]) -> WriteResult:
        """Removes all rows of the partitions that match one of the mappings from partition column to value, in one
        commit; no changelog is written. Returns the newest snapshot's id, which is unchanged if no partition matches.

        A value has the type of its column, or is the text of such a value. None stands for null, and not for blank
        texts, which are stored in the same folder.
        """
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
        """Compacts the table. Returns the id of the new snapshot; None if there was nothing to do.

        `engine` does the work: this process, or Spark's tasks (`bucketline.spark_engine(spark)`). `strategy` is "full"
        (all rows go to the highest level) or "minor" (only what is due). `partitions` restricts the compaction to
        partitions that match one of the mappings from partition column to value. A compaction also moves postponed rows
        to their buckets.

        For an append table without buckets, `order_by` gives columns and `order_strategy` says how rows are sorted by
        these columns while all files are rewritten: "order", "zorder" or "hilbert". With Spark's tasks, each task sorts
        one range of the rows.

        Raises OptionError for arguments that do not fit, UnsupportedTableError for a table that cannot be sorted,
        CommitConflictError if another compaction was faster; the table is unchanged then.
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
        """Gives partitions of a fixed or postpone table another number of buckets. Returns the new snapshot's id; None
        if there was nothing to do.

        `partitions` and `engine` have the same form as in `compact`. The partitions that match are always written
        again, as in Paimon. Without `partitions`, all partitions that have another number of buckets are written again,
        and the option `bucket` of a fixed table is changed. Postponed rows stay in the postpone bucket.

        Raises OptionError, UnsupportedTableError, and CommitConflictError if another writer has changed a partition
        before the commit.
        """
        return rescale_table(self._handle, bucket_num, partitions, engine=engine)

    def alter(self, *changes: SchemaChange) -> Self:
        """Changes the schema. All changes together make one new version of the schema. Returns the table with the new
        schema.

        `changes` are values of `schema_change`. Raises SchemaMismatchError for a column that cannot be changed in this
        way, OptionError for an option that cannot be set.
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
        """Adds a nullable column, and returns the table with the new schema. Does nothing if the column exists with
        this type.

        `name` is a column, or the path to a field inside a column (`["address", "zip"]`; `element` stands for the
        elements of an ARRAY, `value` for the values of a MAP). `type` is SQL text such as `DECIMAL(9, 2)`, or a type of
        Arrow or bucketline. `position` is `first` or `after <column>`.
        """
        return self.alter(
            AddColumn(column_path(name), column_type(type), comment=comment, position=position_of(position))
        )

    def drop_column(self, name: str | Sequence[str]) -> Self:
        """Drops a column that is not part of a key, and returns the table with the new schema."""
        return self.alter(DropColumn(column_path(name)))

    def rename_column(self, name: str | Sequence[str], to: str) -> Self:
        """Renames a column that is not a partition column, and returns the table with the new schema. Existing rows
        keep their values.
        """
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
        """Changes each property of a column whose argument is not None. Returns the table with the new schema.

        The new type must be able to hold every value of the old type. An empty comment removes the comment.
        """
        data_type = None if type is None else column_type(type)
        changes = column_changes(
            column_path(name), data_type=data_type, nullable=nullable, comment=comment, position=position
        )
        return self.alter(*changes)

    def set_options(self, options: Mapping[str, str]) -> Self:
        """Sets options of the table, and returns the table with these options. An option that decides how files are
        laid out cannot change once the table has snapshots.
        """
        return self.alter(*(SetOption(key, value) for key, value in options.items()))

    def unset_options(self, *keys: str) -> Self:
        """Removes options, so that their defaults apply again, and returns the table without these options."""
        return self.alter(*map(UnsetOption, keys))


def handle_of(table: Table) -> TableHandle:
    """Returns the stores and settings behind a table, for code inside this package."""
    return table._handle


def open_table(
    path: str,
    *,
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    world: World = SYSTEM_WORLD,
) -> Table:
    """Opens the table at a path or URI, with its newest schema, and returns the table.

    `options` are read options (`branch`, `scan.snapshot-id`, `scan.tag-name`, `scan.timestamp-millis`,
    `postpone.merge-on-read` and others), and options of the sink, for writing and compacting through the returned table
    (`visibility-timeout`, `merge-memory`, `local-directory`). `storage_options` (`s3.endpoint`, ...) say how the
    storage is reached; these options are never stored. `world` is for tests: it supplies time and randomness.

    Raises OptionError for other options, TableNotFoundError if there is no table, BranchNotFoundError if there is no
    such branch, UnsupportedTableError for a table of a newer format, CorruptFileError, StorageError.
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
    """Creates the table at a path or URI, `<warehouse>/<db>.db/<table>`, opens it and returns it. Key columns become
    NOT NULL.

    `schema` is an Arrow schema, or SQL column text, which also has types that Arrow does not have, such as VARCHAR(20).
    With `exist_ok`, a table that exists is opened, whatever its columns and options. `storage_options` (`s3.endpoint`,
    ...) say how the storage is reached. Storage options are refused among `options`, because `options` are stored with
    the table.

    Before anything is written, raises OptionError for options and keys that do not fit and for a table that exists,
    SchemaMismatchError for columns that Paimon has no type for, UnsupportedTableError on storage that cannot publish.
    """
    check_table_path(path)
    now_ms = world.clock.now_ms()
    new = plan_schema(
        schema, primary_key, partition_by, options, comment, storage_options=storage_options, time_ms=now_ms
    )
    made = create_handle(path, new, exist_ok=exist_ok, world=world)
    return open_table(path, storage_options=storage_options, world=world) if made is None else Table(made)
