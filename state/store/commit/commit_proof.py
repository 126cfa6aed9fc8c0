"""Checks right before a snapshot is published that the new files of the snapshot still exist, and right after the
publication that the branch and the schema still exist.

Orphan removal removes files that nothing names and that are a day old. Nothing names the new files of a writer before
its commit. A young batch is protected by its age and needs no check. The age is counted from the time at which the work
was planned, by the clock of the process that plans and commits the work. So the clocks and time zones of tasks do not
matter. After `QUICK_MS` the storage is also asked for its time, with two requests, because the clock of this machine
may have been changed meanwhile, and orphan removal uses the storage's time. After half a day each file is looked up,
with one request for each, before and after the snapshot is published. On a local disk each file is always looked up.

A schema can be removed because its branch is deleted, or by a fast-forward. A writer publishes, and then looks for the
schema. A process that deletes a branch removes the branch's schema last, and then lists what is left; a fast-forward
does the same. So either the writer sees that the schema is gone, or the other process sees the published snapshot
(`docs/care-beside-history.md`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bucketline.state.commit.conflict import FILES_GONE, Conflict
from bucketline.state.commit.file_age import is_quick, needs_proof
from bucketline.state.determinism import World
from bucketline.state.errors import BranchNotFoundError, CorruptFileError, SchemaMismatchError, StorageError
from bucketline.state.format.entries import FileKind, IndexManifestEntry, ManifestEntry, Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import branch_at, history_of
from bucketline.state.store.catalog.kept_files import data_paths, index_path, located, reach
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.commit.commit_check import SnapshotChanges
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.hidden_files import bring_back_path
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.storage.storage_clock import modified_or_unknown
from bucketline.state.store.storage.wrapped_io import bare

_FOREVER_MS = 2**62
_PROMPT_MS = 3_000


@dataclass(frozen=True, slots=True)
class BroughtFile:
    """A new file of a commit.

    The object has the size and the creation time of the file, if the file's entry records them. `is_live` is true for a
    data file that the commit makes live.
    """

    path: str
    size_bytes: int | None = None
    made_ms: int | None = None
    is_live: bool = False


def brought_files(root: str, schema: TableSchema, wanted: SnapshotChanges) -> list[BroughtFile]:
    """Returns the files that nothing names before the snapshot is published. A file that was only moved to a higher
    level is left out, because an older snapshot names it.
    """
    return [
        *(f for e in _added(wanted.entries) for f in _of_entry(root, schema, e, is_live=True)),
        *(f for e in wanted.changelog for f in _of_entry(root, schema, e)),
        *(_of_index(root, schema, e) for e in wanted.index if e.kind is FileKind.ADD),
    ]


class FilesProof:
    """Checks, right before and after a snapshot is published, that no other process has removed the files of the
    snapshot. `planned_ms` is the time at which the work was planned, by the clock of `world`.
    """

    def __init__(
        self, io: FileIO, schema: TableSchema, files: Sequence[BroughtFile], world: World, planned_ms: int
    ) -> None:
        self._schema = schema
        self._io, self._files, self._world, self._planned_ms = io, files, world, planned_ms
        self._asked_ms = planned_ms
        self._is_free = all(isinstance(bare(self._reach(f.path)[0]), LocalIO) for f in files)
        self._is_free = self._is_free and isinstance(bare(io), LocalIO)
        self._was_old = False
        self._newest_path: str | None = None
        self._manifests: tuple[str, ...] = ()

    def add_manifests(self, paths: Sequence[str]) -> None:
        """Takes the paths of the manifest files that the commit itself has written, the newest file last. From now on
        `first_gone` also checks that these files exist.
        """
        self._manifests = tuple(paths)
        self._newest_path = self._manifests[-1] if self._manifests else None

    def first_gone(self, newest_path: str | None = None) -> str | None:
        """Returns a file that is missing or incomplete; None if all files exist, or are too young to be removed by an
        orphan removal.

        If orphan removal has hidden a file and not removed it yet, the file is brought back. `newest_path` is a file
        that was written just now, so its time is the storage's time; if `newest_path` is None, the newest manifest is
        used. Raises StorageError.
        """
        self._asked_ms = self._world.clock.now_ms()
        newest_path = newest_path or self._newest_path
        elapsed_ms = self._asked_ms - self._planned_ms
        if not self._is_free:
            self._was_old = not is_quick(elapsed_ms) and needs_proof(max(elapsed_ms, self._age_ms(newest_path)))
            if not self._was_old:
                return None
        every = (*self._files, *(BroughtFile(path) for path in self._manifests))
        return next((f.path for f in every if not self._is_whole(f)), None)

    @property
    def manifest_names(self) -> frozenset[str]:
        """Returns the names of the files that the commit has written into the manifest folder."""
        return frozenset(path.rpartition("/")[2] for path in self._manifests)

    @property
    def data_names(self) -> frozenset[str]:
        """Returns the names of the data files that the commit makes live."""
        return frozenset(f.path.rpartition("/")[2] for f in self._files if f.is_live)

    @property
    def is_recent(self) -> bool:
        """Returns True if the files were checked just now. If the process was paused after the check, the result is
        False, and the files must be checked again.
        """
        return is_quick(self._world.clock.now_ms() - self._asked_ms)

    @property
    def is_certain(self) -> bool:
        """Returns True if the files were so young at the last check that no orphan removal can have removed a file
        since.

        Older files are checked again after the publication, because an orphan removal that began before the publication
        does not know the published snapshot.
        """
        return self.is_recent and not self._was_old and not self._is_free

    @property
    def is_prompt(self) -> bool:
        """Returns True if the files were checked less than three seconds ago, and were so young that nobody has removed
        them since. Then it is taken for granted that nobody has rolled the table back since, either.
        """
        elapsed_ms = self._world.clock.now_ms() - self._asked_ms
        return 0 <= elapsed_ms < _PROMPT_MS and not self._was_old and not self._is_free

    def _reach(self, path: str) -> tuple[FileIO, str]:
        return reach(self._io, self._schema, path)

    def _age_ms(self, newest_path: str | None) -> int:
        """Returns the age of the oldest file by the storage's clock, in milliseconds; 0 if the storage records no
        times.
        """
        if not self._files or newest_path is None:
            return 0
        oldest = min(self._files, key=lambda f: _FOREVER_MS if f.made_ms is None else f.made_ms)
        try:
            written_ms = modified_or_unknown(*self._reach(oldest.path))
            now_ms = modified_or_unknown(self._io, newest_path)
        except StorageError as e:
            if e.missing:
                return _FOREVER_MS
            raise
        return 0 if written_ms is None or now_ms is None else now_ms - written_ms

    def _is_whole(self, file: BroughtFile) -> bool:
        return self._is_there(file) or (bring_back_path(*self._reach(file.path)) and self._is_there(file))

    def _is_there(self, file: BroughtFile) -> bool:
        io, path = self._reach(file.path)
        if file.size_bytes is None:
            return io.exists(path)
        try:
            return io.size(path) == file.size_bytes
        except StorageError as e:
            if e.missing:
                return False
            raise


def files_gone(path: str) -> Conflict:
    """Returns the conflict for a commit whose file at `path` is missing."""
    return Conflict(
        FILES_GONE,
        f"{path} was written for this commit, but is gone or was changed: it was removed as an orphan file while the "
        "writer was slow or stopped. Nothing was committed; write the rows again",
        {"path": path},
    )


def _added(entries: Sequence[ManifestEntry]) -> Iterator[ManifestEntry]:
    before = {e.file.file_name for e in entries if e.kind is FileKind.DELETE}
    return (e for e in entries if e.kind is FileKind.ADD and e.file.file_name not in before)


def _of_entry(root: str, schema: TableSchema, entry: ManifestEntry, *, is_live: bool = False) -> Iterator[BroughtFile]:
    file = entry.file
    own, *extra = data_paths(root, schema, entry)
    yield BroughtFile(own, file.file_size, file.creation_time_ms, is_live)
    yield from (BroughtFile(path, None, file.creation_time_ms) for path in extra)


def _of_index(root: str, schema: TableSchema, entry: IndexManifestEntry) -> BroughtFile:
    return BroughtFile(located(root, index_path(schema, entry)), entry.file_size)


def check_own_schema(snapshots: Snapshots, schema: TableSchema) -> None:
    """Checks that the table still has the schema under which files were written. Costs one request; no request for the
    first schema.

    Raises SchemaMismatchError if a fast-forward has removed or replaced the schema, because the files could not be read
    then. Raises StorageError.
    """
    if schema.id == 0:
        return  # A branch begins with the table's first schema, or has only a later schema.
    stored = _stored(snapshots, schema.id)
    if stored is None or stored.fields != schema.fields:
        raise _schema_gone(snapshots, schema.id, stored)


def check_published(snapshots: Snapshots, published: Snapshot, schema: TableSchema) -> None:
    """Checks, after a snapshot was published, that the history still has the schema of the snapshot's files and the
    schema that the snapshot names. If one of the two schemas is missing, the snapshot is taken back. Costs one request
    if the two are the same schema, and no request if this schema is the first schema of the table itself, or of a
    branch in a catalog.

    Raises BranchNotFoundError if the branch was deleted meanwhile, SchemaMismatchError if a fast-forward took the
    schema away, and StorageError. Raises CorruptFileError if another snapshot already builds on this snapshot; the
    snapshot then stays.
    """
    named = published.schema_id
    table = history_of(snapshots.root)[0]
    try:
        check_own_schema(snapshots, schema)
        has_first = table == snapshots.root or snapshots.owner is not None
        is_known = named == schema.id != 0 or (named == 0 and has_first)
        if not is_known and not _has_schema(snapshots, named):
            raise _schema_gone(snapshots, named, None)
    except SchemaMismatchError as gone:
        is_there = published.is_same_as(snapshots.get(published.id))
        is_base = is_there and not snapshots.withdraw(published)
        if table != snapshots.root and not _has_schema(snapshots, named):
            raise _branch_gone(table, snapshots.root) from gone
        if not is_base:
            raise  # Nothing builds on the snapshot. If it was not there, the fast-forward has removed it.
        raise CorruptFileError(
            f"{snapshots.root}: schema {schema.id}, under which snapshot {published.id} was written, was removed or "
            f"replaced meanwhile, as a fast-forward does, but snapshot {published.id + 1} already builds on it; roll "
            f"the table back to snapshot {published.id - 1} and write the rows again",
            path=snapshots.path(published.id),
            snapshot=published.id,
        ) from gone


def _branch_gone(table: str, root: str) -> BranchNotFoundError:
    name = branch_at(table, root)
    return BranchNotFoundError(
        f"{table}: branch '{name}' was deleted while rows were written to it; nothing was committed. Create the "
        "branch again and write again, or write to another branch",
        path=table,
        branch=name,
    )


def _has_schema(snapshots: Snapshots, schema_id: int) -> bool:
    return snapshots.io.exists(Schemas(snapshots.io, snapshots.root).path(schema_id))


def _stored(snapshots: Snapshots, schema_id: int) -> TableSchema | None:
    try:
        return Schemas(snapshots.io, snapshots.root).get(schema_id)
    except StorageError as e:
        if not e.missing:
            raise
        return None


def _schema_gone(snapshots: Snapshots, schema_id: int, stored: TableSchema | None) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"{snapshots.root}: schema {schema_id}, under which rows were written, was "
        f"{'removed' if stored is None else 'replaced'} meanwhile, as a fast-forward does; nothing was committed. "
        "Open the table again and write again",
        path=snapshots.root,
        schema=schema_id,
    )
