"""The marker that expiry leaves of a stream whose last snapshot it removes.

A stream marks its newest snapshot after each commit. One that has died in between, with its first batch, has no marker,
and its snapshots are the only trace. So whoever removes them makes the marker first, as the stream would have done.
A marker that is there stays as it is.
"""

from collections.abc import Iterable, Sequence

from bucketline.conf.errors import OptionError
from bucketline.state.commit.replay import MARKER_RETAINED_MS, unmarked
from bucketline.state.determinism import World
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags, check_tag_name


def leave_markers(
    tags: Tags,
    snapshots: Snapshots,
    going: Iterable[Snapshot],
    known: Sequence[Tag],
    world: World,
    *,
    ends: bool,
) -> bool:
    """Makes a marker for each stream that has none among the `known` tags, and a batch among the snapshots that are
    `going`, oldest first; their removal has been announced. Whether there were any: then other tags are there now.

    A marker ends as if the stream had made it with its snapshot. Where tags end by time (`ends`), none is made that
    would be over.
    """
    made = False
    for name, snapshot in unmarked(going, [t.name for t in known]).items():
        tag = Tag(name, snapshot, _local_ms_of(snapshot, world), MARKER_RETAINED_MS)
        if (ends and tag.is_over(world.clock.local_ms())) or not _can_be_named(name):
            continue
        made = True
        if tags.create_by_file(tag) and _is_undone(snapshots, snapshot):
            tags.delete(name)
    return made


def _local_ms_of(snapshot: Snapshot, world: World) -> int:
    return world.clock.local_ms() - (world.clock.now_ms() - snapshot.time_ms)


def _can_be_named(name: str) -> bool:
    try:
        check_tag_name(name)
    except OptionError:
        return False
    return True


def _is_undone(snapshots: Snapshots, snapshot: Snapshot) -> bool:
    """Whether a snapshot was rolled back since it was read, and has not merely been removed by another expiry."""
    found = snapshots.get(snapshot.id)
    return (snapshots.latest_id() or 0) < snapshot.id if found is None else not snapshot.is_same_as(found)
