"""Fallback branches: partitions that the first branch does not have are read from another branch.

`scan.fallback-branch` names the branch that is read second; `scan.primary-branch` names the branch that is read first.
A partition is read from one branch as a whole: if the first branch has a visible file of the partition, only the first
branch is read, whatever the filter. Each branch has its own options and deletion vectors.

Source: Paimon 2.0 FallbackReadFileStoreTable, FileStoreTableFactory; tried with Paimon Java 1.4.2.
"""

import logging
from dataclasses import dataclass, replace

from bucketline.conf.table.read_options import (
    BRANCH,
    SCAN_FALLBACK_BRANCH,
    SCAN_PRIMARY_BRANCH,
    SCAN_SNAPSHOT_ID,
    SCAN_VERSION,
)
from bucketline.conf.table.table_settings import ReadSettings
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.table_handle import TableHandle, branch_path
from bucketline.state.store.catalog.versions import Version, Versions

_LOG = logging.getLogger(__name__)

_FIRST_SNAPSHOT_ID = 1


@dataclass(frozen=True, slots=True)
class BranchView:
    """What a read sees of one branch: a snapshot (None for an empty branch), and the schema with which its rows are
    read, including the options.
    """

    table: TableHandle
    schema: TableSchema
    snapshot: Snapshot | None


def own_view(table: TableHandle, version: Version | None) -> BranchView:
    """Returns what a read sees of the branch with which the table was opened: a snapshot, and the schema with which its
    rows are read. `version` is the id of the snapshot or the name of a tag; if it is None, the table's options or the
    newest snapshot decide. Raises OptionError for a version that does not exist.
    """
    settings = table.table_schema.settings.reading
    snapshot = Versions(table.io, table.metadata_path).find(version, settings)
    return _view_at(table, snapshot, is_past=version is not None or bool(settings.named_versions))


def branch_views(table: TableHandle, version: Version | None) -> list[BranchView]:
    """Returns the views of the branches of a read, in the order of reading: one view, or two if an option names another
    branch that exists. Raises OptionError for a version that does not exist in a branch, UnsupportedTableError if the
    columns of the branches differ.
    """
    own = own_view(table, version)
    # The newest schema names the other branch, even if an older snapshot is read.
    settings = table.table_schema.settings.reading
    for option, text, is_asked_first in (
        (SCAN_FALLBACK_BRANCH, settings.fallback_branch, False),
        (SCAN_PRIMARY_BRANCH, settings.primary_branch, True),
    ):
        name = (text or "").strip()
        if not name:
            continue
        if name == settings.branch.strip():
            return [own]
        other = _other_branch(table, name)
        if other is None:
            _LOG.warning(
                "%s: '%s' names the branch %s, which does not exist; reads ignore the option",
                table.path,
                option.key,
                name,
            )
            return [own]
        other_view = _view_of_other(own, other, version)
        if other_view is None:
            return [own]
        other_view = replace(other_view, schema=_with_names_of(own.schema, other_view.schema, name))
        return [other_view, own] if is_asked_first else [own, other_view]
    return [own]


def _view_at(table: TableHandle, snapshot: Snapshot | None, *, is_past: bool) -> BranchView:
    """Returns the view of a branch at a snapshot. A past snapshot (`is_past`) is read with the columns of its own
    schema, but with the read options with which the table was opened.
    """
    if snapshot is None or not is_past:
        return BranchView(table, table.table_schema, snapshot)
    return BranchView(table, table.with_read_options(table.schema_store.get(snapshot.schema_id)), snapshot)


def _other_branch(table: TableHandle, name: str) -> TableHandle | None:
    """Returns a handle for another branch, with the same read options; None if there is no such branch."""
    asked = {**table.read_options, BRANCH.key: name}
    schema = Schemas(table.io, branch_path(table.path, ReadSettings(asked))).latest()
    if schema is None:
        return None
    handle = replace(table, table_schema=schema, read_options=asked)
    return replace(handle, table_schema=handle.with_read_options(schema))


def _view_of_other(own: BranchView, other: TableHandle, version: Version | None) -> BranchView | None:
    """Returns the view of the other branch for a read of the own branch at `version`; None if the other branch is not
    read.

    If `version` is a snapshot id, it is an id of the own branch. The other branch is then read as it was when the own
    branch's snapshot was committed; if the other branch had no snapshot at that time, its first snapshot is read. If
    `version` is a tag, the other branch is not read: the tag has the same snapshot in both branches, so the other
    branch adds no partitions. A time, or an id from `scan.version`, applies to the other branch directly.
    """
    versions = Versions(other.io, other.metadata_path)
    settings = ReadSettings(own.table.read_options if version is None else {})
    if isinstance(version, str) or settings.tag is not None:
        return None
    if version is None and not settings.named_versions:
        return own_view(other, None)
    if (text := settings.version) is not None:
        if Versions(own.table.io, own.table.metadata_path).is_tag(text):
            return None
        return _view_at(other, versions.named(int(text), SCAN_VERSION.key), is_past=True)
    if version is not None or settings.snapshot_id is not None:
        assert own.snapshot is not None
        return _view_at(other, _as_of(versions, own.snapshot), is_past=True)
    return _view_at(other, versions.find(None, settings), is_past=True)


def _as_of(versions: Versions, own: Snapshot) -> Snapshot | None:
    snapshot = versions.at_time(own.time_ms)
    if snapshot is None and versions.find(None, ReadSettings({})) is not None:
        return versions.by_id(_FIRST_SNAPSHOT_ID, SCAN_SNAPSHOT_ID.key)
    return snapshot


def _with_names_of(own: TableSchema, other: TableSchema, branch: str) -> TableSchema:
    """Returns the other branch's schema with the column names of the own branch. Columns are matched by position, as in
    Paimon.

    Raises UnsupportedTableError if the columns differ in number or type, or if an option uses a name that only the
    other branch has.
    """
    types = [[f.type.as_nullable() for f in schema.fields] for schema in (own, other)]
    if types[0] != types[1]:
        texts = [", ".join(f"{f.name} {f.type}" for f in schema.fields) for schema in (own, other)]
        raise UnsupportedTableError(
            f"branch {branch} is read for the partitions that this one lacks, so both need the same columns; this one "
            f"has ({texts[0]}), and {branch} has ({texts[1]}); change the schema of one of them, or remove "
            f"'{SCAN_FALLBACK_BRANCH.key}' and '{SCAN_PRIMARY_BRANCH.key}'",
            branch=branch,
        )
    if own.partition_keys != other.partition_keys:
        raise UnsupportedTableError(
            f"branch {branch} is partitioned by ({', '.join(other.partition_keys)}), this one by "
            f"({', '.join(own.partition_keys)}); a partition can be read from the other branch "
            f"only if both are partitioned alike; remove '{SCAN_FALLBACK_BRANCH.key}' and '{SCAN_PRIMARY_BRANCH.key}'",
            branch=branch,
        )
    new = {theirs.name: ours.name for ours, theirs in zip(own.fields, other.fields, strict=True)}
    renamed = {old for old, name in new.items() if old != name}
    named = {
        old
        for old in renamed
        for key, value in other.options.items()
        if key.startswith(f"fields.{old}.") or old in [part.strip() for part in value.split(",")]
    }
    if named:
        raise UnsupportedTableError(
            f"branch {branch} has another name for a column, {min(named)!r}, and its options use this name; rename the "
            "column in that branch too",
            branch=branch,
            column=min(named),
        )
    return replace(
        other,
        fields=tuple(replace(f, name=new[f.name]) for f in other.fields),
        primary_keys=tuple(new[name] for name in other.primary_keys),
    )
