"""Carries out the maintenance methods of `Table`. The arguments are as users pass them: durations are timedeltas, and
snapshots, tags and branches are named by id or by string.

Source: Paimon 2.0 procedures expire_snapshots, remove_orphan_files, create_tag, create_branch, rollback; $tags.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.conf.option import UNLIMITED
from bucketline.state.commit.expire import Retention
from bucketline.state.commit.not_there import no_tag
from bucketline.state.commit.table_rules import branches_read
from bucketline.state.errors import StorageError
from bucketline.state.format.entries import FileKind, Snapshot
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.forwarding import fast_forward
from bucketline.state.store.catalog.kept_files import data_paths, exists_file
from bucketline.state.store.catalog.owned import check_owned
from bucketline.state.store.catalog.rollback import rollback_to
from bucketline.state.store.catalog.table_handle import TableHandle, newest_schema
from bucketline.state.store.catalog.tags import Tags, check_still_there, tag_snapshot
from bucketline.state.store.catalog.tags import move_tag as _move_tag
from bucketline.state.store.catalog.tags import rename_tag as _rename_tag
from bucketline.state.store.maintenance.done_actions import mark_partitions
from bucketline.state.store.maintenance.expiry import ExpireResult, delete_tag, expire_snapshots
from bucketline.state.store.maintenance.partition_expiry import expire_partitions
from bucketline.state.store.maintenance.success_files import mark_tag
from bucketline.state.store.read.views import local_time
from bucketline.state.store.table.partition_choice import choose_partitions
from bucketline.state.store.write.table_at import table_at

TAGS_SCHEMA = pa.schema(
    [
        pa.field("tag_name", pa.string(), nullable=False),
        pa.field("snapshot_id", pa.int64(), nullable=False),
        pa.field("schema_id", pa.int64(), nullable=False),
        pa.field("commit_time", pa.timestamp("ms"), nullable=False),
        pa.field("record_count", pa.int64()),
        pa.field("create_time", pa.timestamp("ms")),
        pa.field("time_retained", pa.duration("ms")),
    ]
)


def expire_table(
    table: TableHandle,
    *,
    retain_min: int | None,
    retain_max: int | None,
    older_than: timedelta | None,
    limit: int | None,
) -> ExpireResult:
    """Expires snapshots, and returns what was removed. For each argument that is None, the table's options decide.

    If `limit` is None, all snapshots that may expire are removed. Raises the errors of `expire_snapshots`.
    """
    check_owned(table.table_schema, table.io, table.metadata_path)
    kept = Retention.of(table.table_schema.settings.retention)
    max_count = kept.max_count if retain_max is None else retain_max
    retention = Retention(
        min_count=min(kept.min_count, max_count) if retain_min is None else retain_min,
        max_count=max_count,
        time_ms=kept.time_ms if older_than is None else milliseconds(older_than, "older_than"),
        limit=UNLIMITED if limit is None else limit,
    )
    schema, root = table.table_schema, table.metadata_path
    return expire_snapshots(table.io, table.path, schema, table.world, retention=retention, root=root)


def expire_table_partitions(table: TableHandle, *, older_than: timedelta | None) -> tuple[str, ...]:
    """Drops expired partitions now, even if `partition.expiration-check-interval` has not passed yet. Returns the names
    of their folders. Raises OptionError if neither `older_than` nor an option says when partitions expire.
    """
    schema = table.table_schema
    after_ms = None if older_than is None else milliseconds(older_than, "older_than")
    if not schema.partition_keys:
        raise OptionError(f"{table.path} has no partitions, so no partition can expire", key="older_than")
    if after_ms is None and schema.settings.expiry.partitions_ms is None:
        raise OptionError(
            f"{table.path}: nothing says when partitions expire; pass older_than, or set 'partition.expiration-time'",
            key="partition.expiration-time",
        )
    table.io.require_publish()
    at = table_at(table, {})
    return expire_partitions(at, user=table.world.ids.new_uuid(), after_ms=after_ms)


def mark_table_done(table: TableHandle, partitions: Sequence[Mapping[str, object]] | None) -> tuple[str, ...]:
    """Marks partitions that hold files as done, and returns the names of their folders; see `Table.mark_done`. Raises
    OptionError if one of the mappings matches no partition.
    """
    schema, newest = table.table_schema, table.snapshot_store.latest()
    entries = [] if newest is None else table.manifests.live_entries(newest)
    known = sorted({e.partition for e in entries}) if schema.partition_keys else []
    chosen = [p for p in known if choose_partitions(schema, partitions)(p)]
    for choice in partitions or ():
        if not any(choose_partitions(schema, [choice])(p) for p in known):
            raise OptionError(
                f"{table.path} holds no partition {dict(choice)!r}; choose partitions that have files",
                key="partitions",
                value=dict(choice),
            )
    return tuple(mark_partitions(table, schema, chosen))


def tag_table(
    table: TableHandle,
    name: str,
    snapshot: int | None,
    retained: timedelta | None,
) -> None:
    """Creates a tag, which is kept for the time `retained`; if `retained` is None, `tag.default-time-retained` applies.
    Raises OptionError as `tag_snapshot` does.
    """
    _place_tag(tag_snapshot, table, name, snapshot, retained)
    if table.table_schema.settings.tags.success_files:
        mark_tag(table.io, table.metadata_path, name, table.world)


def _kept_ms(retained: timedelta) -> int:
    retained_ms = milliseconds(retained, "retained")
    if retained_ms < 1:
        raise OptionError(f"a tag must be kept for a time above 0, not {retained}", key="retained", value=str(retained))
    return retained_ms


def move_tag(table: TableHandle, name: str, snapshot: int | None, retained: timedelta | None) -> None:
    """Moves an existing tag to a snapshot; the arguments mean the same as in `tag_table`. Raises OptionError for a tag
    or snapshot that does not exist.
    """
    _place_tag(_move_tag, table, name, snapshot, retained)


def _place_tag(
    place: Callable[..., object], table: TableHandle, name: str, snapshot: int | None, retained: timedelta | None
) -> None:
    """Calls `place` (`tag_snapshot` or `_move_tag`) with the table's settings for tags."""
    check_owned(table.table_schema, table.io, table.metadata_path)
    settings = table.table_schema.settings.tags
    retained_ms = settings.retained_ms if retained is None else _kept_ms(retained)
    place(
        table.io,
        table.metadata_path,
        name,
        snapshot,
        retained_ms=retained_ms,
        world=table.world,
        check=lambda found: _refuse_half_expired(table, found.id, "be tagged"),
    )


