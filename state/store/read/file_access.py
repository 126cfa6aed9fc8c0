"""Reads the rows of one data file, for every kind of read. Leaves out deleted rows, expired rows, and parts of the file
that the read does not need.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.packed_changelog import stored_path
from bucketline.state.format.paths import bucket_path
from bucketline.state.format.row_age import RowAge
from bucketline.state.format.row_places import ROW_INDEX, places_among
from bucketline.state.format.row_ranges import TRACKED_NAMES, with_tracked
from bucketline.state.store.datafile.column_mapping import Mappings
from bucketline.state.store.datafile.data_files import (
    BATCH_BYTES,
    BATCH_ROWS,
    BatchLimit,
    ChooseGroups,
    chosen_groups,
    read_data_file,
)
from bucketline.state.store.datafile.parquet_rows import RowGroup
from bucketline.state.store.index.deletion_vectors import DeletedRows, Positions, drop_deleted
from bucketline.state.store.read.evolved_rows import fill_tracked
from bucketline.state.store.read.prune import BucketFiles, SchemaOf
from bucketline.state.store.read.row_groups import FileShare, GroupChoice
from bucketline.state.store.read.row_places import BucketPlace, numbered, stored_columns, with_places
from bucketline.state.store.read.wanted_values import WantedValues
from bucketline.state.store.storage.file_io import FileIO, file_io_for

_MOST_GROUPS = 8
"""For a file with deleted rows: the largest number of row groups that are read one by one. If more row groups are
wanted, the whole file is read.
"""


@dataclass(frozen=True, slots=True)
class FileAccess:
    """Access to a table's data files: the places of the files, and their schemas.

    `deletions` has the rows that deletion vectors delete.
    `age` says which rows have expired; expired rows are left out.
    `choice` decides which row groups of a Parquet file are skipped, because none of the rows in them can meet the
    filter.
    `share` says which part of each file is read; None for the whole file.

    The attributes are together because every file of a read is opened with all of them.
    """

    io: FileIO
    table_path: str
    schema: TableSchema
    schema_of: SchemaOf
    deletions: DeletedRows | None = None
    batch_bytes: int = BATCH_BYTES
    age: RowAge | None = None
    choice: GroupChoice | None = None
    share: FileShare | None = None
    mappings: Mappings = field(default_factory=Mappings, compare=False, repr=False)
    wanted: WantedValues = field(default_factory=WantedValues, compare=False, repr=False)

    def place(self, bucket: BucketFiles, file: DataFileMeta) -> tuple[FileIO, str]:
        """Returns the storage and the path of a data file. The file is in its bucket's folder, unless its metadata
        names a full path. For a part of a packed changelog file, the path is that of the packed file.
        """
        if file.external_path is not None:
            return file_io_for(stored_path(file.external_path), self.schema.storage)
        folder = bucket_path(self.schema, bucket.partition, bucket.bucket)
        return self.io, stored_path(f"{self.table_path}/{folder}/{file.file_name}")

    def rows(
        self, bucket: BucketFiles, file: DataFileMeta, columns: Sequence[str], *, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Returns the rows of one file, without rows that deletion vectors delete. Rows of the kinds -U and -D are
        included. Raises the errors of `read_data_file`.
        """
        io, path = self.place(bucket, file)
        stored = self.schema_of(file.schema_id)
        wanted, columns = columns, stored_columns(self.schema, columns)
        columns = columns if self.age is None else with_time(self.age, columns)
        places = places_among(self.schema, wanted)
        reads_tracked = not self.schema.primary_keys and any(name in columns for name in TRACKED_NAMES)
        deleted = None
        if self.deletions is not None:
            deleted = self.deletions.of_file(bucket.partition, bucket.bucket, file.file_name)
        by_position = reads_tracked or ROW_INDEX in places
        choose = None if by_position else self._chooser(file, stored)
        read = partial(
            read_data_file,
            io,
            path,
            file,
            self.schema,
            columns,
            stored=with_tracked(stored) if reads_tracked else stored,
            partition=bucket.partition,
            limit=BatchLimit(batch_rows, self.batch_bytes),
            mappings=None if reads_tracked else self.mappings,
        )
        if by_position:
            batches = fill_tracked(read(), file) if reads_tracked else read()
            batches = numbered(batches) if ROW_INDEX in places else batches
            batches = batches if deleted is None else drop_deleted(batches, deleted, path)
        elif deleted is None:
            batches = read(groups=choose)
        else:
            groups = None if choose is None else chosen_groups(io, path, file, choose)
            most = _MOST_GROUPS if self.share is None else None
            batches = _less_deleted(read, deleted, path, groups, most)
        if self.age is not None:
            batches = _unexpired(batches, self.age, wanted)
        if not places:
            return batches
        place = BucketPlace.of(self.schema, bucket, file.external_path or path)
        return with_places(batches, place, wanted)

    def _chooser(self, file: DataFileMeta, stored: TableSchema) -> ChooseGroups | None:
        """Returns the function that chooses which row groups of a file are read; None if all are read."""
        choice, share = self.choice, self.share
        if choice is None and share is None:
            return None

        def choose(groups_of: Callable[[str], list[RowGroup]]) -> list[RowGroup] | None:
            kept = None if choice is None else choice.choose(stored, groups_of)
            if share is None:
                return kept
            return share.of(groups_of("") if kept is None else kept, file.row_count)

        return choose


def _less_deleted(
    read: Callable[..., Iterator[pa.RecordBatch]],
    deleted: Positions,
    path: str,
    groups: Sequence[RowGroup] | None,
    most: int | None,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file, or of some of its row groups, without the rows at the deleted positions. If more than
    `most` row groups are wanted, the whole file is read.
    """
    if groups is None or (most is not None and len(groups) > most):
        yield from drop_deleted(read(), deleted, path)
        return
    for group in groups:
        first, last = np.searchsorted(deleted, [group.first_row, group.first_row + group.row_count])
        yield from drop_deleted(read(groups=[group.number]), deleted[first:last] - group.first_row, path)


def with_time(age: RowAge, columns: Sequence[str]) -> Sequence[str]:
    """Returns the columns, and adds the column that holds the time of a row, if it is not among them."""
    return columns if age.field.name in columns else (*columns, age.field.name)


def _unexpired(batches: Iterable[pa.RecordBatch], age: RowAge, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        kept = batch.filter(age.keeps(batch.column(age.field.name)))
        yield kept if age.field.name in wanted else kept.drop_columns([age.field.name])
