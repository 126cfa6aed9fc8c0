"""Keeps changelogs longer than their snapshots, and removes them later. When a snapshot expires, its changelog becomes
a file of its own.

`changelog/changelog-<id>` holds what the file of the snapshot held. In a table with a changelog producer, the changelog
files are kept. In other tables, readers take the new data files of each commit as its changes, so these data files are
kept.

Source: Paimon 2.0 ExpireChangelogImpl, ChangelogDeletion, ChangelogManager.
"""

from dataclasses import dataclass, replace

from bucketline.state.commit.expire import (
    Footprint,
    Retention,
    changelog_end,
    dead_files,
    file_key,
    longer_changelog,
    retire,
    sharing_tags,
    unite,
)
from bucketline.state.determinism import World
from bucketline.state.errors import StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.json_files.snapshot_json import encode_snapshot
from bucketline.state.format.paths import CHANGELOG_DIR, EARLIEST, LATEST
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.changelogs import changelog_ids, changelog_path, read_changelog
from bucketline.state.store.catalog.consumers import next_of_consumers
from bucketline.state.store.catalog.kept_files import (
    changelog_or_nothing,
    data_paths,
    delta_or_nothing,
    footprint_of,
    live_keys,
    metadata_steps,
    remains_of,
    remove_in_steps,
)
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.maintenance.shared_changelogs import changelogs_of_others
from bucketline.state.store.storage.file_io import FileIO


@dataclass(frozen=True, slots=True)
class ExpiredChangelogs:
    """The result of an expiry of changelogs: the number of changelogs that were removed, and the numbers of files that
    were removed with these changelogs.
    """

    count: int = 0
    data_files: int = 0
    changelog_files: int = 0
    metadata_files: int = 0


def keep_changelog(io: FileIO, root: str, snapshots: Snapshots, snapshot_id: int) -> None:
    """Writes the changelog of a snapshot that is about to expire. Does nothing if the snapshot no longer exists."""
    snapshot = snapshots.get(snapshot_id)
    if snapshot is not None:
        io.overwrite(changelog_path(root, snapshot_id), encode_snapshot(snapshot))
        io.overwrite(f"{root}/{CHANGELOG_DIR}/{LATEST}", str(snapshot_id).encode())


def expire_changelogs(io: FileIO, path: str, schema: TableSchema, world: World, *, root: str) -> ExpiredChangelogs:
    """Removes the changelogs at `root` that the table's options no longer keep, from the oldest on, with their files.
    Returns what was removed.

    Raises the errors of `expire_snapshots`; nothing has been removed then.
    """
    ids = changelog_ids(io, root)
    snapshots = Snapshots(io, root)
    earliest, latest = snapshots.earliest_id(), snapshots.latest_id()
    if not ids or earliest is None or latest is None:
        return ExpiredChangelogs()
    settings = schema.settings.retention
    retention = Retention.of_changelogs(settings) if longer_changelog(settings) else Retention.of(settings)
    known: dict[int, Snapshot | None] = {}

    def changelog(snapshot_id: int) -> Snapshot | None:
        if snapshot_id not in known:
            known[snapshot_id] = read_changelog(io, root, snapshot_id)
        return known[snapshot_id]

    def time_of(snapshot_id: int) -> int | None:
        snapshot = changelog(snapshot_id)
        return None if snapshot is None else snapshot.time_ms

    end = changelog_end(
        ids,
        latest,
        retention,
        now_ms=world.clock.now_ms(),
        next_of_consumers=next_of_consumers(io, root).values(),
        time_of=time_of,
    )
    going = [snapshot for i in ids if i < end and (snapshot := changelog(i)) is not None]
    oldest = snapshots.get(earliest)
    if not going or oldest is None:
        # If the oldest snapshot is gone, another expiry is removing snapshots. Afterwards, that expiry looks at the
        # changelogs, too.
        return ExpiredChangelogs()
    first = changelog(end)
    try:
        return _remove(io, path, schema, root, going, [oldest] if first is None else [first, oldest], end)
    except StorageError as e:
        if not snapshots.is_gone(oldest, e):
            raise
        return ExpiredChangelogs()


def _remove(
    io: FileIO,
    path: str,
    schema: TableSchema,
    root: str,
    going: list[Snapshot],
    kept: list[Snapshot],
    end: int,
) -> ExpiredChangelogs:
    manifests = Manifests(io, path, [f.type for f in schema.select(schema.partition_keys)])
    tags = [t.snapshot for t in Tags(io, root).list()]
    branches = Branches(io, path)
    # If the table was fast-forwarded to a branch, both may have had the snapshots of these changelogs, and the branch
    # may still have them.
    found = [s for _, s in branches.states_of_others(root)] + branches.snapshots_of_others(root, going[0].id, end)
    others = {s.base_manifest_list: s for s in found}.values()
    states = [*sharing_tags(tags, going[0].id, end), *others, kept[-1]]
    needed = unite(footprint_of(manifests, schema, state) for state in states)
    shared = changelogs_of_others(io, path, root, going[0].id, end)
    needed = needed.union(unite(_named(manifests, schema, s) for s in (kept[0], *shared)))
    # Without changelog files, the changes are in new data files. These files were kept when a later commit
    # deleted them.
    dead = dead_files((s.id, delta_or_nothing(manifests, s)) for s in going)
    for state in states:
        for key in live_keys(manifests, state, [e for _, e in dead.values()]):
            dead.pop(key, None)
    for key in (file_key(e) for s in shared for e in delta_or_nothing(manifests, s)):
        dead.pop(key, None)
    held = {s.changelog_manifest_list for s in shared}
    gone = retire([(s.id, _named(manifests, schema, s)) for s in going], needed)
    removed = ExpiredChangelogs()
    for changelog in going:
        entries = [e for last, e in dead.values() if last == changelog.id - 1]
        data = [p for e in entries for p in data_paths(path, schema, e)]
        logged = [] if changelog.changelog_manifest_list in held else changelog_or_nothing(manifests, changelog)
        log = [p for e in logged for p in data_paths(path, schema, e)]
        metadata = metadata_steps(path, gone[changelog.id])
        remove_in_steps(io, schema, [*data, *log], *metadata, [changelog_path(root, changelog.id)])
        removed = ExpiredChangelogs(
            removed.count + 1,
            removed.data_files + len(data),
            removed.changelog_files + len(log),
            removed.metadata_files + sum(map(len, metadata)),
        )
    io.overwrite(f"{root}/{CHANGELOG_DIR}/{EARLIEST}", str(end).encode())
    return removed


def _named(manifests: Manifests, schema: TableSchema, changelog: Snapshot) -> Footprint:
    """Returns the manifest lists and manifests that are kept for a changelog, which is what remains of an expired
    snapshot. In a table with a changelog producer, the manifest lists of data files may no longer exist, because they
    were removed with the snapshot.
    """
    return remains_of(manifests, schema, replace(changelog, index_manifest=None, statistics=None))
