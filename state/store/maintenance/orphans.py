"""Finds and removes orphan files: those that no snapshot, tag, changelog or branch of a table names.

They are what crashed writers and clean-ups left. A file that is still to be committed looks the same, so only those
count that are a day old by the storage's clock (`commit.file_age`), and what is committed while files are removed is
looked at again and again.
Source: Paimon 2.0 OrphanFilesClean, LocalOrphanFilesClean. Stricter in two things: a kept state that cannot be read
stops the removal, since the files it needs are not known; and Paimon takes any age.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from bucketline.conf.errors import FilesTooYoungError, OptionError
from bucketline.state.commit.file_age import REMOVABLE_MS
from bucketline.state.determinism import SYSTEM_CLOCK, SYSTEM_IDS, Clock, IdSource
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.entries import ManifestEntry, Snapshot
from bucketline.state.format.paths import (
    BRANCH_DIR,
    CHANGELOG_DIR,
    COMPACTION_DIR,
    CONSUMER_DIR,
    EARLIEST,
    INDEX_DIR,
    LATEST,
    MANIFEST_DIR,
    SCHEMA_DIR,
    SNAPSHOT_DIR,
    STATISTICS_DIR,
    TAG_DIR,
    parse_changelog_id,
)
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.format.snapshot_json import decode_snapshot
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.external_folders import own_folders
from bucketline.state.store.catalog.kept_files import reraise_unless_missing
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.owned import check_owned
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.plans.plan_files import named_by_plans, plan_id_in
from bucketline.state.store.storage.file_info import FileInfo
from bucketline.state.store.storage.file_io import FileIO, file_io_for
from bucketline.state.store.storage.hidden_files import bring_back, is_aside, own_name, place_aside, put_aside
from bucketline.state.store.storage.objects.unended_uploads import end_upload, unended_uploads
from bucketline.state.store.storage.storage_clock import storage_now_ms

Progress = Callable[[int, int], None]
"""Called with how many steps are done, and the total."""

_AT_ONCE = 20
"""Files that are removed before it is looked again what has been committed since."""

_NAMED = frozenset({MANIFEST_DIR, INDEX_DIR, STATISTICS_DIR})
_METADATA = frozenset({SCHEMA_DIR, SNAPSHOT_DIR, TAG_DIR, CONSUMER_DIR, CHANGELOG_DIR})
_HASH = re.compile("[01]{4}/[01]{4}/[01]{4}/[01]{8}")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp")


@dataclass(frozen=True, slots=True)
class OrphanResult:
    """The files that nothing names, ordered by path; `deleted` says whether they were removed."""

    files: tuple[FileInfo, ...]
    deleted: bool

    @property
    def size_bytes(self) -> int:
        return sum(f.size_bytes for f in self.files)


def remove_orphan_files(
    table: TableHandle,
    *,
    dry_run: bool = True,
    older_than_ms: int = REMOVABLE_MS,
    no_writers: bool = False,
    clock: Clock = SYSTEM_CLOCK,
    ids: IdSource = SYSTEM_IDS,
    progress: Progress = lambda done, total: None,
) -> OrphanResult:
    """The orphans whose content last changed more than `older_than_ms` ago; removes them unless it is a dry run.
    Uploads in parts that were begun so long ago and have not ended are among them, as `unended_uploads` lists them.

    Ages are by the storage's clock; a dry run, which writes nothing, takes `clock` for it. A file whose time the
    storage does not record is kept. `no_writers` says that nobody writes, and lifts the limit of a day.
    `progress` is called after each snapshot whose files were looked up. Memory: about 300 bytes for each file in the
    table's folder while they are listed, then so much for each that is old enough, and 150 bytes for each that a state
    names, manifests among them.
    Raises FilesTooYoungError when younger ones are to be removed without it, OptionError for a negative time,
    UnsupportedTableError as `storage_now_ms`, CorruptFileError when a snapshot, tag or branch cannot be read: nothing
    has been removed then, unless it came while files were being removed.
    """
    if not dry_run:
        check_owned(table.table_schema, table.io, table.path)
    if older_than_ms < 0:
        raise OptionError(
            f"older_than must not be negative, and is {older_than_ms} ms", key="older_than", value=older_than_ms
        )
    if older_than_ms < REMOVABLE_MS and not (dry_run or no_writers):
        raise FilesTooYoungError(
            f"{table.path}: files younger than a day may be those of a writer that is about to commit, and are not "
            f"removed; {older_than_ms} ms were asked for",
            key="older_than",
            value=older_than_ms,
        )
    grounds = _grounds(table)
    # Listed before the names are collected: what is committed in between is named by then.
    listed = []
    uploads: list[tuple[_Ground, FileInfo]] = []
    for ground in grounds:
        now_ms = clock.now_ms() if dry_run else storage_now_ms(ground.io, ground.root, ids=ids)
        listed.append((ground, *_candidates(ground, now_ms - older_than_ms)))
        begun = (u for u in unended_uploads(ground.io, ground.root) if ground.may_hold(u))
        uploads += [(ground, u) for u in begun if u.modified_ms < now_ms - older_than_ms]
    used = _Names(table.io, table.path, table.manifests)
    used.collect(progress)
    if dry_run:
        dry = (f for _, old_files, _ in listed for f in old_files if used.is_orphan(f))
        return OrphanResult((*dry, *(upload for _, upload in uploads)), deleted=False)
    removed: list[FileInfo] = []
    for ground, candidates, aside in listed:
        for file in aside:
            if not used.is_orphan(file):
                bring_back(ground.io, file)
        orphans = [f for f in candidates if used.is_orphan(f)]
        for start in range(0, len(orphans), _AT_ONCE):
            # A commit published since the names were collected may name old files: it has checked that they exist.
            used.follow()
            still_orphans = [f for f in orphans[start : start + _AT_ONCE] if used.is_orphan(f)]
            removed += _remove(ground.io, still_orphans, used, ids)
    for ground, upload in uploads:
        end_upload(ground.io, upload)
        removed.append(upload)
    return OrphanResult(tuple(removed), deleted=True)


@dataclass(frozen=True, slots=True)
class _Ground:
    """A folder in which files of the table lie: its own, or an external one that belongs to it alone."""

    io: FileIO
    root: str
    bucket_depth: int
    is_outside: bool = False

    def may_hold(self, file: FileInfo) -> bool:
        """Whether a file is in a place where a clean-up may look."""
        belongs = _is_outside_candidate if self.is_outside else _is_candidate
        return belongs(file.path.removeprefix(f"{self.root}/").split("/"), self.bucket_depth)


def _grounds(table: TableHandle) -> list[_Ground]:
    schema = table.table_schema
    depth = _bucket_depth(schema)
    outside = [file_io_for(folder, schema.storage) for folder in own_folders(table.io, table.path, schema)]
    return [_Ground(table.io, table.path, depth), *(_Ground(io, root, depth, True) for io, root in outside)]


def _remove(io: FileIO, files: Sequence[FileInfo], used: "_Names", ids: IdSource) -> list[FileInfo]:
    """Those of the files that are gone now. Where they can be put aside, it is looked once more what names them."""
    places: dict[str, tuple[FileInfo, FileInfo]] = {}
    removed = []
    try:
        for file in files:
            place = file if _is_temporary(file) or _is_of_plan(file) else place_aside(io, file, ids)
            places[place.path] = file, place
            if not put_aside(io, file, place):
                del places[place.path]
        if any(is_aside(place) for _, place in places.values()):
            used.follow()
        for path, (file, place) in list(places.items()):
            # Its writer may have brought it back.
            if used.is_orphan(file) and (place is file or io.exists(path)):
                io.delete(path)
                removed.append(file)
                del places[path]
    finally:
        for _, place in places.values():
            bring_back(io, place)
    return removed


def _candidates(ground: _Ground, before_ms: int) -> tuple[list[FileInfo], list[FileInfo]]:
    """The old files in the places where a clean-up may look, and all that are aside there."""
    old_files, aside = [], []
    for file in ground.io.list_files(ground.root):
        if not ground.may_hold(file):
            continue
        if 0 <= file.modified_ms < before_ms:
            old_files.append(file)
        if is_aside(file):
            aside.append(file)
    return old_files, aside


def _is_candidate(parts: list[str], bucket_depth: int) -> bool:
    if parts[0] == BRANCH_DIR:
        return len(parts) == 4 and (_is_stray(parts[2], parts[3]) or _is_of_plans(parts[2:]))
    if parts[0] in _METADATA:
        return len(parts) == 2 and _is_stray(parts[0], parts[1])
    if parts[0] in _NAMED and len(parts) == 2:
        return True
    if parts[0] == COMPACTION_DIR:
        return _is_of_plans(parts)
    # Folders that are not buckets belong to others, whatever is in them.
    folders = parts[:-1]
    return len(folders) == bucket_depth and folders[-1].startswith("bucket-") if folders else False


def _is_of_plans(parts: list[str]) -> bool:
    """Whether a file in the folder of plans is temporary, or of an item."""
    folder, name = parts[0], parts[-1]
    return folder == COMPACTION_DIR and len(parts) == 2 and bool(_TEMPORARY.fullmatch(name) or plan_id_in(name))


def _is_outside_candidate(parts: list[str], bucket_depth: int) -> bool:
    """As `_is_candidate`, in an external folder: in a bucket, or in the folders of a hash below it."""
    bucket, below = parts[:-1][:bucket_depth], parts[:-1][bucket_depth:]
    is_bucket = len(bucket) == bucket_depth and bucket[-1].startswith("bucket-")
    return is_bucket and (not below or _HASH.fullmatch("/".join(below)) is not None)


def _is_stray(folder: str, name: str) -> bool:
    """Whether a file in a metadata folder is no metadata: a temporary file, or a foreign one among the snapshots."""
    if _TEMPORARY.fullmatch(name):
        return True
    known = name in (LATEST, EARLIEST) or name.startswith(("snapshot-", "changelog-"))
    return folder in (SNAPSHOT_DIR, CHANGELOG_DIR) and not known


def _is_temporary(file: FileInfo) -> bool:
    folder, name = file.path.rsplit("/", 2)[-2:]
    return folder in _METADATA or (folder == COMPACTION_DIR and _TEMPORARY.fullmatch(name) is not None)


def _is_of_plan(file: FileInfo) -> bool:
    """Whether a file belongs to an item of a compaction plan, by its place and name."""
    folder, name = file.path.rsplit("/", 2)[-2:]
    return folder == COMPACTION_DIR and plan_id_in(name) is not None


def _bucket_depth(schema: TableSchema) -> int:
    """How many folders lie between the table and a data file."""
    directory = schema.settings.paths.data_directory
    return len(directory.split("/")) * bool(directory) + len(schema.partition_keys) + 1


class _Names:
    """The names of all files that some state of a table names; each manifest is read once."""

    def __init__(self, io: FileIO, path: str, manifests: Manifests) -> None:
        self._io, self._path, self._manifests = io, path, manifests
        self.names: set[str] = set()
        self._newest: dict[str, Snapshot] = {}

    def is_orphan(self, file: FileInfo) -> bool:
        return _is_temporary(file) or own_name(file) not in self.names

    def collect(self, progress: Progress) -> None:
        """Raises CorruptFileError when a state is there and cannot be read."""
        roots = self._roots()
        total = sum(len(Snapshots(self._io, root).ids()) for _, root in roots)
        done = 0
        for where, root in roots:
            for state in self._added(where, root, _states(self._io, root)):
                if state.startswith("snapshot "):
                    done += 1
                    progress(done, max(done, total))
            self.names |= named_by_plans(self._io, root)
            for old in _changelogs(self._io, root):
                for name_of_list in (old.base_manifest_list, old.delta_manifest_list, old.changelog_manifest_list):
                    self._add_changelog(name_of_list)

    def follow(self) -> None:
        """Adds what snapshots name that were published since, and tags and branches as they are now."""
        for where, root in self._roots():
            known = self._newest.get(root)
            snapshots = Snapshots(self._io, root)
            # After a rollback, other snapshots may have the same ids.
            is_same = known is not None and snapshots.get(known.id) == known
            after = known.id if is_same and known is not None else 0
            for _ in self._added(where, root, _states(self._io, root, after)):
                pass
            self.names |= named_by_plans(self._io, root)

    def _roots(self) -> list[tuple[str, str]]:
        branches = Branches(self._io, self._path)
        return [("", self._path), *((f" of branch {n}", branches.path(n)) for n in branches.names())]

    def _added(self, where: str, root: str, states: Iterable[tuple[str, Snapshot]]) -> Iterator[str]:
        """Adds what states name, one after the other; their names."""
        if Schemas(self._io, root).latest_id() is None:
            raise CorruptFileError(f"{root}: there is no schema, so it is not known what is in use", path=root)
        # Files of a snapshot whose own file is gone are needed once that is put back.
        Snapshots(self._io, root).check_complete()
        for name, snapshot in states:
            self._add_state(f"{name}{where}", root, name, snapshot)
            self._add_changelog(snapshot.changelog_manifest_list)
            if name == f"snapshot {snapshot.id}":
                self._newest[root] = snapshot
            yield name

    def _add_state(self, shown: str, root: str, name: str, snapshot: Snapshot) -> None:
        try:
            self._add_lists(snapshot)
        except StorageError as e:
            reraise_unless_missing(e)
            if name not in (n for n, _ in _states(self._io, root)):
                return  # expired or deleted meanwhile
            raise CorruptFileError(
                f"{self._path}: {shown} cannot be read, so it is not known what is in use: {e.message}; expire it or "
                "delete it, or see what `doctor` says",
                path=self._path,
                state=shown,
            ) from e

    def _add_lists(self, snapshot: Snapshot) -> None:
        self._add_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        self._add_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
        if snapshot.statistics is not None:
            self.names.add(snapshot.statistics)
        if snapshot.index_manifest is not None and snapshot.index_manifest not in self.names:
            self.names |= {e.file_name for e in self._manifests.read_index(snapshot.index_manifest)}
            self.names.add(snapshot.index_manifest)

    def _add_changelog(self, list_name: str | None) -> None:
        """What a changelog names. It goes with its snapshot, and a tag may bring that back, so it may be missing."""
        if list_name is None:
            return
        try:
            self._add_list(list_name, None)
        except StorageError as e:
            reraise_unless_missing(e)
            self.names.add(list_name)

    def _add_list(self, name: str, size: int | None) -> None:
        if name in self.names:
            return
        for meta in self._manifests.read_list(name, size):
            if meta.file_name not in self.names:
                self.names.update(_data_names(self._manifests.read(meta)))
                self.names.add(meta.file_name)
        self.names.add(name)


def _states(io: FileIO, root: str, after: int = 0) -> Iterator[tuple[str, Snapshot]]:
    """The snapshots above an id, ascending, and all tags, each with its name."""
    snapshots = Snapshots(io, root)
    for snapshot_id in snapshots.ids():
        snapshot = snapshots.get(snapshot_id) if snapshot_id > after else None
        if snapshot is not None:
            yield f"snapshot {snapshot_id}", snapshot
    known = snapshots.without_file()
    if known is not None:
        yield f"snapshot {known.id} of the catalog", known
    for tag in Tags(io, root).list():
        yield f"tag {tag.name}", tag.snapshot


def _changelogs(io: FileIO, root: str) -> Iterator[Snapshot]:
    for name in io.list_names(f"{root}/{CHANGELOG_DIR}"):
        data = io.read_optional(f"{root}/{CHANGELOG_DIR}/{name}") if parse_changelog_id(name) is not None else None
        if data is not None:
            yield decode_snapshot(data)


def _data_names(entries: Iterable[ManifestEntry]) -> Iterator[str]:
    for entry in entries:
        yield entry.file.file_name
        yield from entry.file.extra_files
