"""Examines a table and says what is broken: what every writer must keep true, held against what is on disk.

Reads all metadata, and with `rows` every live data file; changes nothing. What Paimon would stumble over is an error,
what merely costs space or hints at a crash is a warning.
Source: the rules of Paimon 2.0 (ConflictDetection, SnapshotManager, HintFileUtils, SchemaManager) and of this library.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from bucketline.state.commit.replay import writer_of
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from bucketline.state.format.paths import EARLIEST, LATEST, SCHEMA_DIR, SNAPSHOT_DIR, parse_schema_id, parse_snapshot_id
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.branches import Branches
from bucketline.state.store.consumers import next_of_consumers
from bucketline.state.store.doctor_files import Examination, Problem
from bucketline.state.store.doctor_hashes import hash_problems
from bucketline.state.store.doctor_places import place_problems
from bucketline.state.store.orphans import remove_orphan_files
from bucketline.state.store.schemas import Schemas
from bucketline.state.store.snapshots import Snapshots
from bucketline.state.store.table_handle import TableHandle
from bucketline.state.store.tags import Tags
from bucketline.state.types.logical import all_fields


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: its stable name, where it is broken, and what that means."""

    severity: Severity
    rule: str
    subject: str
    message: str


def examine(table: TableHandle, *, rows: bool = False) -> list[Finding]:
    """What is broken in a table, errors before warnings; nothing when it is sound.

    `rows` also reads the live rows: their number, order, buckets and sequence numbers, and their HASH index.
    Raises StorageError when the storage fails for another reason than a missing file.
    """
    found = list(_findings(table, rows=rows))
    return sorted(found, key=lambda f: f.severity is Severity.WARNING)


def _findings(table: TableHandle, *, rows: bool) -> Iterator[Finding]:
    yield from _schemas(table)
    root = table.metadata_path
    yield from _snapshot_folder(table, root)
    snapshots, broken = _readable_snapshots(table.snapshot_store)
    yield from broken
    yield from _commits(snapshots)
    examination = Examination(table.io, table.path, table.table_schema, table.manifests, table.schema_store.get)
    yield from map(_error, examination.history(snapshots))
    yield from _named_states(table, root, examination)
    if snapshots and rows:
        yield from map(_error, examination.rows(snapshots[-1]))
        # What cannot be read at all was told above.
        with suppress(CorruptFileError):
            yield from map(_error, hash_problems(table, snapshots[-1]))
            yield from map(_error, place_problems(table, snapshots[-1]))
    try:
        next_of_consumers(table.io, root)
    except CorruptFileError as e:
        yield Finding(Severity.ERROR, "consumer", str(e.fields.get("path", root)), e.message)
    # Without all states readable it is not known what is an orphan; that was told above.
    with suppress(CorruptFileError):
        orphans = remove_orphan_files(table)
        if orphans.files:
            yield Finding(
                Severity.WARNING,
                "orphans",
                orphans.files[0].path,
                f"{len(orphans.files)} files, {orphans.size_bytes} bytes, are older than a day and belong to nothing",
            )


def _schemas(table: TableHandle) -> Iterator[Finding]:
    directory = f"{table.metadata_path}/{SCHEMA_DIR}"
    for name in table.io.list_names(directory):
        path = f"{directory}/{name}"
        schema_id = parse_schema_id(name)
        if schema_id is None:
            if name.startswith("schema-"):
                yield Finding(Severity.ERROR, "foreign-file", path, "Paimon takes this name for a schema's and fails")
            continue
        try:
            schema = Schemas(table.io, table.metadata_path).get(schema_id)
        except CorruptFileError as e:
            yield Finding(Severity.ERROR, "schema", path, e.message)
            continue
        yield from _schema(path, schema)


