"""Is each key of a table whose keys move between partitions in one of them? Asked by building its key index.

Two jobs that wrote at once leave a key in two partitions, which readers see as two rows and no job can tell apart.
"""

from collections.abc import Iterator
from contextlib import closing

from bucketline.state.bucket.mode import BucketMode, bucket_mode
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.catalog.kept_files import reraise_unless_missing
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.doctor.problem import Problem
from bucketline.state.store.key_index.build import KeyIndexBuild
from bucketline.state.store.key_index.index_scope import label_of
from bucketline.state.store.key_index.rocks import RocksSettings
from bucketline.state.store.key_index.table_keys import ShardKeys, live_keys
from bucketline.state.store.read.merge_read import FileAccess
from bucketline.state.store.storage.errors import scratch_folder


def place_problems(table: TableHandle, snapshot: Snapshot) -> Iterator[Problem]:
    """What is wrong with the places of keys in a snapshot; nothing for tables whose keys stay, or may come back
    elsewhere once they have expired.

    Memory: `RocksSettings`. Disk: about 20 bytes a key, in the system's temporary folder. Raises CorruptFileError,
    StorageError when files cannot be read for another reason than that they are gone, or the disk is full.
    """
    schema = table.table_schema
    if bucket_mode(schema) is not BucketMode.CROSS_PARTITION or schema.settings.bucket.index_ttl_ms is not None:
        return
    keys = ShardKeys(schema)
    access = FileAccess(table.io, table.path, schema, table.schema_store.get)
    vectors = table.manifests.read_index(snapshot.index_manifest)
    try:
        with (
            scratch_folder("bucketline-doctor-") as folder,
            KeyIndexBuild(f"{folder}/keys", keys.scope(table.uri), RocksSettings()) as build,
            closing(live_keys(access, table.manifests.live_entries(snapshot), vectors, keys)) as blocks,
        ):
            for block in blocks:
                build.add(block)
            build.finish(label_of(snapshot))
    except StorageError as e:
        # The file that is gone was told before.
        reraise_unless_missing(e)
    except CorruptFileError as e:
        if "places" not in e.fields:
            raise
        yield Problem("key-in-two-places", f"snapshot {snapshot.id}", e.message)
