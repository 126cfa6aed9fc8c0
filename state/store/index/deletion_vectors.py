"""The deletion vectors of a snapshot, which say which rows of each data file are deleted. A vector is read together
with the data file that it belongs to.

Source: Paimon 2.0 IndexFileHandler, DeletionVectorsIndexFile, ApplyDeletionVectorReader.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.entries import DeletionVectorRange, IndexManifestEntry
from bucketline.state.format.index.deletion_vector import (
    DELETION_VECTORS,
    FILE_VERSION,
    decode_deletion_vector,
    read_span,
)
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import index_folder
from bucketline.state.store.storage.decoding import naming_file
from bucketline.state.store.storage.file_io import FileIO, file_io_for

Positions = NDArray[np.int64]
"""Positions of rows in one data file, in ascending order, from 0."""


class DeletedRows(Protocol):
    """Which rows of data files are deleted, by position."""

    def of_file(self, partition: bytes, bucket: int, file_name: str) -> Positions | None: ...


@dataclass(frozen=True, slots=True)
class Deletions:
    """Where a snapshot's deletion vectors are stored, by (partition, bucket, data file name)."""

    places: Mapping[tuple[bytes, int, str], tuple[FileIO, str, DeletionVectorRange]] = field(default_factory=dict)

    def count_of_file(self, partition: bytes, bucket: int, file_name: str) -> int | None:
        """Returns the number of deleted rows of a data file, as the index manifest records it; None if the manifest
        does not record it.
        """
        place = self.places.get((partition, bucket, file_name))
        return 0 if place is None else place[2].cardinality

    def of_file(self, partition: bytes, bucket: int, file_name: str) -> Positions | None:
        """Returns the positions of the deleted rows of a data file; None if the data file has no deletion vector.
        Raises CorruptFileError that names the index file.
        """
        place = self.places.get((partition, bucket, file_name))
        if place is None:
            return None
        io, path, at = place
        offset, length = read_span(at)
        with io.open_input(path) as source:
            version = source.read(len(FILE_VERSION))
            if version != FILE_VERSION or offset < len(FILE_VERSION) or length < 0:
                raise CorruptFileError(
                    f"{path}: the index manifest names a deletion vector at offset {offset}, but there is none",
                    path=path,
                    offset=0,
                )
            if offset > source.size():
                raise CorruptFileError(
                    f"{path}: the file ends before the end of the deletion vector at offset {offset}",
                    path=path,
                    offset=offset,
                )
            source.seek(offset)
            blob = source.read(length)
        with naming_file(path):
            vector = decode_deletion_vector(blob, at)
        return np.frombuffer(vector.to_array(), dtype=np.uint32).astype(np.int64)


def find_deletions(
    io: FileIO, table_path: str, schema: TableSchema, entries: Iterable[IndexManifestEntry]
) -> Deletions:
    """Returns the deletion vectors of data files. `entries` are the entries of an index manifest; they name the index
    files that hold the vectors. Raises CorruptFileError if a data file has two vectors.
    """
    places: dict[tuple[bytes, int, str], tuple[FileIO, str, DeletionVectorRange]] = {}
    for entry in entries:
        if entry.index_type != DELETION_VECTORS:
            continue
        folder = index_folder(schema, entry.partition, entry.bucket)
        where, path = io, f"{table_path}/{folder}/{entry.file_name}"
        if entry.external_path is not None:
            where, path = file_io_for(entry.external_path, schema.storage)
        for at in entry.deletion_vector_ranges or ():
            key = entry.partition, entry.bucket, at.data_file_name
            if key in places:
                raise CorruptFileError(f"{path}: {at.data_file_name} has two deletion vectors", path=path)
            places[key] = where, path, at
    return Deletions(places)


def drop_deleted(batches: Iterable[pa.RecordBatch], deleted: Positions, path: str) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file that are not deleted. `batches` must be all rows of the file at `path`, in file order.

    Raises CorruptFileError if `deleted` has the position of a row that the file does not have.
    """
    start = 0
    for batch in batches:
        first, last = np.searchsorted(deleted, [start, start + batch.num_rows])
        if first == last:
            yield batch
        elif last - first < batch.num_rows:
            kept = np.ones(batch.num_rows, bool)
            kept[deleted[first:last] - start] = False
            yield batch.filter(pa.array(kept))
        start += batch.num_rows
    if len(deleted) and deleted[-1] >= start:
        raise CorruptFileError(
            f"{path}: its deletion vector marks row {deleted[-1]}, but the file has {counted(start, 'row')}",
            path=path,
            offset=0,
        )
