"""What must be true of the metadata folders: names, schemas, gaps, hints, consumers, branches.

Source: the rules of Paimon 2.0 SnapshotManager, HintFileUtils, SchemaManager.
"""

from collections.abc import Iterator
from itertools import pairwise

from bucketline.conf.errors import BucketlineError
from bucketline.conf.wording import span
from bucketline.state.format.paths import EARLIEST, LATEST, SCHEMA_DIR, SNAPSHOT_DIR, parse_schema_id, parse_snapshot_id
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.branches import Branches
from bucketline.state.store.consumers import broken_consumers
from bucketline.state.store.doctor_finding import Finding, Severity
from bucketline.state.store.doctor_problem import passable
from bucketline.state.store.schemas import Schemas
from bucketline.state.store.table_handle import TableHandle
from bucketline.state.types.logical import all_fields


def folder_findings(table: TableHandle) -> Iterator[Finding]:
    """What is wrong with what listings and small files show. Reads schemas, hints and consumers."""
    yield from _schemas(table)
    yield from _snapshot_folder(table)
    for path, message in broken_consumers(table.io, table.metadata_path):
        yield Finding(Severity.ERROR, "consumer", path, message)
    branches = Branches(table.io, table.path)
    for name in branches.names():
        if Schemas(table.io, branches.path(name)).latest_id() is None:
            message = "it has no schema, which stops orphan removal; delete it"
            yield Finding(Severity.ERROR, "branch", f"branch {name}", message)


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
            yield Finding(Severity.ERROR, "foreign-file", path, "Paimon takes this name for a schema's and fails")
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
        before = schema


def _schema(schema: TableSchema) -> Iterator[str]:
    ids = [f.id for f in all_fields(schema.fields)]
    names = [f.name for f in schema.fields]
    if len(set(ids)) < len(ids):
        yield "two fields have the same id, so old files would be misread"
    if max(ids, default=-1) > schema.highest_field_id:
        yield "highestFieldId is below a field's id, which would be given again"
    for key in (*schema.primary_keys, *schema.partition_keys):
        if key not in names:
            yield f"key column {key} is no column"
    if len(set(names)) < len(names):
        yield "two columns have the same name"


def _evolved(before: TableSchema, after: TableSchema) -> Iterator[str]:
    """What no change of a schema does: its keys stay, and an id that was given is never given to another column."""
    keys = [f.id for f in before.fields if f.name in before.primary_keys]
    if {f.id for f in after.fields if f.name in after.primary_keys} != set(keys):
        yield f"its primary key is of other fields than that of schema {before.id}"
    if after.highest_field_id < before.highest_field_id:
        yield f"highestFieldId is {after.highest_field_id}, schema {before.id} has {before.highest_field_id}"
    known = {f.id for f in before.fields}
    for field in after.fields:
        if field.id not in known and field.id <= before.highest_field_id:
            yield f"column {field.name} has id {field.id}, which schema {before.id} does not have and which is not new"


def _snapshot_folder(table: TableHandle) -> Iterator[Finding]:
    """Names, gaps and hints. Hints are read first: a snapshot is there before a hint names it."""
    directory = f"{table.metadata_path}/{SNAPSHOT_DIR}"
    hints = {hint: table.io.read_optional(f"{directory}/{hint}") for hint in (LATEST, EARLIEST)}
    names = table.io.list_names(directory)
    for name in names:
        if name.startswith("snapshot-") and parse_snapshot_id(name) is None:
            path = f"{directory}/{name}"
            yield Finding(Severity.ERROR, "foreign-file", path, "Paimon takes this name for a snapshot's and fails")
    ids = sorted(i for i in map(parse_snapshot_id, names) if i is not None)
    for before, after in pairwise(ids):
        if after != before + 1:
            yield Finding(
                Severity.ERROR,
                "snapshot-gap",
                f"{directory}/snapshot-{before + 1}",
                f"no file of {span(before + 1, after - 1, 'snapshot')}, though there are older and newer ones",
            )
    for hint, data in hints.items():
        if data is not None:
            yield from _hint(f"{directory}/{hint}", hint, data, ids)


def _hint(path: str, hint: str, data: bytes, ids: list[int]) -> Iterator[Finding]:
    if not data.isdigit():
        yield Finding(Severity.WARNING, "hint", path, f"it holds {data[:20]!r}, no snapshot id")
        return
    hinted = int(data)
    if hint == LATEST and hinted > max(ids, default=0):
        yield Finding(
            Severity.ERROR,
            "hint",
            path,
            f"it says {hinted}, {f'the newest snapshot is {max(ids)}' if ids else 'and there is no snapshot'}: Paimon "
            "believes it and fails",
        )
    elif hinted not in ids or hinted != (ids[-1] if hint == LATEST else ids[0]):
        yield Finding(Severity.WARNING, "hint", path, f"it says {hinted}, which is not right; readers have to list")
