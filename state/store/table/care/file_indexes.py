"""Makes bloom filters for data files that were written before the table's options asked for bloom filters.

The rows of a file are read, and an index is made of these rows; the data file stays unchanged. Files whose index
already has all wanted columns are skipped. Source: Paimon 2.0 RewriteFileIndexProcedure, FileIndexProcessor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Compact
from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.index.file_index import INDEX_SUFFIX, index_name
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.datafile.index_of_rows import IndexedField, IndexOfRows, indexed_fields
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.read.file_index import indexed_names
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.table.cycle import Commit, carry_out
from bucketline.state.store.table.partition_choice import choose_partitions
from bucketline.state.store.write.table_at import TableAt, table_at


@dataclass(frozen=True, slots=True)
class Indexed:
    """The number of files that got a new index, and the number of partitions with these files."""

    partitions: int = 0
    files: int = 0


def index_files(table: TableHandle, partitions: Sequence[Mapping[str, object]] | None) -> Indexed:
    """Makes the missing indexes of the table's files, in one commit, and returns the numbers of files and partitions
    with new indexes.

    Raises OptionError if no option names a column to index, and CommitConflictError if a compaction has replaced one
    of the files first; the table is unchanged then.
    """
    at = table_at(table, {}).refreshed()
    schema = at.plan.schema
    fields = indexed_fields(schema)
    if not fields:
        raise OptionError(
            f"{table.path} has no 'file-index.bloom-filter.columns': set it to the columns that need an index",
            key="file-index.bloom-filter.columns",
        )
    is_chosen = choose_partitions(schema, partitions)
    messages, written = [], 0
    for bucket_id in at.view.buckets():
        if bucket_id[1] < 0 or not is_chosen(bucket_id[0]):
            continue
        made = [
            (f, new) for f in at.view.files(bucket_id) if (new := _with_index(at, bucket_id, f, fields)) is not None
        ]
        written += len(made)
        if made:
            before, after = zip(*made, strict=True)
            total = at.view.total_of_bucket(bucket_id)
            messages.append(CommitMessage(*bucket_id, total, compact_before=before, compact_after=after))
    if messages:
        change, author = Compact(tuple(messages)), Author(table.world.ids.new_uuid())
        carry_out(at, LOCAL_ENGINE, lambda made: Commit(change, author))
    return Indexed(len({m.partition for m in messages}), written)


def _with_index(
    at: TableAt, bucket_id: BucketId, file: DataFileMeta, fields: Sequence[IndexedField]
) -> DataFileMeta | None:
    """Returns the file with an index of all wanted columns; None if the file's index has these columns already."""
    schema, access = at.plan.schema, at.plan.access.files
    partition, bucket = bucket_id
    place = BucketFiles(partition, bucket, at.view.total_of_bucket(bucket_id), (file,))
    wanted = {index_name(f.column.column, f.column.map_key) for f in fields}
    if wanted <= indexed_names(access, place, file):
        return None
    index = IndexOfRows(fields)
    for batch in access.rows(place, file, list(dict.fromkeys(f.column.column for f in fields))):
        index.add(pa.Table.from_batches([batch]))
    data = index.to_bytes()
    assert data is not None, "there are fields"
    others = tuple(name for name in file.extra_files if not name.endswith(INDEX_SUFFIX))
    if len(data) <= schema.settings.files.index_in_manifest_bytes:
        return replace(file, embedded_index=data, extra_files=others)
    io, path = access.place(place, file)
    # The index gets a new name, because readers of older snapshots may still read an earlier index of the file.
    name = f"{file.file_name}.{at.table.world.ids.new_uuid()[:8]}{INDEX_SUFFIX}"
    io.write_new(f"{path.rpartition('/')[0]}/{name}", data)
    return replace(file, embedded_index=None, extra_files=(*others, name))
