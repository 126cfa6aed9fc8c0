"""Lists the files that a snapshot needs. Expiry keeps these files, orphan removal counts them as used, and doctor
checks that they exist.

Source: Paimon 2.0 FileDeletionBase, SnapshotDeletion, OrphanFilesClean.
"""

import re
from collections.abc import Sequence
from functools import partial

from bucketline.state.commit.expire import FileKey, Footprint, file_key
from bucketline.state.errors import StorageError
from bucketline.state.format.entries import IndexManifestEntry, ManifestEntry, ManifestFileMeta, Snapshot
from bucketline.state.format.entry_filter import EntryFilter
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.packed_changelog import stored_path
from bucketline.state.format.paths import MANIFEST_DIR, STATISTICS_DIR, bucket_path, index_folder
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.storage.file_io import FileIO, file_io_for
from bucketline.state.store.storage.parallel import all_at_once

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def data_paths(root: str, schema: TableSchema, entry: ManifestEntry) -> list[str]:
    """Returns the full paths of a data file and of its extra files (such as file indexes). For a part of a packed
    changelog file, returns the path of the packed file.
    """
    names = (entry.file.file_name, *entry.file.extra_files)
    if entry.file.external_path is not None:
        folder = entry.file.external_path.rpartition("/")[0]
    else:
        folder = f"{root}/{bucket_path(schema, entry.partition, entry.bucket)}"
    return [stored_path(f"{folder}/{name}") for name in names]


def index_path(schema: TableSchema, entry: IndexManifestEntry) -> str:
    """Returns the path of an index file relative to the table's folder; for an index file outside the table, its full
    path.
    """
    if entry.external_path is not None:
        return entry.external_path
    return f"{index_folder(schema, entry.partition, entry.bucket)}/{entry.file_name}"


def located(root: str, path: str) -> str:
    """Returns the full path for a result of `index_path`. `root` is the table's folder."""
    return path if path.startswith("/") or _URI.match(path) else f"{root}/{path}"


def reach(io: FileIO, schema: TableSchema, path: str) -> tuple[FileIO, str]:
    """Returns the storage of a file of the table, and the path on this storage. The file is given by its full path; if
    the path is a URI, the URI says on which storage the file is; otherwise the file is on the table's own storage.
    """
    return file_io_for(path, schema.storage) if _URI.match(path) else (io, path)


def remove_file(io: FileIO, schema: TableSchema, path: str) -> None:
    """Removes a file of the table, given by its full path. A missing file is no error."""
    io, path = reach(io, schema, path)
    io.delete(path)


def exists_file(io: FileIO, schema: TableSchema, path: str) -> bool:
    """Returns True if there is a file of the table at this full path."""
    io, path = reach(io, schema, path)
    return io.exists(path)


def remove_in_steps(io: FileIO, schema: TableSchema, *steps: Sequence[str]) -> None:
    """Removes files of the table as `remove_file` does. Each of `steps` is a list of full paths: the files of a step
    are removed only after the files of all earlier steps. On slow storage, the files of one step are removed in
    parallel.
    """
    for paths in steps:
        all_at_once(io, [partial(remove_file, io, schema, path) for path in paths])


def metadata_steps(root: str, footprint: Footprint) -> tuple[Sequence[str], ...]:
    """Returns the full paths of the files in `footprint` (the metadata files of a snapshot), in steps for
    `remove_in_steps`. A file that names other files is in a later step than these files, so that an interrupted removal
    can be repeated.
    """
    return (
        [
            *(located(root, p) for p in sorted(footprint.index_files)),
            *(f"{root}/{STATISTICS_DIR}/{n}" for n in sorted(footprint.statistics)),
        ],
        [f"{root}/{MANIFEST_DIR}/{n}" for n in sorted(footprint.manifests)],
        [f"{root}/{MANIFEST_DIR}/{n}" for n in sorted(footprint.lists)],
    )


