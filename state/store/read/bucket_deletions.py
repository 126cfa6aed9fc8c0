"""Holds the deletion vectors of one bucket while it is compacted: reads the existing vectors, adds deleted rows, and
writes a new file with all vectors.

Source: Paimon 2.0 BucketedDvMaintainer, DeletionVectorIndexFileWriter: one file holds all vectors of a bucket. The file
is replaced by a new file when one of the vectors has changed, even if there are no vectors left.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from pyroaring import BitMap

from bucketline.state.commit.live_files import BucketId
from bucketline.state.determinism import World
from bucketline.state.format.entries import FileKind, IndexManifestEntry
from bucketline.state.format.index.deletion_vector import (
    DELETION_VECTORS,
    decode_deletion_vectors,
    encode_deletion_vectors,
)
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import index_file_name, index_folder
from bucketline.state.lsm.aggregate.events import Indices
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.storage.decoding import naming_file
from bucketline.state.store.storage.file_io import FileIO, file_io_for

VectorFiles = tuple[IndexManifestEntry, ...]
"""The index files with the deletion vectors of one bucket: at most one file, except in append tables without
buckets.
"""

NO_VECTORS: Mapping[BucketId, VectorFiles] = MappingProxyType({})
"""The deletion-vector files of a table that has no deletion vectors."""


class BucketDeletions:
    """The positions of the deleted rows in the files of one bucket, by file name. They were read from deletion vectors,
    and more positions can be added. `is_modified` is true if the positions differ from the stored deletion vectors.
    """

    def __init__(self, vectors: Mapping[str, BitMap] | None = None) -> None:
        self._vectors = {name: BitMap(vector) for name, vector in (vectors or {}).items()}
        self.is_modified = False

    def of_name(self, file_name: str) -> Indices | None:
        """Returns the positions of the deleted rows of a data file, in ascending order; None if no row is deleted."""
        vector = self._vectors.get(file_name)
        return None if vector is None else np.frombuffer(vector.to_array(), np.uint32).astype(np.int64)

    def of_file(self, partition: bytes, bucket: int, file_name: str) -> Indices | None:
        """Returns the positions of the deleted rows of a data file, in ascending order; None if no row is deleted.
        Partition and bucket are ignored, because all files belong to one bucket.
        """
        return self.of_name(file_name)

    def delete(self, file_name: str, positions: Indices) -> None:
        """Marks the rows at these positions as deleted."""
        vector = self._vectors.setdefault(file_name, BitMap())
        before = len(vector)
        # A bitmap is built in one step from an array of this type, but value by value from any other array.
        vector |= BitMap(array("I", positions.astype(np.uint32).tobytes()))
        self.is_modified |= len(vector) > before

    def forget(self, file_name: str) -> None:
        """Drops the deletion vector of a data file, because the file was rewritten without the deleted rows."""
        self.is_modified |= self._vectors.pop(file_name, None) is not None

    def keep(self, names: Collection[str]) -> None:
        """Drops the deletion vectors of all data files that are not in `names`. An index file of Paimon may have
        vectors of data files that are gone, and a commit with such vectors would be refused.
        """
        self._vectors = {name: vector for name, vector in self._vectors.items() if name in names}

    @property
    def is_empty(self) -> bool:
        return not any(self._vectors.values())

    def split(self, target_bytes: int) -> "list[BucketDeletions]":
        """Divides the deletion vectors into parts of about the given size in bytes, and returns the parts; an empty
        list if there are no deletion vectors.
        """
        parts: list[dict[str, BitMap]] = []
        size = 0
        for name in sorted(self._vectors):
            vector = self._vectors[name]
            if not vector:
                continue
            if not parts or size >= target_bytes:
                parts.append({})
                size = 0
            parts[-1][name] = vector
            size += len(vector.serialize())
        return [BucketDeletions(part) for part in parts]

    def write(
        self, io: FileIO, table_path: str, bucket_id: BucketId, *, schema: TableSchema, world: World
    ) -> IndexManifestEntry:
        """Writes an index file with the deletion vectors of all data files, and returns its entry for the index
        manifest.
        """
        partition, bucket = bucket_id
        bitmap64 = schema.settings.changelog.vectors_of_64_bits
        vectors = {name: self._vectors[name] for name in sorted(self._vectors) if self._vectors[name]}
        data, ranges = encode_deletion_vectors(vectors, bitmap64)
        name = index_file_name(world.ids.new_uuid(), 0)
        io.write_new(f"{table_path}/{index_folder(schema, partition, bucket)}/{name}", data)
        return IndexManifestEntry(
            kind=FileKind.ADD,
            partition=partition,
            bucket=bucket,
            index_type=DELETION_VECTORS,
            file_name=name,
            file_size=len(data),
            row_count=len(ranges),
            deletion_vector_ranges=ranges,
        )


def load_deletions(access: FileAccess, entries: VectorFiles) -> BucketDeletions:
    """Reads the deletion vectors of a bucket's data files from the index files `entries`. Returns an object that knows
    the positions of the deleted rows in each data file. Raises CorruptFileError that names the index file.
    """
    vectors: dict[str, BitMap] = {}
    for entry in entries:
        folder = index_folder(access.schema, entry.partition, entry.bucket)
        io, path = access.io, f"{access.table_path}/{folder}/{entry.file_name}"
        if entry.external_path is not None:
            io, path = file_io_for(entry.external_path, access.schema.storage)
        with naming_file(path):
            vectors |= decode_deletion_vectors(io.read(path), entry.deletion_vector_ranges or ())
    return BucketDeletions(vectors)


def deletion_entries(index: Iterable[IndexManifestEntry]) -> dict[BucketId, VectorFiles]:
    """Takes the entries of an index manifest. Returns for each bucket the entries of the index files that hold deletion
    vectors.
    """
    by_bucket: dict[BucketId, VectorFiles] = {}
    for entry in index:
        if entry.index_type == DELETION_VECTORS:
            place = (entry.partition, entry.bucket)
            by_bucket[place] = (*by_bucket.get(place, ()), entry)
    return by_bucket


def masked_files(entries: VectorFiles) -> frozenset[str]:
    """Returns the names of the data files for which these index files have a deletion vector."""
    return frozenset(r.data_file_name for e in entries for r in e.deletion_vector_ranges or ())


def vectors_by_file(entries: VectorFiles) -> dict[str, VectorFiles]:
    """Returns for each data file the entry of the index file that has its deletion vector. The entry is a copy that
    lists only this vector, and no vectors of other data files.
    """
    by_file: dict[str, VectorFiles] = {}
    for entry in entries:
        for vector_range in entry.deletion_vector_ranges or ():
            narrowed = replace(entry, deletion_vector_ranges=(vector_range,))
            by_file[vector_range.data_file_name] = (*by_file.get(vector_range.data_file_name, ()), narrowed)
    return by_file
