"""Checks the metadata folders of a table: names, schemas, snapshots, consumers, branches.

Source: the rules of Paimon 2.0 SnapshotManager, HintFileUtils, SchemaManager.
"""

from collections.abc import Iterator, Sequence

from bucketline.conf.errors import BucketlineError
from bucketline.state.commit.table_rules import branches_exist, branches_read, rule_problems
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import SCHEMA_DIR, SNAPSHOT_DIR, parse_schema_id, parse_snapshot_id
from bucketline.state.format.schema_history import id_problems
from bucketline.state.store.catalog.branches import MAIN, Branches
from bucketline.state.store.catalog.consumers import broken_consumers
from bucketline.state.store.catalog.forwarding import unfinished
from bucketline.state.store.catalog.pins import Notebook
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.doctor.changelogs import changelog_findings
from bucketline.state.store.doctor.finding import Finding, Severity
from bucketline.state.store.doctor.problem import passable
from bucketline.state.store.doctor.snapshots import snapshot_findings
from bucketline.state.store.plans.plan_files import broken_plans
from bucketline.state.types.logical import DataField, types_in


def folder_findings(table: TableHandle) -> Iterator[Finding]:
    """Yields the problems that show in the listings of metadata folders, and in schemas, hints, consumers, compaction
    plans, changelogs and branches.
    """
    yield from _schemas(table)
    yield from _snapshot_folder(table)
    for path, message in broken_consumers(table.io, table.metadata_path):
        yield Finding(Severity.ERROR, "consumer", path, message)
    for path, message in broken_plans(table.io, table.metadata_path):
        yield Finding(Severity.WARNING, "compaction-plan", path, f"{message}; remove the file, nothing else needs it")
    yield from changelog_findings(table)
    branches = Branches(table.io, table.path)
    yield from _rules(table, branches)
    for name in branches.names():
        if Schemas(table.io, branches.path(name)).latest_id() is None:
            message = "it has no schema, which stops the removal of orphan files; delete the branch"
            yield Finding(Severity.ERROR, "branch", f"branch {name}", message)
    if table.metadata_path == table.path:
        for name in sorted(unfinished(table.io, table.path, Notebook(table.io, table.path).look().pins.values())):
            message = (
                "a fast-forward to this branch is running or was interrupted; if it was interrupted, repeat it with "
                f"`fast_forward({name!r})`"
            )
            yield Finding(Severity.WARNING, "half-forwarded", f"branch {name}", message)


def _rules(table: TableHandle, branches: Branches) -> Iterator[Finding]:
    """Yields a finding for each part of the newest schema that Paimon refuses. The finding's message says which change
    repairs the schema.
    """
    newest = Schemas(table.io, table.metadata_path).latest_id()
    if newest is None:
        return
    path = f"{table.metadata_path}/{SCHEMA_DIR}/schema-{newest}"
    try:
        schema = Schemas(table.io, table.metadata_path).get(newest)
    except BucketlineError as e:
        passable(e)  # This problem has been reported for the file already.
        return
    known = (MAIN, *branches.known()) if branches_read(schema) else ()
    for problem in (*rule_problems(schema), *branches_exist(schema, known)):
        yield Finding(Severity.ERROR, "schema", path, f"Paimon refuses the table: {problem.message}")


def _schemas(table: TableHandle) -> Iterator[Finding]:
    directory = f"{table.metadata_path}/{SCHEMA_DIR}"
    store = Schemas(table.io, table.metadata_path)
    before: TableSchema | None = None
    ids: list[int] = []
    for name in table.io.list_names(directory):
        schema_id = parse_schema_id(name)
        if schema_id is not None:
            ids.append(schema_id)
        elif name.startswith("schema-"):
            path = f"{directory}/{name}"
            yield Finding(
                Severity.ERROR,
                "foreign-file",
                path,
                "Paimon takes this file for a schema because of its name, and fails",
            )
    for schema_id in sorted(ids):
        path = f"{directory}/schema-{schema_id}"
        try:
            schema = store.get(schema_id)
        except BucketlineError as e:
            yield Finding(Severity.ERROR, "schema", path, passable(e))
            before = None
            continue
        for message in (*_schema(schema), *(_evolved(before, schema) if before is not None else ())):
            yield Finding(Severity.ERROR, "schema", path, message)
        yield from (Finding(Severity.WARNING, "schema", path, message) for message in _nested_ids(schema))
        before = schema


def _schema(schema: TableSchema) -> Iterator[str]:
    names = [f.name for f in schema.fields]
    if any(len({f.id for f in row}) < len(row) for row in _rows(schema.fields)):
        yield "two fields have the same id, so rows of old files would be misread"
    if max((f.id for f in schema.fields), default=-1) > schema.highest_field_id:
        yield "highestFieldId is lower than the id of a field, so this id would be given out again"
    for key in (*schema.primary_keys, *schema.partition_keys):
        if key not in names:
            yield f"key column {key} does not exist"
    if len(set(names)) < len(names):
        yield "two columns have the same name"


def _nested_ids(schema: TableSchema) -> Iterator[str]:
    """Yields problems with the ids of nested fields. pypaimon up to 1.4 counts the fields of each nested row from 0,
    and computes the highest id from the columns alone.
    """
    if (
        max((f.id for row in _rows(schema.fields) for f in row), default=-1)
        > schema.highest_field_id
        >= max((f.id for f in schema.fields), default=-1)
    ):
        yield (
            "highestFieldId is lower than the id of a nested field; rows are read correctly, but Paimon may give "
            "this id out again when a field is added to the nested row"
        )


def _rows(fields: Sequence[DataField]) -> Iterator[Sequence[DataField]]:
    """Yields the list of columns, then the list of fields of each nested row. In each of these lists an id must be
    unique.
    """
    yield fields
    for field in fields:
        yield from (t.fields for t in types_in(field.type) if t.fields)


def _evolved(before: TableSchema, after: TableSchema) -> Iterator[str]:
    """Yields differences between two schemas of a table that no schema change can cause: another primary key, or an id
    that belongs to another column.
    """
    keys = [f.id for f in before.fields if f.name in before.primary_keys]
    if {f.id for f in after.fields if f.name in after.primary_keys} != set(keys):
        yield f"its primary key has other fields than the primary key of schema {before.id}"
    yield from id_problems(before, after)


def _snapshot_folder(table: TableHandle) -> Iterator[Finding]:
    """Yields problems with names in the folder of snapshots, and with the snapshots of the table and of its
    branches.
    """
    root = table.metadata_path
    directory = f"{root}/{SNAPSHOT_DIR}"
    for name in table.io.list_names(directory):
        if name.startswith("snapshot-") and parse_snapshot_id(name) is None:
            path = f"{directory}/{name}"
            yield Finding(
                Severity.ERROR,
                "foreign-file",
                path,
                "Paimon takes this file for a snapshot because of its name, and fails",
            )
    branches = Branches(table.io, table.path)
    for folder in dict.fromkeys((root, *(branches.path(name) for name in branches.names()))):
        yield from snapshot_findings(table.io, folder)
