"""Reads rows of a table as record batches. Files whose key ranges overlap are merged; all other files are read one by
one.

Source: Paimon 2.0 MergeFileSplitRead, RawFileSplitRead, KeyValueTableRead.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import pyarrow as pa

from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_places import FILE_PATH, ROW_INDEX, places_among
from bucketline.state.format.row_ranges import row_ranges
from bucketline.state.lsm.merge.change_rows import LEVEL
from bucketline.state.lsm.merge.engines import merging_of
from bucketline.state.lsm.merge.fold import Fold, Selection, Visible, drop_deletes
from bucketline.state.lsm.merge.fold_choice import needs_levels, reading_fold
from bucketline.state.lsm.merge.merge_runs import merge_runs
from bucketline.state.lsm.merge.run_ages import are_ages_known
from bucketline.state.lsm.tree.interval import sections
from bucketline.state.lsm.tree.run import SortedRun
from bucketline.state.store.datafile.data_files import BATCH_ROWS, read_schema
from bucketline.state.store.index.deletion_vectors import drop_deleted
from bucketline.state.store.read.evolved_rows import columns_of_files, side_by_side
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.file_index import narrowed_by_index
from bucketline.state.store.read.projection import Projection, as_shown, filtered, project
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.read.row_groups import group_choice
from bucketline.state.store.read.row_places import BucketPlace, refuse_places, stored_columns, with_places
from bucketline.state.store.storage.open_ahead import OpenAhead, open_ahead
from bucketline.state.store.storage.parallel import answers_late
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND
from bucketline.state.types.order import key_order
from bucketline.state.types.row_kind import RowKind

MERGE_BYTES = 256 << 20
"""The default for the memory, in bytes of Arrow data, in which the sorted runs of one section are merged."""

_MERGED_BATCH_ROWS = 16384
"""How many rows of each sorted run a read merges at a time. Twice as many would not fit into the processor's cache."""

_SMALLEST_BATCH_BYTES = 64 << 10
_SHARES_OF_A_RUN = 12
_SHARES_OF_MERGED = 24

_INSERT = pa.scalar(RowKind.INSERT, pa.int8())


