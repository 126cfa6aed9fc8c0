"""The sources of a dataset's rows: a snapshot of a table, or one of the table's system tables.

Source: Paimon 2.0 SystemTableLoader, for the names of system tables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.state.sql.compute.plan_condition import Filter, plan_condition
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.versions import Version
from bucketline.state.store.read.fallback import BranchView, branch_views
from bucketline.state.store.read.projection import filtered
from bucketline.state.store.read.table_read import ReadRequest, ReadRows, filter_condition, read_table, read_whole
from bucketline.state.store.system.tables import keeps_rows, system_table
from bucketline.state.types.arrow import logical_fields


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request to a source: the columns in order (None: all), two conditions that must both be met (`filter` and
    `also`), and the largest number of rows.
    """

    columns: Sequence[str] | None = None
    filter: Filter | None = None
    also: pc.Expression | None = None
    limit: int | None = None


class RowSource(Protocol):
    """A source of rows whose columns are known before any row is read. Raises the errors of `Table.to_batches`."""

    @property
    def schema(self) -> pa.Schema: ...

    def read(self, wanted: Wanted) -> ReadRows: ...

    def whole(self, wanted: Wanted) -> pa.Table: ...


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """The rows of a table as it was when the source was created, whatever is committed later. `seen` holds the
    snapshots of that time: of the table, and of its fallback branch.
    """

    schema: pa.Schema
    table: TableHandle
    seen: tuple[BranchView, ...]
    read_optimized: bool = False

    def read(self, wanted: Wanted) -> ReadRows:
        return read_table(self.table, self._request(wanted), seen=self.seen)

    def whole(self, wanted: Wanted) -> pa.Table:
        return read_whole(self.table, self._request(wanted), seen=self.seen)

    def _request(self, wanted: Wanted) -> ReadRequest:
        filter = wanted.filter
        if wanted.also is not None:
            own = next(s for s in self.seen if s.table is self.table)
            filter = filter_condition(filter, own.schema).also(wanted.also)
        return ReadRequest(wanted.columns, filter, None, self.read_optimized, limit=wanted.limit)


@dataclass(frozen=True, slots=True)
class SystemSource:
    """The rows of a system table. If `known` is None, each read computes the rows anew; otherwise `known` holds the
    rows from the time when the source was created.
    """

    schema: pa.Schema
    table: TableHandle
    name: str
    known: pa.Table | None

    def read(self, wanted: Wanted) -> ReadRows:
        columns = self.schema.names if wanted.columns is None else list(wanted.columns)
        out = self.schema.empty_table().select(columns).schema
        return out, self._passing(wanted, columns)

    def whole(self, wanted: Wanted) -> pa.Table:
        schema, rows = self.read(wanted)
        return pa.Table.from_batches(rows, schema=schema)

    def _passing(self, wanted: Wanted, columns: list[str]) -> Iterator[pa.RecordBatch]:
        condition = plan_condition(wanted.filter, logical_fields(self.schema))
        if wanted.also is not None:
            condition = condition.also(wanted.also)
        batches = system_table(self.table, self.name)[1] if self.known is None else iter(self.known.to_batches())
        left = wanted.limit
        for batch in batches:
            for kept in filtered(batch, condition):
                if left is not None:
                    kept = kept.slice(0, left)
                    left -= kept.num_rows
                yield kept.select(columns)
                if left == 0:
                    return


def rows_of(table: TableHandle, version: Version | None, *, read_optimized: bool) -> SnapshotSource:
    """Returns a source for the rows of the snapshot `version`. If `version` is None, the snapshot is the snapshot that
    the options name, or else the newest snapshot. Raises the errors of `Table.to_batches`.
    """
    seen = tuple(branch_views(table, version))
    schema, _ = read_table(table, ReadRequest(read_optimized=read_optimized, limit=0), seen=seen)
    return SnapshotSource(schema, table, seen, read_optimized)


def system_rows(table: TableHandle, name: str, version: Version | None) -> RowSource:
    """Returns a source for the rows of a system table. Raises OptionError for an unknown name, and if `version` is not
    None, because the options of the table choose the version.
    """
    if version is not None:
        raise OptionError(
            "a system table is read at the snapshot that its table was opened at; leave out the argument 'snapshot', "
            f"and open the table with options={{'scan.snapshot-id': '{version}'}}",
            key="snapshot",
            value=version,
        )
    if name.lower() == "ro":
        return rows_of(table, None, read_optimized=True)
    schema, rows = system_table(table, name)
    known = pa.Table.from_batches(rows, schema=schema) if keeps_rows(name) else None
    return SystemSource(schema, table, name, known)
