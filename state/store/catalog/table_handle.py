"""The handle of a table at a path: its newest schema, and access to its metadata.

Operations on a table take this handle (`state/store/table`, `state/store/write`). Source: Paimon 2.0 FileStoreTable.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import NoReturn, Self

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.conf.storage_options import check_storage_options
from bucketline.conf.table.read_options import BRANCH
from bucketline.conf.table.table_settings import ReadSettings
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import BranchNotFoundError, CorruptFileError, TableNotFoundError, UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import branch_at, branch_folder
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.new_schema import publish_first_schema
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.storage.file_io import FileIO, file_io_for
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.types.arrow import arrow_schema


@dataclass(frozen=True, slots=True)
class TableHandle:
    """The internals of a table: its storage, its settings, and its newest schema at the time when the handle was made
    (see `refreshed`). `Table` has its handle as a private attribute.
    """

    io: FileIO
    path: str
    table_schema: TableSchema
    _: KW_ONLY
    read_options: Mapping[str, str] = field(default_factory=dict)
    """The read options that the table was opened with. `table_schema.options` includes them."""
    location: str | None = None
    """The URI that the table was opened with, if `path` alone does not name the file system; otherwise None."""
    write_options: Mapping[str, str] = field(default_factory=dict)
    """Sink options, which say how writes and compactions through this handle are done."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The storage options that the table was opened with."""
    world: World = field(default=SYSTEM_WORLD, repr=False)

    @property
    def uri(self) -> str:
        """Returns the path or URI that opens the table in any process, whatever its working directory."""
        return self.path if self.location is None else self.location

    @property
    def schema(self) -> pa.Schema:
        """Returns the columns, in order, as Arrow fields."""
        return arrow_schema(self.table_schema.fields)

    @property
    def options(self) -> dict[str, str]:
        """Returns the table's options, including the options that it was opened with."""
        return dict(self.table_schema.options)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Returns the columns of the primary key; empty for append tables."""
        return self.table_schema.primary_keys

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Returns the partition columns."""
        return self.table_schema.partition_keys

    @property
    def comment(self) -> str | None:
        """Returns the table's comment."""
        return self.table_schema.comment

    @property
    def metadata_path(self) -> str:
        """Returns the folder that holds schemas, snapshots and tags. A branch has its own folder, and shares manifests
        and data files with the table.
        """
        return branch_path(self.path, self.table_schema.settings.reading)

    @property
    def schema_store(self) -> Schemas:
        return Schemas(self.io, self.metadata_path)

    @property
    def snapshot_store(self) -> Snapshots:
        return Snapshots(self.io, self.metadata_path)

    @property
    def manifests(self) -> Manifests:
        keys = self.table_schema.select(self.table_schema.partition_keys)
        return Manifests(self.io, self.path, [f.type for f in keys], world=self.world)

    def refreshed(self, *, lists: bool = False) -> Self:
        """Returns the same table with its newest schema. If `lists` is true, the schema folder is listed. Then the
        newest schema is found even if a schema file is missing in the sequence of ids.
        """
        known = None if lists else self.table_schema.id
        newest = newest_schema(self.io, self.metadata_path, table=self.path, known=known)
        return replace(self, table_schema=self.with_read_options(newest))

    def with_read_options(self, schema: TableSchema) -> TableSchema:
        """Returns the schema with the options of this handle: its read options are added to the options of the schema,
        and its storage options become the schema's storage options.
        """
        if not self.read_options and not self.storage:
            return schema
        return replace(schema, options={**schema.options, **self.read_options}, storage=self.storage)


def open_handle(
    path: str,
    storage: Mapping[str, str] | None = None,
    reading: Mapping[str, str] | None = None,
    writing: Mapping[str, str] | None = None,
    world: World = SYSTEM_WORLD,
) -> TableHandle:
    """Opens the table at a path or URI. `reading` are read options, which may name a branch; `writing` are sink
    options. Both must have been checked. Raises OptionError for wrong storage options and for an invalid branch name,
    and the errors of `newest_schema`.
    """
    options, reading = check_storage_options(storage), reading or {}
    io, root = file_io_for(path, options, world)
    schema = newest_schema(io, branch_path(root, ReadSettings(reading)), table=root)
    table = TableHandle(
        io,
        root,
        schema,
        read_options=reading,
        location=remote_location(io, path),
        write_options=writing or {},
        storage=options,
        world=world,
    )
    return replace(table, table_schema=table.with_read_options(schema))


def create_handle(path: str, new: TableSchema, *, exist_ok: bool, world: World) -> TableHandle | None:
    """Creates a table at a path or URI, with its first schema. If the table exists already, returns None if `exist_ok`
    is true, and otherwise raises OptionError. Raises the errors of `publish_first_schema`.
    """
    io, root = file_io_for(path, new.storage, world)
    if publish_first_schema(io, root, new):
        return TableHandle(io, root, new, location=remote_location(io, path), storage=new.storage, world=world)
    if exist_ok:
        return None
    raise OptionError(
        f"there is a table at {root} already; open that table, or choose another path", key="path", path=root
    )


def remote_location(io: FileIO, path: str) -> str | None:
    """Returns the path or URI that a table was opened with; None for a local table, because its absolute path is enough
    to open it.
    """
    return None if isinstance(io, LocalIO) else path


def branch_path(path: str, settings: ReadSettings) -> str:
    """Returns the metadata folder of the branch that the settings name; for `main`, the table's folder. Raises
    OptionError for an invalid branch name.
    """
    branch = settings.branch.strip()
    if branch == "main":
        return path
    if not branch or branch.isdigit() or "/" in branch or branch in (".", ".."):
        raise OptionError(
            f"{branch!r} is not a valid branch name; a name must not be empty, a number, '.' or '..', and must not "
            "hold '/'",
            key=BRANCH.key,
            value=branch,
        )
    return branch_folder(path, branch)


def newest_schema(io: FileIO, root: str, *, table: str | None = None, known: int | None = None) -> TableSchema:
    """Returns the newest schema of the table or branch whose metadata is at `root`. For a branch, `table` is the path
    of the branch's table. `known` is the id of a schema that was the newest at some time: if there is no schema with
    the id after `known`, the folder is not listed.

    Raises TableNotFoundError if there is no table, BranchNotFoundError if the table has no such branch,
    UnsupportedTableError for a table of a newer format, CorruptFileError, StorageError.
    """
    try:
        schema = Schemas(io, root).latest(known)
    except CorruptFileError as e:
        if e.version is None:
            raise
        raise UnsupportedTableError(f"{root}: {e.message}", path=root, version=e.version) from e
    if schema is not None:
        return schema
    if table is not None and table != root and Schemas(io, table).latest_id() is not None:
        _refuse_branch(io, root, table)
    raise TableNotFoundError(
        f"{table or root} is not a Paimon table: it has no file schema/schema-<n>; a path must name the table's own "
        "directory, <warehouse>/<db>.db/<table>",
        path=table or root,
    )


def _refuse_branch(io: FileIO, root: str, table: str) -> NoReturn:
    names = Branches(io, table).names()
    name = branch_at(table, root)
    known = f"its branches: main, {', '.join(names)}" if names else "it has only 'main'"
    raise BranchNotFoundError(f"{table} has no branch '{name}'; {known}", path=table, branch=name)
