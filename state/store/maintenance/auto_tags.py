"""Creates tags after the commits of writers, and removes the oldest of these tags when there are too many.

Source: Paimon 2.0 TagAutoCreation, TagBatchCreation.
"""

from dataclasses import dataclass
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

from bucketline.conf.table.choices import TagCreation
from bucketline.conf.table.table_settings import TagSettings
from bucketline.state.commit.auto_tag import TagPlan
from bucketline.state.determinism import World
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.store.catalog.pins import pin_of, pinned
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags, check_kept, undone
from bucketline.state.store.maintenance.expiry import delete_tag
from bucketline.state.store.maintenance.success_files import mark_tag
from bucketline.state.store.storage.file_io import FileIO


@dataclass(frozen=True, slots=True)
class Tagged:
    """How far tags have been created: the id of the next snapshot to look at, and the time of the newest tag that was
    created automatically (None if there is none).
    """

    next_id: int
    last_ms: int | None


@dataclass(frozen=True, slots=True)
class TagWork:
    """The table at `path`, or its branch at `root`, in which tags are created."""

    io: FileIO
    path: str
    root: str
    schema: TableSchema
    world: World

    @property
    def plan(self) -> TagPlan:
        settings = self.schema.settings.tags
        return TagPlan(settings, _zone(settings))


def create_tags(work: TagWork, newest: Snapshot, before: Tagged | None) -> tuple[Tagged, list[str]]:
    """Creates a tag on each snapshot up to `newest` for which a tag is due. Returns how far tags have been created, and
    the names of the new tags.

    `before` is the first result of the previous call. If `before` is None, the newest tag that was created
    automatically shows how far tags have been created. If `before` is given, nothing is read while no tag is due.
    """
    plan = work.plan
    at = before or _resumed(work, plan)
    time = plan.time_of(newest)
    if time is None or plan.next_name(newest, at.last_ms) is None:
        return at, []
    snapshots, made = Snapshots(work.io, work.root), list[str]()
    next_id, last_ms = max(at.next_id, snapshots.earliest_id() or 1), at.last_ms
    for snapshot_id in range(next_id, newest.id + 1):
        snapshot = newest if snapshot_id == newest.id else snapshots.get(snapshot_id)
        name = None if snapshot is None else plan.next_name(snapshot, last_ms)
        if snapshot is not None and name is not None:
            if _create(work, name, snapshot):
                made.append(name)
            last_ms = plan.named_time(name)
    _drop_surplus(work, plan)
    return Tagged(newest.id + 1, last_ms), made


def tag_batch(work: TagWork, newest: Snapshot) -> str:
    """Moves the tag of batch writes to the snapshot `newest`, which this write has made, and returns the tag's name."""
    plan = work.plan
    name = plan.batch_name(newest)
    delete_tag(work.io, work.path, work.schema, name, work.world, root=work.root)
    _create(work, name, newest)
    _drop_surplus(work, plan)
    return name


def _create(work: TagWork, name: str, snapshot: Snapshot) -> bool:
    settings = work.schema.settings.tags
    created = None if settings.retained_ms is None else work.world.clock.local_ms()
    tag = Tag(name, snapshot, created_local_ms=created, retained_ms=settings.retained_ms)
    tags, snapshots = Tags(work.io, work.root), Snapshots(work.io, work.root)
    with pinned(work.io, work.root, pin_of(work.root, snapshot), work.world) as pin:
        made = tags.create(tag)
        if made:
            with undone(lambda: tags.delete(name)):
                check_kept(snapshots, tag)
                pin.check()
    if made and settings.success_files:
        mark_tag(work.io, work.root, name, work.world)
    return made


def _drop_surplus(work: TagWork, plan: TagPlan) -> None:
    """Removes the oldest automatically created tags if there are more than the option allows. Without such a limit,
    reads no tags.
    """
    most, tags = plan.settings.most, Tags(work.io, work.root)
    if most is None:
        return
    created = [name for name in tags.names() if plan.is_created(name)]
    if len(created) > most:
        for name in plan.too_many(filter(None, map(tags.get, created))):
            delete_tag(work.io, work.path, work.schema, name, work.world, root=work.root)


def _resumed(work: TagWork, plan: TagPlan) -> Tagged:
    tags = Tags(work.io, work.root)
    times = {name: time for name in tags.names() if (time := plan.named_time(name)) is not None}
    newest = max(times, key=lambda name: times[name], default=None)
    tag = None if newest is None else tags.get(newest)
    if newest is None or tag is None:
        return Tagged(1, None)
    return Tagged(tag.snapshot.id + 1, times[newest])


def _zone(settings: TagSettings) -> tzinfo | None:
    if settings.creation is TagCreation.WATERMARK:
        return _named(settings.watermark_zone)
    return None if settings.process_zone is None else _named(settings.process_zone)


def _named(zone: str) -> tzinfo:
    return UTC if zone.upper() in ("UTC", "Z", "GMT") else ZoneInfo(zone)