def _schema(path: str, schema: TableSchema) -> Iterator[Finding]:
    ids = [f.id for f in all_fields(schema.fields)]
    names = [f.name for f in schema.fields]
    if len(set(ids)) < len(ids):
        yield Finding(Severity.ERROR, "schema", path, "two fields have the same id, so old files would be misread")
    if max(ids, default=-1) > schema.highest_field_id:
        yield Finding(
            Severity.ERROR, "schema", path, "highestFieldId is below a field's id, which would be given again"
        )
    for key in (*schema.primary_keys, *schema.partition_keys):
        if key not in names:
            yield Finding(Severity.ERROR, "schema", path, f"key column {key} is no column")
    if len(set(names)) < len(names):
        yield Finding(Severity.ERROR, "schema", path, "two columns have the same name")


def _snapshot_folder(table: TableHandle, root: str) -> Iterator[Finding]:
    """Names, gaps and hints."""
    directory = f"{root}/{SNAPSHOT_DIR}"
    for name in table.io.list_names(directory):
        if name.startswith("snapshot-") and parse_snapshot_id(name) is None:
            path = f"{directory}/{name}"
            yield Finding(Severity.ERROR, "foreign-file", path, "Paimon takes this name for a snapshot's and fails")
    ids = Snapshots(table.io, root).ids()
    for before, after in pairwise(ids):
        if after != before + 1:
            yield Finding(
                Severity.ERROR,
                "snapshot-gap",
                f"{directory}/snapshot-{before + 1}",
                f"snapshots {before + 1} to {after - 1} are missing between others",
            )
    for hint in (LATEST, EARLIEST):
        data = table.io.read_optional(f"{directory}/{hint}")
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
            f"it says {hinted}, the newest snapshot is {max(ids, default=None)}: Paimon believes it and fails",
        )
    elif hinted not in ids or hinted != (ids[-1] if hint == LATEST else ids[0]):
        yield Finding(Severity.WARNING, "hint", path, f"it says {hinted}, which is not right; readers have to list")


def _readable_snapshots(store: Snapshots) -> tuple[list[Snapshot], list[Finding]]:
    """The snapshots that can be read, ascending, and what is wrong with the others."""
    found, broken = [], []
    for snapshot_id in store.ids():
        try:
            snapshot = store.get(snapshot_id)
        except CorruptFileError as e:
            broken.append(Finding(Severity.ERROR, "snapshot", store.path(snapshot_id), e.message))
            continue
        if snapshot is not None:
            found.append(snapshot)
    return found, broken


def _commits(snapshots: list[Snapshot]) -> Iterator[Finding]:
    """A user's identifier names one commit: rows come in one snapshot, and what was compacted with them in another."""
    seen: dict[tuple[str, int], int] = {}
    for s in snapshots:
        if s.commit_identifier == BATCH_COMMIT_IDENTIFIER or s.commit_kind is CommitKind.COMPACT:
            continue
        key = (writer_of(s.commit_user), s.commit_identifier)
        if key in seen:
            yield Finding(
                Severity.ERROR,
                "commit-twice",
                f"snapshot {s.id}",
                f"user {s.commit_user} committed identifier {s.commit_identifier} in snapshot {seen[key]} already: its "
                "rows are in the table twice",
            )
        seen[key] = s.id


def _named_states(table: TableHandle, root: str, examination: Examination) -> Iterator[Finding]:
    branches = Branches(table.io, table.path)
    states: list[tuple[str, Snapshot, Examination]] = []
    try:
        states += [(f"tag {t.name}", t.snapshot, examination) for t in Tags(table.io, root).list()]
        for branch in branches.names():
            # A branch has schemas of its own under the same ids.
            own = examination.with_schemas(Schemas(table.io, branches.path(branch)).get)
            states += [(name, state, own) for name, state in branches.states_of(branch)]
    except CorruptFileError as e:
        yield Finding(Severity.ERROR, "tag", str(e.fields.get("path", root)), e.message)
    for name, state, by in states:
        yield from (Finding(Severity.ERROR, p.rule, name, p.message) for p in by.state(name, state))
    for name in Branches(table.io, table.path).names():
        if Schemas(table.io, Branches(table.io, table.path).path(name)).latest_id() is None:
            message = "it has no schema, which stops orphan removal; delete it"
            yield Finding(Severity.ERROR, "branch", f"branch {name}", message)


def _error(problem: Problem) -> Finding:
    return Finding(Severity.ERROR, problem.rule, problem.subject, problem.message)
