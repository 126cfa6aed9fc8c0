"""Finds and removes orphan files: files that no snapshot, tag, changelog or branch of a table names.

Writers and removals that crash leave orphan files. A file that a writer has not committed yet looks the same. So a file
counts as an orphan file only if it is a day old by the storage's clock (`commit.file_age`), and new commits are read
again and again during the removal.

Source: Paimon 2.0 OrphanFilesClean, LocalOrphanFilesClean. Stricter in two points: a snapshot or tag that cannot be
read stops the removal, because the files that it needs are not known; and Paimon allows any age.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bucketline.conf.errors import FilesTooYoungError, OptionError
from bucketline.state.commit.file_age import REMOVABLE_MS
from bucketline.state.determinism import World
from bucketline.state.store.catalog.owned import check_owned
from bucketline.state.store.catalog.pins import Notebook
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.maintenance.clean_places import OldFiles, is_of_plan, is_temporary, table_folders
from bucketline.state.store.maintenance.left_pins import look_and_drop_left
from bucketline.state.store.maintenance.named_files import NamedFiles, Progress
from bucketline.state.store.storage.file_info import FileInfo
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.hidden_files import bring_back, is_aside, own_name, place_aside, put_aside
from bucketline.state.store.storage.objects.unended_uploads import end_upload
from bucketline.state.store.storage.storage_clock import storage_now_ms

_AT_ONCE = 20
"""How many files are removed between two looks at new commits."""


@dataclass(frozen=True, slots=True)
class OrphanResult:
    """The files that nothing names, ordered by path. `deleted` says whether they were removed."""

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
    progress: Progress = lambda done, total: None,
) -> OrphanResult:
    """Returns the orphan files whose content last changed more than `older_than_ms` ago, and removes them unless it is
    a dry run. Uploads in parts that were begun that long ago and not completed are included.

    Ages are measured by the storage's clock; a dry run writes nothing, so it uses this machine's clock. If the storage
    does not record when a file was written, the file is kept. Files younger than a day may be removed only with
    `no_writers`, which states that no process writes to the table. `progress` is called after each snapshot whose files
    were looked up.

    Takes about 300 bytes of memory for each file in the table's folder while the folder is listed, then as much for
    each old file, and 150 bytes for each file, manifests included, that is in use.

    Raises FilesTooYoungError for a removal of files younger than a day without `no_writers`, OptionError for a negative
    time, UnsupportedTableError for storage that records no times, CorruptFileError if a snapshot, tag or branch cannot
    be read. Nothing has been removed then, unless the unreadable snapshot or tag was made during the removal.
    """
    world = table.world
    if not dry_run:
        check_owned(table.table_schema, table.io, table.path)
    _check_age(table, older_than_ms, may_be_young=dry_run or no_writers)
    if not dry_run:
        look_and_drop_left(table.io, Notebook(table.io, table.path), world)
    # Files are listed before the names are collected, so the names include files that are committed in between.
    listed = []
    for folder in table_folders(table):
        now_ms = world.clock.now_ms() if dry_run else storage_now_ms(folder.io, folder.root, world)
        listed.append(folder.list_old(now_ms - older_than_ms))
    used = NamedFiles(table.io, table.path, table.manifests)
    used.collect(progress)
    uploads = [(old.io, upload) for old in listed for upload in old.uploads]
    if dry_run:
        orphans = (f for old in listed for f in old.files if _is_orphan(f, used))
        return OrphanResult((*orphans, *(upload for _, upload in uploads)), deleted=False)
    removed = [file for old in listed for file in _remove_old(old, used, world)]
    for io, upload in uploads:
        end_upload(io, upload)
        removed.append(upload)
    return OrphanResult(tuple(removed), deleted=True)


def _check_age(table: TableHandle, older_than_ms: int, *, may_be_young: bool) -> None:
    if older_than_ms < 0:
        raise OptionError(
            f"older_than must not be negative, but is {older_than_ms} ms", key="older_than", value=older_than_ms
        )
    if older_than_ms < REMOVABLE_MS and not may_be_young:
        raise FilesTooYoungError(
            f"{table.path}: files younger than a day may belong to a writer that is about to commit, so they are not "
            f"removed; older_than is {older_than_ms} ms and must be at least a day, unless no_writers is set",
            key="older_than",
            value=older_than_ms,
        )


def _remove_old(old: OldFiles, used: NamedFiles, world: World) -> Iterator[FileInfo]:
    """Removes the orphan files of a folder, and yields each file when it is gone."""
    for file in old.aside:
        if not _is_orphan(file, used):
            bring_back(old.io, file)
    orphans = [f for f in old.files if _is_orphan(f, used)]
    for start in range(0, len(orphans), _AT_ONCE):
        # A commit that was published since the names were collected may name old files, if it has checked that they
        # exist.
        used.follow()
        still_orphans = [f for f in orphans[start : start + _AT_ONCE] if _is_orphan(f, used)]
        yield from _remove(old.io, still_orphans, used, world)


def _remove(io: FileIO, files: Sequence[FileInfo], used: NamedFiles, world: World) -> list[FileInfo]:
    """Removes the files, and returns the files that are gone. If the storage can rename in one step, a file is hidden
    first, and then removed only if no new commit names it.
    """
    places: dict[str, tuple[FileInfo, FileInfo]] = {}
    removed = []
    try:
        for file in files:
            place = file if is_temporary(file) or is_of_plan(file) else place_aside(io, file, world)
            places[place.path] = file, place
            if not put_aside(io, file, place):
                del places[place.path]
        if any(is_aside(place) for _, place in places.values()):
            used.follow()
        for path, (file, place) in list(places.items()):
            # The file's writer may have brought it back.
            if _is_orphan(file, used) and (place is file or io.exists(path)):
                io.delete(path)
                removed.append(file)
                del places[path]
    finally:
        for _, place in places.values():
            bring_back(io, place)
    return removed


def _is_orphan(file: FileInfo, used: NamedFiles) -> bool:
    return is_temporary(file) or own_name(file) not in used.names
