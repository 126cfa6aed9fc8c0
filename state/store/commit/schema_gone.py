"""Finds schemas that were removed while a writer was slow: of a deleted branch, or by a fast-forward.

A writer of a branch publishes and then looks for the schema; a process that deletes a branch removes its schema last,
and then lists what is left. So one of the two sees what was published (`docs/care-beside-history.md`).
"""

from bucketline.state.errors import BranchNotFoundError, SchemaMismatchError, StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import branch_at, history_of
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots


def check_branch(snapshots: Snapshots, published: Snapshot) -> None:
    """Checks that the branch to which a snapshot was published still exists; one request, none for the table itself.

    Raises BranchNotFoundError if it was deleted meanwhile; the snapshot is taken back then. StorageError.
    """
    io, root = snapshots.io, snapshots.root
    table = history_of(root)[0]
    if table == root or snapshots.owner is not None or io.exists(Schemas(io, root).path(published.schema_id)):
        return
    if published.is_same_as(snapshots.get(published.id)):
        snapshots.delete(published.id)
    name = branch_at(table, root)
    raise BranchNotFoundError(
        f"{table}: branch '{name}' was deleted while this was written to it; nothing was committed. Create the branch "
        "again and write again, or write to another one",
        path=table,
        branch=name,
    )


def check_own_schema(snapshots: Snapshots, schema: TableSchema) -> None:
    """Checks that the schema under which files were written is still the table's; one request, none for the first
    schema.

    Raises SchemaMismatchError if a fast-forward has removed or replaced it, because no read would succeed.
    StorageError.
    """
    if schema.id == 0:
        return  # a branch begins with the table's first schema, or with a later one alone
    stored: TableSchema | None = None
    try:
        stored = Schemas(snapshots.io, snapshots.root).get(schema.id)
    except StorageError as e:
        if not e.missing:
            raise
    if stored is None or stored.fields != schema.fields:
        raise SchemaMismatchError(
            f"{snapshots.root}: schema {schema.id}, under which this was written, was "
            f"{'removed' if stored is None else 'replaced'} meanwhile, as a fast-forward does; nothing was committed. "
            "Open the table again and write again",
            path=snapshots.root,
            schema=schema.id,
        )