def rename_tag(table: TableHandle, name: str, to: str) -> None:
    """Gives a tag another name. Raises OptionError for a tag that does not exist, and for a name that is taken."""
    check_owned(table.table_schema, table.io, table.metadata_path)
    _rename_tag(table.io, table.metadata_path, name, to, world=table.world)


def untag_table(table: TableHandle, name: str) -> bool:
    """Removes a tag and the files that only the tag needs; returns False if there is no tag of that name."""
    check_owned(table.table_schema, table.io, table.metadata_path)
    return delete_tag(table.io, table.path, table.table_schema, name, table.world, root=table.metadata_path)


def branch_table(table: TableHandle, name: str, tag: str | None) -> None:
    """Creates a branch: at the given tag, or empty if `tag` is None. Raises OptionError for a name that is taken,
    VersionNotFoundError for a tag that does not exist.
    """
    check_owned(table.table_schema, table.io, table.path)
    tags = Tags(table.io, table.path)
    stored_tag = None if tag is None else tags.get(tag)
    if tag is not None and stored_tag is None:
        raise no_tag(tag, tags.names())

    def check() -> None:
        if stored_tag is not None:
            check_still_there(tags, stored_tag)

    Branches(table.io, table.path).create(name, stored_tag, world=table.world, check=check)


def unbranch_table(table: TableHandle, name: str) -> bool:
    """Removes a branch; returns False if there is no branch of that name. Raises OptionError for a branch that the
    table reads.
    """
    check_owned(table.table_schema, table.io, table.path)
    _refuse_read(table, name, "removed")
    return Branches(table.io, table.path).delete(name, world=table.world)