def read_buckets(
    access: FileAccess, buckets: Iterable[BucketFiles], projection: Projection, *, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yields the current rows of the buckets, bucket after bucket. The rows of a bucket with a primary key are in key
    order, unless the table has deletion vectors.

    A bucket is read section by section; a section is a group of files whose key ranges overlap. In memory is one batch
    of each sorted run of the section; on slow storage also the ends of the next files, which are fetched ahead. No
    batch is empty.
    """
    read_bucket = _merged_rows if access.schema.primary_keys else _reader_of_rows(access.schema)
    access = replace(access, choice=group_choice(access.schema, projection.expression))
    buckets = (narrowed_by_index(access, bucket, projection.expression) for bucket in buckets)
    if isinstance(access.io, OpenAhead) or not answers_late(access.io):
        for bucket in buckets:
            yield from project(access.schema, read_bucket(access, bucket, projection.needed, batch_rows), projection)
        return
    listed = list(buckets)
    with open_ahead(access.io, [path for bucket in listed for path in paths_of(access, bucket)]) as io:
        ahead = replace(access, io=io)
        for bucket in listed:
            yield from project(access.schema, read_bucket(ahead, bucket, projection.needed, batch_rows), projection)


def paths_of(access: FileAccess, bucket: BucketFiles) -> Iterator[str]:
    """Yields the paths of those files of a bucket that are on the table's own storage, about in the order in which they
    are read.
    """
    for file in sorted(bucket.files, key=lambda f: (f.min_sequence_number, f.file_name)):
        if file.external_path is None:
            yield access.place(bucket, file)[1]


def parts_of(schema: TableSchema, bucket: BucketFiles) -> list[BucketFiles]:
    """Divides the files of a bucket into parts. Each part can be read without the other parts. The rows of all parts
    together, one part after the other, are the rows of the bucket.
    """
    if not schema.primary_keys:
        if schema.settings.reading.data_evolution:
            return [bucket]
        files = [[f] for f in _in_file_order(bucket)]
    else:
        files = [group for runs in _sections(schema, bucket) for group in _read_together(schema, runs)]
    return [replace(bucket, files=tuple(group)) for group in files]


def read_stored_rows(
    access: FileAccess, buckets: Iterable[BucketFiles], projection: Projection, *, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the buckets' files as they are stored, file after file. The last column is the row kind (int8)
    of each row.

    In tables without a primary key every row has the kind +I.
    """
    if not access.schema.primary_keys:
        read_bucket = _reader_of_rows(access.schema)
        for bucket in buckets:
            for batch in as_shown(access.schema, read_bucket(access, bucket, projection.needed, batch_rows)):
                for kept in filtered(batch, projection.condition):
                    kinds = pa.repeat(_INSERT, kept.num_rows)
                    yield kept.select(list(projection.columns)).append_column(VALUE_KIND, kinds)
        return
    columns = (*projection.needed, VALUE_KIND)
    for bucket in buckets:
        for file in _in_file_order(bucket):
            for batch in as_shown(access.schema, access.rows(bucket, file, columns, batch_rows=batch_rows)):
                for kept in filtered(batch, projection.condition):
                    yield kept.select(list(projection.columns)).append_column(VALUE_KIND, kept[VALUE_KIND])


def merge_section(
    access: FileAccess,
    bucket: BucketFiles,
    runs: Sequence[SortedRun],
    columns: Sequence[str],
    *,
    fold: Fold,
    batch_rows: int = BATCH_ROWS,
    memory_bytes: int = MERGE_BYTES,
    ages_known: bool = False,
    out: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Returns the merged rows of a section: one row for each key, in key order. A section is a set of sorted runs whose
    key ranges overlap. A merged row of kind -U or -D is included too.

    `columns` must include the trimmed primary key, the sequence fields, `_SEQUENCE_NUMBER` and `_VALUE_KIND` (see
    `merge_columns`). The fold (the function that merges the rows of each key) decides which columns are returned; if
    the fold only selects rows, the columns `out` are returned (None: all columns). With `ages_known` (see
    `are_ages_known`) sequence numbers are neither read nor returned.

    Takes about `memory_bytes` of Arrow data, including the caller's work on a batch. However small `memory_bytes` is,
    each sorted run takes at least about 3 MB, and a run of ORC files takes one stripe.
    """
    access = replace(access, batch_bytes=run_batch_bytes(memory_bytes, len(runs)))
    if ages_known:
        runs = sorted(runs, key=lambda run: min(f.min_sequence_number for f in run.files))
        columns = [name for name in columns if name != SEQUENCE]
    read = (_leveled_reader if needs_levels(fold) else _reader)(access, bucket, columns, batch_rows)
    settings = access.schema.settings.merge
    return merge_runs(
        [chain.from_iterable(map(read, run.files)) for run in runs],
        access.schema.trimmed_primary_key,
        settings.sequence_fields,
        settings.newest_is_smallest,
        fold,
        batch_rows,
        memory_bytes // _SHARES_OF_MERGED,
        columns=out,
        oldest_first=ages_known,
    )


def run_batch_bytes(memory_bytes: int, run_count: int) -> int:
    """Returns the size of a batch, in bytes, for merging `run_count` sorted runs in `memory_bytes`.

    Each run takes the memory of several batches: the current batch, most of the next batch, and pages in the form of
    the file. There are also several copies of the merged rows: the collected batches, one table of them, the ordered
    table, and the part that the caller holds.
    """
    return max(_SMALLEST_BATCH_BYTES, memory_bytes // (_SHARES_OF_A_RUN * run_count))


def with_level(batches: Iterable[pa.RecordBatch], level: int) -> Iterator[pa.RecordBatch]:
    """Yields the batches with an additional last column that holds the level of each row."""
    for batch in batches:
        yield batch.append_column(LEVEL, pa.repeat(pa.scalar(level, pa.int32()), batch.num_rows))


def merge_columns(schema: TableSchema, needed: Sequence[str]) -> tuple[str, ...]:
    """Returns the needed columns and the columns that merging needs, each once."""
    own = (*schema.trimmed_primary_key, *schema.settings.merge.sequence_fields, SEQUENCE, VALUE_KIND)
    return tuple(dict.fromkeys((*merging_of(schema).columns_to_merge(needed), *own)))


def _raw_rows(
    access: FileAccess, bucket: BucketFiles, columns: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    return chain.from_iterable(map(_reader(access, bucket, columns, batch_rows), _in_file_order(bucket)))


def _in_file_order(bucket: BucketFiles) -> list[DataFileMeta]:
    return sorted(bucket.files, key=lambda f: (f.min_sequence_number, f.file_name))


def _reader_of_rows(schema: TableSchema) -> Callable[..., Iterator[pa.RecordBatch]]:
    return _evolved_rows if schema.settings.reading.data_evolution else _raw_rows


def _evolved_rows(
    access: FileAccess, bucket: BucketFiles, columns: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a table with data evolution, in the order of row ids. Each row is put together from the files
    that hold its columns.
    """
    if places_among(access.schema, columns):
        yield from _in_place(access, bucket, columns, partial(_evolved_rows, batch_rows=batch_rows))
        return
    out = read_schema(access.schema, columns)
    for rows in row_ranges(bucket.files):
        wanted = columns_of_files(rows, access.schema, columns, access.schema_of)
        plain = replace(access, deletions=None, choice=None)
        streams = [plain.rows(bucket, file, names, batch_rows=batch_rows) for file, names in wanted.items()]
        batches = streams[0] if len(streams) == 1 else side_by_side(streams, out)
        deleted = None
        if access.deletions is not None:
            deleted = access.deletions.of_file(bucket.partition, bucket.bucket, rows.anchor.file_name)
        yield from batches if deleted is None else drop_deleted(batches, deleted, rows.anchor.file_name)


def _merged_rows(
    access: FileAccess, bucket: BucketFiles, columns: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    schema = access.schema
    fold = reading_fold(schema)
    for runs in _sections(schema, bucket):
        if is_merged(schema, runs) and places_among(schema, columns):
            merged_files = replace(bucket, files=tuple(f for run in runs for f in run.files))
            yield from _in_place(access, merged_files, columns, partial(_merged_rows, batch_rows=batch_rows))
            continue
        if is_merged(schema, runs):
            with_system = merge_columns(schema, columns)
            # Here only the key columns may decide which row groups are skipped. If other columns decided, the newest
            # version of a row could be skipped, and an older version would come back.
            choice = None if access.choice is None else access.choice.only(schema.trimmed_primary_key)
            merged = replace(access, choice=choice)
            known = are_ages_known(runs, fold)
            run_rows = min(batch_rows, _MERGED_BATCH_ROWS)
            merge = partial(merge_section, merged, bucket, runs, with_system, batch_rows=run_rows, ages_known=known)
            if isinstance(fold, Selection):
                yield from merge(fold=Visible(fold), out=columns)
            else:
                yield from drop_deletes(merge(fold=fold))
            continue
        # The files of one run have no key in common, so each row is the only row of its key.
        for file in chain.from_iterable(run.files for run in runs):
            if file.may_hold_deletes:
                yield from drop_deletes(_reader(access, bucket, (*columns, VALUE_KIND), batch_rows)(file))
            else:
                yield from _reader(access, bucket, columns, batch_rows)(file)


def _in_place(
    access: FileAccess,
    bucket: BucketFiles,
    columns: Sequence[str],
    read: Callable[[FileAccess, BucketFiles, Sequence[str]], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yields the rows that `read` returns. If `columns` contains the columns for a row's partition or bucket, the rows
    get these columns.

    Raises UnsupportedTableError if `columns` contains the column for the file of a row, or for the position in the
    file, because the values of a row may come from several files.
    """
    refuse_places(access.schema, columns, (FILE_PATH, ROW_INDEX))
    rows = read(access, bucket, stored_columns(access.schema, columns))
    yield from with_places(rows, BucketPlace.of(access.schema, bucket), columns)


def _sections(schema: TableSchema, bucket: BucketFiles) -> list[list[SortedRun]]:
    return sections(bucket.files, key_order([f.type for f in schema.select(schema.trimmed_primary_key)]))


def is_merged(schema: TableSchema, runs: Sequence[SortedRun]) -> bool:
    """Returns True if the rows of a section (a set of sorted runs whose key ranges overlap) must be merged. A section
    of one sorted run needs no merging. In a table with deletion vectors, rows above level 0 need no merging, because
    each key has only one row there.
    """
    is_looked_up = schema.settings.changelog.deletion_vectors and all(f.level > 0 for run in runs for f in run.files)
    return len(runs) > 1 and not is_looked_up


def _read_together(schema: TableSchema, runs: Sequence[SortedRun]) -> list[list[DataFileMeta]]:
    """Takes the sorted runs of one section (files of a bucket whose key ranges overlap). Returns the section's files in
    groups that are read together: a single group if the rows must be merged, otherwise one group for each file.
    """
    files = [f for run in runs for f in run.files]
    return [files] if is_merged(schema, runs) else [[f] for f in files]


def _reader(
    access: FileAccess, bucket: BucketFiles, columns: Sequence[str], batch_rows: int
) -> Callable[[DataFileMeta], Iterator[pa.RecordBatch]]:
    return lambda file: access.rows(bucket, file, columns, batch_rows=batch_rows)


def _leveled_reader(
    access: FileAccess, bucket: BucketFiles, columns: Sequence[str], batch_rows: int
) -> Callable[[DataFileMeta], Iterator[pa.RecordBatch]]:
    """Returns a function that reads the rows of a file, with the level of the file in an additional last column."""
    return lambda file: with_level(access.rows(bucket, file, columns, batch_rows=batch_rows), file.level)
