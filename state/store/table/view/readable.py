"""`ReadableTable`: the methods that read a table: its columns and options, its rows, and its metadata."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.state.sql.compute.plan_condition import Filter
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.versions import Version
from bucketline.state.store.read.table_read import ReadRequest, live_files, read_table, read_whole
from bucketline.state.store.read.views import snapshots_table
from bucketline.state.store.system.tables import system_table
from bucketline.state.store.table.maintenance import tags_table
from bucketline.state.store.table.view.dataset import TableDataset
from bucketline.state.store.table.view.sources import rows_of, system_rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pandas import DataFrame
    from polars import LazyFrame


@dataclass(frozen=True, repr=False)
class ReadableTable:
    """A table with the methods for reading. The subclass `Table` adds methods that change the table."""

    _handle: TableHandle

    def __repr__(self) -> str:
        return f"Table({self.uri!r})"

    @property
    def path(self) -> str:
        """Returns the path of the table's folder."""
        return self._handle.path

    @property
    def uri(self) -> str:
        """Returns the path or URI that opens the table in any process, whatever its working directory."""
        return self._handle.uri

    @property
    def schema(self) -> pa.Schema:
        """Returns the columns, in order, as Arrow fields."""
        return self._handle.schema

    @property
    def options(self) -> dict[str, str]:
        """Returns the table's options, including the options with which the table was opened."""
        return self._handle.options

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Returns the columns of the primary key; empty for append tables."""
        return self._handle.primary_key

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Returns the partition columns."""
        return self._handle.partition_by

    @property
    def comment(self) -> str | None:
        """Returns the table's comment."""
        return self._handle.comment

    def refreshed(self) -> Self:
        """Returns the same table with its newest schema."""
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
        """Returns the rows as one table. Parts of the table are read in parallel, one on each core and at most eight at
        a time. Arguments, order of rows and errors are those of `to_batches`.
        """
        return read_whole(self._handle, ReadRequest(columns, filter, snapshot, read_optimized, changes_since, limit))

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
        """Returns the rows as a stream of record batches, in bounded memory.

        Buckets come in order. Inside a bucket, keys ascend, unless the table has deletion vectors.

        `columns` are the names of the columns to return, in this order (None: all). `filter` is a condition on any
        columns of the table, as an Arrow expression or as SQL text (`amount > 7.5 AND name LIKE 'a%'`). At most `limit`
        rows are returned. `snapshot` is the id of a snapshot or the name of a tag; rows are then read with the schema
        of that snapshot. If `snapshot` is None, the snapshot that the options name, or else the newest snapshot, is
        read with the schema of this table object. `read_optimized` reads only the highest level, without merging.

        `changes_since` (an id, 0 for the beginning, or a tag) reads changes instead: the rows that were committed after
        that snapshot, up to `snapshot`, commit by commit, with an int8 column `_row_kind` at the end. The changes come
        from changelog files if the table has changelog files, otherwise from appended files; overwrites give no
        changes.

        Raises SchemaMismatchError for columns and filters that do not fit, OptionError for a snapshot that does not
        exist, UnsupportedTableError for a table that cannot be read, CorruptFileError and StorageError.
        """
        schema, rows = read_table(
            self._handle, ReadRequest(columns, filter, snapshot, read_optimized, changes_since, limit)
        )
        return pa.RecordBatchReader.from_batches(schema, rows)

    def to_reader(
        self,
        columns: Iterable[str] | None = None,
        filter: Filter | None = None,
        snapshot: Version | None = None,
        read_optimized: bool = False,
        *,
        changes_since: Version | None = None,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Returns the same as `to_batches`. Other libraries look for a method of this name."""
        return self.to_batches(columns, filter, snapshot, read_optimized, changes_since=changes_since, limit=limit)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns all rows and columns as a stream, for code that takes Arrow data: `pa.table(table)`,
        `pl.DataFrame(table)`.

        The whole table is read, because the caller of this protocol cannot say which rows and columns it needs. To read
        less, use `dataset`.
        """
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def dataset(
        self, snapshot: Version | None = None, read_optimized: bool = False, *, system: str | None = None
    ) -> TableDataset:
        """Returns the table as a `pyarrow.dataset.Dataset`, for DuckDB, Polars and any other reader of datasets.

        The read itself applies columns, filters and limits, so files, row groups and columns that are not needed are
        not read. The dataset shows one snapshot, whatever is committed later: the snapshot `snapshot`, with the same
        meaning as in `to_batches`, or the newest at the time of this call. `system` is the name of a system table (such
        as `files`), which is then read instead of the table; `audit_log` and `binlog` are read anew by each scan.

        Raises the errors of `to_batches`. The methods `get_fragments` and `replace_schema` of the dataset raise
        UnsupportedTableError.
        """
        if system is not None:
            if read_optimized:
                raise OptionError(
                    "a system table cannot be read with read_optimized; leave out system or read_optimized",
                    key="read_optimized",
                )
            return TableDataset(system_rows(self._handle, system, snapshot))
        return TableDataset(rows_of(self._handle, snapshot, read_optimized=read_optimized))

    def to_pandas(
        self,
        columns: Iterable[str] | None = None,
        filter: Filter | None = None,
        snapshot: Version | None = None,
        read_optimized: bool = False,
        *,
        changes_since: Version | None = None,
        limit: int | None = None,
    ) -> "DataFrame":
        """Returns the rows as a pandas DataFrame. Arguments and errors are those of `to_batches`; pandas must be
        installed.
        """
        return self.to_arrow(
            columns, filter, snapshot, read_optimized, changes_since=changes_since, limit=limit
        ).to_pandas()

    def to_polars(self, snapshot: Version | None = None, read_optimized: bool = False) -> "LazyFrame":
        """Returns the table as a Polars LazyFrame, which reads only the columns and rows that a query needs (see
        `dataset`).

        Raises the errors of `dataset`, and OptionError if Polars is not installed.
        """
        return as_polars(self.dataset(snapshot, read_optimized))

    def to_duckdb(
        self,
        con: "DuckDBPyConnection",
        name: str | None = None,
        snapshot: Version | None = None,
        read_optimized: bool = False,
    ) -> "DuckDBPyRelation":
        """Makes the table a view of a DuckDB connection, and returns it as a relation of DuckDB.

        The view is called `name`, or by the table's own name if `name` is None, and lasts as long as the connection. A
        query reads only the columns and rows that it needs (see `dataset`). The view shows one snapshot; call this
        method again for a newer snapshot. Raises the errors of `dataset`.
        """
        return as_duckdb(self.dataset(snapshot, read_optimized), con, own_name(self.uri) if name is None else name)

    def snapshots(self) -> pa.Table:
        """Returns all snapshots, oldest first, with the columns of Paimon's $snapshots."""
        return snapshots_table(self._handle.snapshot_store)

    def files(self) -> pa.Table:
        """Returns the live data files, with the columns of Paimon's $files: the files of the snapshot that the options
        name, or else of the newest snapshot.

        The files of a partition come from the branch from which the partition is read: the table's own branch or a
        fallback branch. Partitions in which the own branch has no files are left out.
        """
        return live_files(self._handle)

    def system(self, name: str) -> pa.Table:
        """Returns a system table, with Paimon's columns: `snapshots`, `files`, `schemas`, `options`, `tags`,
        `branches`, `consumers`, `manifests`, `partitions`, `buckets`, `aggregation_fields`, `table_indexes`,
        `statistics`, `ro`, `audit_log` or `binlog`. Raises OptionError for another name.
        """
        schema, rows = system_table(self._handle, name)
        return pa.Table.from_batches(rows, schema=schema)

    def tags(self) -> pa.Table:
        """Returns all tags, ordered by snapshot, with the columns of Paimon's $tags; `time_retained` is a duration."""
        return tags_table(self._handle)

    def branches(self) -> list[str]:
        """Returns the names of all branches except `main`."""
        return Branches(self._handle.io, self.path).known()


def as_polars(dataset: TableDataset) -> Any:
    """Returns the dataset as a LazyFrame. Raises OptionError if Polars is not installed."""
    try:
        polars = import_module("polars")
    except ImportError as e:
        raise OptionError("to_polars needs Polars: pip install polars", key="polars") from e
    return polars.scan_pyarrow_dataset(dataset)


def as_duckdb(dataset: TableDataset, con: Any, name: str) -> Any:
    """Makes the dataset a view of a DuckDB connection, and returns it as a DuckDB relation."""
    con.register(name, dataset)
    return con.view(name)


def own_name(uri: str) -> str:
    """Returns the table's name, which is the last folder of its path."""
    return uri.rstrip("/").rsplit("/", 1)[-1]
