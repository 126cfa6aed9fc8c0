"""Finds and removes the files that no snapshot, tag, changelog or branch of a table names.

They are what crashed writers and clean-ups left. A file that is still to be committed looks the same, so only old ones
count: a commit has to take less than that time.
Source: Paimon 2.0 OrphanFilesClean, LocalOrphanFilesClean. Stricter in one thing: a kept state that cannot be read
stops the removal, since the files it needs are not known.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bucketline.conf.errors import OptionError
from bucketline.state.determinism import SYSTEM_CLOCK, Clock
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.entries import ManifestEntry, Snapshot
from bucketline.state.format.paths import (
    BRANCH_DIR,
    CHANGELOG_DIR,
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
from bucketline.state.store.branches import Branches
from bucketline.state.store.file_info import FileInfo
from bucketline.state.store.file_io import FileIO
from bucketline.state.store.kept_files import reraise_unless_missing
from bucketline.state.store.manifests import Manifests
from bucketline.state.store.schemas import Schemas
from bucketline.state.store.snapshots import Snapshots
from bucketline.state.store.table_handle import TableHandle
from bucketline.state.store.tags import Tags

DAY_MS = 86_400_000

_NAMED = frozenset({MANIFEST_DIR, INDEX_DIR, STATISTICS_DIR})
_METADATA = frozenset({SCHEMA_DIR, SNAPSHOT_DIR, TAG_DIR, CONSUMER_DIR, CHANGELOG_DIR})
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp")


@dataclass(frozen=True, slots=True)
class OrphanResult:
    """The files that nothing names, by path; `deleted` says whether they are gone."""

    files: tuple[FileInfo, ...]
    deleted: bool

    @property
    def size_bytes(self) -> int:
        return sum(f.size_bytes for f in self.files)


def remove_orphan_files(
    table: TableHandle, *, dry_run: bool = True, older_than_ms: int = DAY_MS, clock: Clock = SYSTEM_CLOCK
) -> OrphanResult:
    """The orphans whose content last changed more than `older_than_ms` ago; removes them unless it is a dry run.

    Raises OptionError for a negative time, CorruptFileError when a snapshot, tag or branch cannot be read: nothing has
    been removed then.
    """
    if older_than_ms < 0:
        raise OptionError(
            f"older_than must not be negative, and is {older_than_ms} ms", key="older_than", value=older_than_ms
        )
    # Listed before the names are collected: what is committed in between is named by then.
    candidates = _candidates(table, clock.now_ms() - older_than_ms)
    used = _Names(table.io, table.path, table.manifests)
    used.collect()
    orphans = [f for f in candidates if _is_temporary(f) or _name(f) not in used.names]
    if not dry_run:
        for file in orphans:
            table.io.delete(file.path)
    return OrphanResult(tuple(orphans), not dry_run)


def _candidates(table: TableHandle, before_ms: int) -> list[FileInfo]:
    """The old files in the places where a clean-up may look."""
    depth = _bucket_depth(table.table_schema)
    start = f"{table.path}/"
    found = []
    for file in table.io.list_files(table.path):
        parts = file.path.removeprefix(start).split("/")
        if file.modified_ms < before_ms and _is_candidate(parts, depth):
            found.append(file)
    return found


def _is_candidate(parts: list[str], bucket_depth: int) -> bool:
    if parts[0] == BRANCH_DIR:
        return len(parts) == 4 and _is_stray(parts[2], parts[3])
    if parts[0] in _METADATA:
        return len(parts) == 2 and _is_stray(parts[0], parts[1])
    if parts[0] in _NAMED and len(parts) == 2:
        return True
    # Folders that are no bucket's are somebody else's, whatever is in them.
    folders = parts[:-1]
    return len(folders) == bucket_depth and folders[-1].startswith("bucket-") if folders else False


def _is_stray(folder: str, name: str) -> bool:
    """Whether a file in a metadata folder is no metadata: a temporary file, or a foreign one among the snapshots."""
    if _TEMPORARY.fullmatch(name):
        return True
    known = name in (LATEST, EARLIEST) or name.startswith(("snapshot-", "changelog-"))
    return folder in (SNAPSHOT_DIR, CHANGELOG_DIR) and not known


def _is_temporary(file: FileInfo) -> bool:
    return file.path.rsplit("/", 2)[-2] in _METADATA


def _bucket_depth(schema: TableSchema) -> int:
    """How many folders lie between the table and a data file."""
    directory = schema.options.get("data-file.path-directory", "").strip("/")
    return len(directory.split("/")) * bool(directory) + len(schema.partition_keys) + 1


def _name(file: FileInfo) -> str:
    return file.path.rpartition("/")[2]


class _Names:
    """The names of all files that some state of a table names; each manifest is read once."""

    def __init__(self, io: FileIO, path: str, manifests: Manifests) -> None:
        self._io, self._path, self._manifests = io, path, manifests
        self.names: set[str] = set()

    def collect(self) -> None:
        """Raises CorruptFileError when a state is there and cannot be read."""
        branches = Branches(self._io, self._path)
        roots = [("", self._path), *((f" of branch {n}", branches.path(n)) for n in branches.names())]
        for where, root in roots:
            if Schemas(self._io, root).latest_id() is None:
                raise CorruptFileError(f"{root}: there is no schema, so it is not known what is in use", path=root)
            for name, snapshot in _states(self._io, root):
                self._add_state(f"{name}{where}", root, name, snapshot)
                self._add_changelog(snapshot.changelog_manifest_list)
            for old in _changelogs(self._io, root):
                for name_of_list in (old.base_manifest_list, old.delta_manifest_list, old.changelog_manifest_list):
                    self._add_changelog(name_of_list)

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


def _states(io: FileIO, root: str) -> Iterator[tuple[str, Snapshot]]:
    snapshots = Snapshots(io, root)
    for snapshot_id in snapshots.ids():
        found = snapshots.get(snapshot_id)
        if found is not None:
            yield f"snapshot {snapshot_id}", found
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
