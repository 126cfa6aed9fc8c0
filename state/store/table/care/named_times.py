"""Finds the snapshot for a time or a watermark, and creates a tag on this snapshot, or rolls the table back to this
snapshot. Also removes tags whose retention time is over.

Source: Paimon 2.0 TagTimeExpire, TagAutoManager, SnapshotManager.earlierOrEqualTimeMills, earlierOrEqualWatermark,
CreateTagFromTimestampProcedure.
"""

from datetime import datetime, timedelta

from bucketline.conf.errors import OptionError
from bucketline.state.commit.replay import MARKER_TAG
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.catalog.owned import check_owned
from bucketline.state.store.catalog.rollback import ROLLBACK_TAG
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.catalog.versions import Versions
from bucketline.state.store.maintenance.auto_tags import TagWork, create_tags
from bucketline.state.store.maintenance.expiry import delete_tag
from bucketline.state.store.table.maintenance import milliseconds, roll_back_table, tag_table

_NO_WATERMARK = -(2**63)


def end_tags(table: TableHandle, older_than: timedelta | None) -> tuple[str, ...]:
    """Removes tags whose retention time is over and tags that were created longer ago than `older_than`, and returns
    their names. For a tag without a creation time, the modification time of its file is used. Tags that a stream or a
    rollback has made for itself stay.
    """
    check_owned(table.table_schema, table.io, table.metadata_path)
    age_ms = None if older_than is None else milliseconds(older_than, "older_than")
    tags, clock = Tags(table.io, table.metadata_path), table.world.clock
    ended = []
    for tag in tags.list():
        if tag.name.startswith(MARKER_TAG) or tag.name == ROLLBACK_TAG:
            continue
        is_over = tag.is_over(clock.local_ms())
        if not is_over and age_ms is not None:
            if tag.created_local_ms is not None and tag.retained_ms is not None:
                age = clock.local_ms() - tag.created_local_ms
            else:
                written_ms = table.io.modified_ms(tags.path(tag.name))
                age = clock.now_ms() - written_ms if written_ms >= 0 else 0
            is_over = age > age_ms
        if is_over:
            delete_tag(table.io, table.path, table.table_schema, tag.name, table.world, root=table.metadata_path)
            ended.append(tag.name)
    return tuple(ended)


def tag_from_time(table: TableHandle, name: str, time: datetime, retained: timedelta | None) -> Snapshot:
    """Creates a tag on the oldest snapshot that was committed at the given time or later, and returns that snapshot.
    Raises OptionError if there is no such snapshot.
    """
    time_ms = epoch_ms(time, "timestamp")
    snapshots = table.snapshot_store
    before = Versions(table.io, table.metadata_path).at_time(time_ms - 1)
    first = snapshots.earliest_id() if before is None else before.id + 1
    found = None if first is None else snapshots.get(first)
    tagged = [t.snapshot for t in Tags(table.io, table.metadata_path).list() if t.snapshot.time_ms >= time_ms]
    candidates = [s for s in (found, *tagged) if s is not None]
    if not candidates:
        raise OptionError(
            f"{table.path} has no snapshot that was committed at {time_ms} (milliseconds since 1970) or later; "
            "choose an earlier time",
            key="timestamp",
            value=time_ms,
        )
    chosen = min(candidates, key=lambda s: s.id)
    tag_table(table, name, chosen.id, retained)
    return chosen


def create_due_tags(table: TableHandle) -> tuple[str, ...]:
    """Creates the tags that are due by `tag.automatic-creation`, and removes the tags whose retention time is over.
    Returns the names of the new tags.
    """
    check_owned(table.table_schema, table.io, table.metadata_path)
    work = TagWork(table.io, table.path, table.metadata_path, table.table_schema, table.world)
    newest = table.snapshot_store.latest()
    made = create_tags(work, newest, None)[1] if newest is not None and work.plan.creates else []
    end_tags(table, None)
    return tuple(made)


def roll_back_to_time(table: TableHandle, time: datetime) -> int:
    """Rolls back to the newest snapshot that was committed at the given time or before, and returns its id. Raises
    OptionError if there is no such snapshot.
    """
    time_ms = epoch_ms(time, "timestamp")
    snapshot = Versions(table.io, table.metadata_path).at_time(time_ms)
    if snapshot is None:
        raise OptionError(
            f"{table.path} has no snapshot that was committed at {time_ms} (milliseconds since 1970) or before; "
            "choose a later time",
            key="timestamp",
            value=time_ms,
        )
    return roll_back_table(table, snapshot.id)


def roll_back_to_watermark(table: TableHandle, watermark: int) -> int:
    """Rolls back to the newest snapshot whose watermark is not later than `watermark`, and returns its id. Raises
    OptionError if there is no such snapshot.
    """
    snapshots = table.snapshot_store
    newest = snapshots.latest()
    for snapshot in () if newest is None else snapshots.newest_first(newest):
        if snapshot.watermark not in (None, _NO_WATERMARK) and (snapshot.watermark or 0) <= watermark:
            return roll_back_table(table, snapshot.id)
    raise OptionError(
        f"{table.path} has no snapshot with watermark {watermark} or earlier; choose a later watermark",
        key="watermark",
        value=watermark,
    )


def epoch_ms(time: datetime, name: str) -> int:
    """Returns a time in milliseconds since 1970. A time without a time zone is local time. Raises OptionError for a
    value that is no datetime; `name` is the argument that the error names.
    """
    if not isinstance(time, datetime):
        raise OptionError(f"{name} = {time!r} is not a datetime.datetime; pass one", key=name, value=time)
    return round(time.timestamp() * 1000)
