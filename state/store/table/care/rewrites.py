"""Rewrites a table's metadata when a user asks for it: merges manifests, or removes lost files. Each rewrite is one
commit.

Source: Paimon 2.0 FileStoreCommitImpl.compactManifest, SparkRemoveUnexistingFiles.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Append, AppendCheck
from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import FileKind, IndexManifestEntry, ManifestEntry
from bucketline.state.store.catalog.kept_files import data_paths, exists_file
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.read.bucket_deletions import load_deletions, masked_files
from bucketline.state.store.storage.parallel import all_at_once
from bucketline.state.store.table.cycle import Commit, carry_out
from bucketline.state.store.write.commit_change import appended
from bucketline.state.store.write.table_at import TableAt, table_at

_MERGES_ALL = {"manifest.full-compaction-threshold-size": "1 b", "manifest.merge-min-count": "1"}


def merge_manifests(table: TableHandle) -> int | None:
    """Merges all manifests into as few as possible, in a snapshot without new files. Returns the id of the snapshot;
    None if the table has at most one manifest and no manifest lists deleted files.
    """
    newest = table.snapshot_store.latest()
    metas = [] if newest is None else table.manifests.base_and_delta(newest)
    if len(metas) < 2 and not any(m.num_deleted_files for m in metas):
        return None
    at = table_at(table, _MERGES_ALL).refreshed()
    change, author = Append((), ignore_empty=False), Author(table.world.ids.new_uuid())
    return carry_out(at, LOCAL_ENGINE, lambda made: Commit(change, author)).snapshot_id


def forget_lost_files(table: TableHandle, *, dry_run: bool) -> tuple[str, ...]:
    """Finds live data files that do not exist, and returns their paths. If `dry_run` is False, the files are also
    removed from the metadata. The rows of the missing files are lost, and all other rows can be read again.
    """
    at = table_at(table, {}).refreshed()
    schema, io = at.plan.schema, table.io
    found = [
        ManifestEntry(FileKind.ADD, partition, bucket, at.view.total_of_bucket((partition, bucket)), file)
        for partition, bucket in at.view.buckets()
        for file in at.view.files((partition, bucket))
    ]
    paths = [data_paths(table.path, schema, entry)[0] for entry in found]
    there = all_at_once(io, [partial(exists_file, io, schema, path) for path in paths])
    lost = [(entry, path) for entry, path, is_there in zip(found, paths, there, strict=True) if not is_there]
    if lost and not dry_run:
        by_bucket: dict[BucketId, list[DataFileMeta]] = {}
        for entry, _ in lost:
            by_bucket.setdefault((entry.partition, entry.bucket), []).append(entry.file)
        messages = [_without(at, bucket_id, files) for bucket_id, files in by_bucket.items()]
        change = appended(at, messages, check=AppendCheck.ALL_RULES)
        author = Author(table.world.ids.new_uuid())
        carry_out(at, LOCAL_ENGINE, lambda made: Commit(change, author, brought=messages))
    return tuple(path for _, path in lost)


def _without(at: TableAt, bucket_id: BucketId, files: Sequence[DataFileMeta]) -> CommitMessage:
    """Returns the commit message that removes these files and their deletion vectors from the bucket."""
    message = CommitMessage(*bucket_id, at.view.total_of_bucket(bucket_id), deleted_files=tuple(files))
    names = {f.file_name for f in files}
    touched = tuple(e for e in at.deletion_entries().get(bucket_id, ()) if names & masked_files((e,)))
    if not touched:
        return message
    access = at.plan.access
    deletions = load_deletions(access.files, touched)
    for name in names:
        deletions.forget(name)
    by_name = not bucket_mode(at.plan.schema).has_buckets
    made: tuple[IndexManifestEntry, ...] = ()
    if not (by_name and deletions.is_empty):
        files_of = access.files
        made = (
            deletions.write(files_of.io, files_of.table_path, bucket_id, schema=at.plan.schema, world=access.world),
        )
    return replace(message, new_index_files=made, deleted_index_files=touched if by_name else ())