def _refuse_read(table: TableHandle, name: str, what: str) -> None:
    for key, read in branches_read(newest_schema(table.io, table.path, table=table.path)).items():
        if read == name:
            raise OptionError(
                f"branch '{name}' cannot be {what}: the table reads it, as '{key}' says; unset that option first",
                key="branch",
                value=name,
            )


def rename_branch(table: TableHandle, name: str, to: str) -> None:
    """Gives a branch another name. Raises OptionError for a branch that does not exist or that the table reads, and for
    a name that is taken.
    """
    check_owned(table.table_schema, table.io, table.path)
    _refuse_read(table, name, "renamed")
    Branches(table.io, table.path).rename(name, to, world=table.world)


def forward_table(table: TableHandle, branch: str) -> int:
    """Gives the table the history of the branch, and returns the id of the table's newest snapshot. Raises the errors
    of `fast_forward`.
    """
    check_owned(table.table_schema, table.io, table.path)
    return fast_forward(table.io, table.path, branch, world=table.world).id


def roll_back_table(table: TableHandle, target: int | str) -> int:
    """Rolls the table back to a snapshot (given by id, or by the name of a tag), and returns the id of this snapshot.

    Raises OptionError if the snapshot does not exist, or if some of its files are missing.
    """
    check_owned(table.table_schema, table.io, table.metadata_path)

    def check(wanted: Snapshot) -> None:
        if isinstance(target, int):
            _refuse_half_expired(table, wanted.id, "be the newest again")

    return rollback_to(table.io, table.metadata_path, target, world=table.world, check=check).id


def _refuse_half_expired(table: TableHandle, snapshot_id: int, use: str) -> None:
    """Raises OptionError for a snapshot that an interrupted expiry has left without some of its files. `use` is what
    the snapshot cannot do, as the message says it ("be tagged").

    An interrupted expiry leaves the file of the snapshot itself, and has already removed data files that the next
    snapshot does not need. Two expiries at the same time, ours and Paimon's, can leave such a snapshot too.
    """
    store, manifests = table.snapshot_store, table.manifests
    snapshot, following = store.get(snapshot_id), store.get(snapshot_id + 1)
    if snapshot is None or following is None or snapshot_id != store.ids()[0]:
        return
    try:
        manifests.live_entries(snapshot)
        dead = [e for e in manifests.delta_entries(following) if e.kind is FileKind.DELETE]
        paths = [p for e in dead for p in data_paths(table.path, table.table_schema, e)]
        gone = next((p for p in paths if not exists_file(table.io, table.table_schema, p)), None)
    except StorageError as e:
        if not e.missing:
            raise
        gone = str(e.path)
    if gone is not None:
        raise OptionError(
            f"snapshot {snapshot_id} of {table.path} cannot {use}: {gone} no longer exists, probably because an "
            "expiry was interrupted; choose a later snapshot, or a tag",
            key="snapshot",
            value=snapshot_id,
        )


def tags_table(table: TableHandle) -> pa.Table:
    """Returns one row for each tag, ordered by snapshot id. Times are local times, as in the system table $tags."""
    rows = [
        {
            "tag_name": t.name,
            "snapshot_id": t.snapshot.id,
            "schema_id": t.snapshot.schema_id,
            "commit_time": local_time(t.snapshot.time_ms, f"the snapshot of tag {t.name}"),
            "record_count": t.snapshot.total_record_count,
            "create_time": t.created_local_ms,
            "time_retained": t.retained_ms,
        }
        for t in Tags(table.io, table.metadata_path).list()
    ]
    return pa.Table.from_pylist(rows, schema=TAGS_SCHEMA)


def milliseconds(duration: timedelta, name: str) -> int:
    """Returns a duration in milliseconds. Raises OptionError for a value that is no timedelta, because a plain number
    has no unit; `name` is the argument that the error names.
    """
    if not isinstance(duration, timedelta):
        raise OptionError(f"{name} = {duration!r} has no unit: pass a datetime.timedelta", key=name, value=duration)
    return duration // timedelta(milliseconds=1)