def footprint_of(manifests: Manifests, schema: TableSchema, snapshot: Snapshot) -> Footprint:
    """Returns the files that a snapshot needs in addition to data files. Raises StorageError if a file that names other
    files is missing.

    Changelog files are not included, because a changelog is removed with its snapshot, even if tags keep other files of
    the snapshot.
    """
    metas = manifests.base_and_delta(snapshot)
    index = manifests.read_index(snapshot.index_manifest)
    return _footprint(schema, snapshot, metas, index, with_changelog=False)


def remains_of(manifests: Manifests, schema: TableSchema, snapshot: Snapshot) -> Footprint:
    """Returns the files that a snapshot needs in addition to data files, and the snapshot's changelog files. Files
    that can no longer be found, because a manifest list is missing, are left out.
    """
    lists = [
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
    ]
    if snapshot.changelog_manifest_list is not None:
        lists.append((snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size))
    metas: list[ManifestFileMeta] = []
    for name, size in lists:
        try:
            metas += manifests.read_list(name, size)
        except StorageError as e:
            reraise_unless_missing(e)
    index: list[IndexManifestEntry] = []
    try:
        index = manifests.read_index(snapshot.index_manifest)
    except StorageError as e:
        reraise_unless_missing(e)
    return _footprint(schema, snapshot, metas, index, with_changelog=True)


def index_only(snapshot: Snapshot) -> frozenset[str]:
    """Returns a set with the name of the snapshot's index manifest; an empty set if the snapshot has none."""
    return frozenset() if snapshot.index_manifest is None else frozenset({snapshot.index_manifest})


def delta_or_nothing(manifests: Manifests, snapshot: Snapshot) -> list[ManifestEntry]:
    """Returns the changes of the snapshot. Returns no entry at all if some of the manifests with the changes no longer
    exist.

    A part of the changes would be misleading. For example, a file that moves to a higher level has a DELETE entry and
    an ADD entry; the DELETE entry alone would mean that the file was removed.
    """
    try:
        return manifests.delta_entries(snapshot)
    except StorageError as e:
        reraise_unless_missing(e)
        return []


def changelog_or_nothing(manifests: Manifests, snapshot: Snapshot) -> list[ManifestEntry]:
    """Returns the entries of the snapshot's changelog that can still be read. Manifests that no longer exist are
    skipped.
    """
    if snapshot.changelog_manifest_list is None:
        return []
    entries: list[ManifestEntry] = []
    try:
        for meta in manifests.read_list(snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size):
            try:
                entries += manifests.read(meta)
            except StorageError as e:
                reraise_unless_missing(e)
    except StorageError as e:
        reraise_unless_missing(e)
    return entries


def live_keys(manifests: Manifests, snapshot: Snapshot, among: Sequence[ManifestEntry]) -> set[FileKey]:
    """Returns the data files that are live in a snapshot, each as (partition, bucket, file name). Only the buckets of
    the entries `among` are looked at; manifests of other buckets are not read.
    """
    if not among:
        return set()
    wanted = EntryFilter(buckets=frozenset((e.partition, e.bucket) for e in among))
    return {file_key(e) for e in manifests.live_entries(snapshot, wanted)}


def reraise_unless_missing(error: StorageError) -> None:
    """Raises the error again, unless the error says that a file does not exist."""
    if not error.missing:
        raise error


def _footprint(
    schema: TableSchema,
    snapshot: Snapshot,
    metas: Sequence[ManifestFileMeta],
    index: Sequence[IndexManifestEntry],
    *,
    with_changelog: bool,
) -> Footprint:
    lists = {snapshot.base_manifest_list, snapshot.delta_manifest_list}
    if with_changelog and snapshot.changelog_manifest_list is not None:
        lists.add(snapshot.changelog_manifest_list)
    manifests = {m.file_name for m in metas}
    if snapshot.index_manifest is not None:
        manifests.add(snapshot.index_manifest)
    return Footprint(
        lists=frozenset(lists),
        manifests=frozenset(manifests),
        index_files=frozenset(index_path(schema, e) for e in index),
        statistics=frozenset() if snapshot.statistics is None else frozenset({snapshot.statistics}),
    )
