"""Removes the files of work that failed before or at its commit; never a file that a snapshot names.

Source: Paimon 2.0 CommitCleaner. Paimon's abort also deletes files that were only moved to a higher level, which are
live, and keeps manifests of lost tries.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from bucketline.state.commit.message import CommitMessage
from bucketline.state.errors import StorageError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import bucket_path
from bucketline.state.store.catalog.kept_files import index_path, located, remove_file
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.commit.commit_base import changes_since
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.parallel import all_at_once


def compaction_outputs(schema: TableSchema, messages: Iterable[CommitMessage]) -> Iterator[tuple[str, str]]:
    """Yields the name and the path of each file that the compactions of the messages have written; the path is relative
    to the table, or full for a file outside the table. Files that were only moved to a higher level are left out,
    because they are live.
    """
    for m in messages:
        folder = bucket_path(schema, m.partition, m.bucket)
        others = {f.file_name for f in (*m.compact_before, *m.new_files, *m.deleted_files)}
        for file in (*m.compact_after, *m.compact_changelog):
            if file.file_name not in others:
                yield from _with_extra(folder, file)
        for index in m.compact_index_files:
            if index.external_path is None:
                yield index.file_name, index_path(schema, index)


def names_since(snapshots: Snapshots, manifests: Manifests, since: int) -> set[str] | None:
    """Returns the names of all files that snapshots after the id `since` have added; None if some of these snapshots
    can no longer be read.
    """
    latest = snapshots.latest_id() or 0
    changes = changes_since(snapshots, manifests, since, latest)
    if changes is None:
        return None
    names: set[str] = set()
    for snapshot, delta in changes:
        for entry in (*delta, *manifests.changelog_entries(snapshot)):
            names |= {entry.file.file_name, *entry.file.extra_files}
        names |= {e.file_name for e in manifests.read_index(snapshot.index_manifest)}
    return names


def discard_outputs(
    io: FileIO,
    table_path: str,
    schema: TableSchema,
    messages: Iterable[CommitMessage],
    taken_names: set[str],
) -> None:
    """Removes the files that were written by compactions whose commit was refused. Files whose names are in
    `taken_names` stay. A file that cannot be removed stays too.
    """
    outputs = compaction_outputs(schema, messages)
    _remove(io, schema, [located(table_path, path) for name, path in outputs if name not in taken_names])


def discard_made(io: FileIO, table_path: str, schema: TableSchema, messages: Iterable[CommitMessage]) -> None:
    """Removes every file that the writers of the messages have created. A file that cannot be removed stays. This
    function is only for messages that are certainly in no snapshot and never will be.
    """
    paths: list[str] = []
    for m in messages:
        folder = bucket_path(schema, m.partition, m.bucket)
        indexes = (e for e in (*m.new_index_files, *m.compact_index_files) if e.external_path is None)
        paths += [path for f in m.made_files for _, path in _with_extra(folder, f)]
        paths += [index_path(schema, e) for e in indexes]
    _remove(io, schema, [located(table_path, path) for path in paths])


def _remove(io: FileIO, schema: TableSchema, paths: Sequence[str]) -> None:
    """Removes the files, several at the same time if the storage is slow. A file that cannot be removed stays."""

    def remove(path: str) -> None:
        with suppress(StorageError):
            remove_file(io, schema, path)

    all_at_once(io, [partial(remove, path) for path in paths])


def _with_extra(folder: str, file: DataFileMeta) -> Iterator[tuple[str, str]]:
    """Yields the name and the path of a file and of its extra files. The extra files are in the same folder as the
    file.
    """
    place = folder if file.external_path is None else file.external_path.rpartition("/")[0]
    for name in (file.file_name, *file.extra_files):
        yield name, f"{place}/{name}"


@contextmanager
def discarded_on_error(access: BucketAccess) -> Iterator[list[CommitMessage]]:
    """Gives the `with` block a list, to which the block adds the messages that it makes. If the block raises an error,
    the files of these messages are removed again.
    """
    messages: list[CommitMessage] = []
    try:
        yield messages
    except BaseException:
        discard_made(access.files.io, access.files.table_path, access.schema, messages)
        raise


def discard_manifests(manifests: Manifests, names: Iterable[str]) -> None:
    """Removes files of the manifest folder that no snapshot names. A file that cannot be removed stays."""
    for name in names:
        with suppress(StorageError):
            manifests.delete([name])
