"""Creates the marker tag of a stream before expiry removes the stream's last snapshot.

A stream tags its newest snapshot after each commit. A stream that died between commit and tag in its first batch has no
marker tag, and its snapshots are its only trace. So the process that removes these snapshots first creates the marker
tag, as the stream would have done. A marker tag that exists stays unchanged.
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
    """Creates marker tags, which keep a trace of streaming writers (streams) after their snapshots were removed.
    `going` are the snapshots that are about to be removed, oldest first; their removal has been announced.

    A stream gets a marker tag if a snapshot in `going` holds one of its batches, and none of the tags `known` is its
    marker. Returns True if a tag had to be created; then the table's tags have changed.

    The marker expires as if the stream had created the marker together with the snapshot. If tags expire by time
    (`ends`), a marker that would have expired already is not created.
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
    """Returns True if a snapshot was rolled back since it was read; False if it exists or another expiry has removed
    it.
    """
    found = snapshots.get(snapshot.id)
    return (snapshots.latest_id() or 0) < snapshot.id if found is None else not snapshot.is_same_as(found)
