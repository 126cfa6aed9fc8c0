"""Finds whether two data files of a bucket have a key in common, if their key ranges overlap."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import StorageError
from bucketline.state.format.entries import ManifestEntry
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.types.binary_row import encode_rows


def hold_common_keys(access: BucketAccess, first: ManifestEntry, other: ManifestEntry) -> bool:
    """Whether a key is in both files; True if one of the files is gone. Memory: the keys of the smaller file."""
    small, large = sorted((first, other), key=lambda e: e.file.row_count)
    try:
        keys = [batch_keys for batch_keys in _keys(access, small) if len(batch_keys)]
        if not keys:
            return False
        known = pa.concat_arrays(keys)
        return any(pc.any(pc.is_in(batch_keys, value_set=known)).as_py() for batch_keys in _keys(access, large))
    except StorageError as e:
        if not e.missing:
            raise
        return True


def _keys(access: BucketAccess, entry: ManifestEntry) -> Iterator[pa.Array]:
    fields = access.schema.select(access.schema.trimmed_primary_key)
    types, names = [f.type.as_nullable() for f in fields], [f.name for f in fields]
    bucket = BucketFiles(entry.partition, entry.bucket, total_buckets=entry.total_buckets, files=(entry.file,))
    for batch in access.files.rows(bucket, entry.file, names):
        yield encode_rows([batch[name] for name in names], types, with_arity=False)
