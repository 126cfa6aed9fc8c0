"""Checks that each key of a cross-partition table is in only one partition, by building the table's key index.

Two jobs that write at the same time can leave a key in two partitions. Readers then see two rows, and no job can tell
which row is right.
"""

from collections.abc import Iterator
from contextlib import closing

from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.catalog.kept_files import reraise_unless_missing
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.doctor.problem import Problem
from bucketline.state.store.key_index.build import KeyIndexBuild
from bucketline.state.store.key_index.index_scope import label_of
from bucketline.state.store.key_index.rocks import RocksSettings
from bucketline.state.store.key_index.table_keys import KeyShare, live_keys
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.storage.errors import scratch_folder


def unique_key_problems(table: TableHandle, snapshot: Snapshot) -> Iterator[Problem]:
    """Yields a problem if keys of a snapshot are in two partitions; none for tables whose keys cannot move between
    partitions, or whose keys expire.

    Takes the memory that `RocksSettings` allows, and about 20 bytes of disk for each key, in the system's temporary
    folder. Raises CorruptFileError or StorageError for a file that cannot be read, and StorageError for a full disk. A
    file that no longer exists ends the check without an error.
    """
    schema = table.table_schema
    if not bucket_mode(schema).moves_keys or schema.settings.bucket.index_ttl_ms is not None:
        return
    keys = KeyShare(schema)
    access = FileAccess(table.io, table.path, schema, table.schema_store.read_under(schema))
    vectors = table.manifests.read_index(snapshot.index_manifest)
    try:
        with (
            scratch_folder("bucketline-doctor-") as folder,
            KeyIndexBuild(f"{folder}/keys", keys.scope(table.uri), RocksSettings(), world=table.world) as build,
            closing(live_keys(access, table.manifests.live_entries(snapshot), vectors, keys)) as blocks,
        ):
            for block in blocks:
                build.add(block)
            build.finish(label_of(snapshot))
    except StorageError as e:
        # The missing file has been reported already.
        reraise_unless_missing(e)
    except CorruptFileError as e:
        if "places" not in e.fields:
            raise
        yield Problem("key-in-two-places", f"snapshot {snapshot.id}", e.message)
