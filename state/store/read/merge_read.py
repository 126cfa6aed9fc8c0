"""Rows of a table as record batches: merge reads of overlapping files, plain reads of all others.

Source: Paimon 2.0 MergeFileSplitRead, RawFileSplitRead, KeyValueTableRead.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.paths import bucket_path
from bucketline.state.format.row_age import RowAge
from bucketline.state.format.row_ranges import TRACKED_NAMES, row_ranges, with_tracked
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.lsm.merge.change_rows import LEVEL
from bucketline.state.lsm.merge.fold import Fold, Selection, Visible, drop_deletes, fold_for
from bucketline.state.lsm.merge.fold_choice import needs_levels, reading_fold
from bucketline.state.lsm.merge.merge_engines import columns_to_merge
from bucketline.state.lsm.merge.merge_runs import merge_runs
from bucketline.state.lsm.tree.interval import sections
from bucketline.state.lsm.tree.run import SortedRun
from bucketline.state.store.datafile.column_mapping import Mappings
from bucketline.state.store.datafile.data_files import (
    BATCH_BYTES,
    BATCH_ROWS,
    ChooseGroups,
    chosen_groups,
    read_data_file,
    read_schema,
)
from bucketline.state.store.datafile.parquet_rows import RowGroup
from bucketline.state.store.index.deletion_vectors import DeletedRows, Positions, drop_deleted
from bucketline.state.store.read.evolved_rows import columns_of_files, fill_tracked, side_by_side
from bucketline.state.store.read.predicate import filter_columns
from bucketline.state.store.read.prune import BucketFiles, SchemaOf
from bucketline.state.store.read.row_groups import FileShare, GroupChoice, group_choice
from bucketline.state.store.read.run_ages import are_ages_known
from bucketline.state.store.storage.file_io import FileIO, file_io_for
from bucketline.state.store.storage.open_ahead import OpenAhead, open_ahead
from bucketline.state.store.storage.parallel import answers_late
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND, arrow_schema, representable
from bucketline.state.types.order import key_order
from bucketline.state.types.row_kind import RowKind

MERGE_BYTES = 256 << 20
"""Default for the bytes of Arrow data in memory while the runs of one section are merged."""

_MERGED_BATCH_ROWS = 16384
"""Rows of each run that a read merges at a time: twice as many do not stay in the processor's cache."""

_SMALLEST_BATCH_BYTES = 64 << 10
_MOST_GROUPS = 8
"""Row groups of a file with deleted rows that are read one by one; of more the whole file is."""
_SHARES_OF_A_RUN = 12
_SHARES_OF_MERGED = 24

_INSERT = pa.scalar(RowKind.INSERT, pa.int8())


@dataclass(frozen=True, slots=True)
class FileAccess:
    """What every reader of a table's files needs: their places and schemas. With `age`, expired rows are left out; with
    `choice`, row groups of Parquet files that hold no row that passes; with `share`, all but a part of each file."""

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

    def place(self, bucket: BucketFiles, file: DataFileMeta) -> tuple[FileIO, str]:
        """The place of a data file: on the table's storage, or at its full path."""
        if file.external_path is not None:
            return file_io_for(file.external_path, self.schema.storage)
        folder = bucket_path(self.schema, bucket.partition, bucket.bucket)
        return self.io, f"{self.table_path}/{folder}/{file.file_name}"

    def rows(
        self, bucket: BucketFiles, file: DataFileMeta, columns: Sequence[str], *, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one file, retracts included, less those deleted by position. Errors as of `read_data_file`."""
        io, path = self.place(bucket, file)
        stored = self.schema_of(file.schema_id)
        wanted, columns = columns, columns if self.age is None else with_time(self.age, columns)
        is_tracked = not self.schema.primary_keys and any(name in columns for name in TRACKED_NAMES)
        deleted = None
        if self.deletions is not None:
            deleted = self.deletions.of_file(bucket.partition, bucket.bucket, file.file_name)
        choose = None if is_tracked else self._chooser(file, stored)
        read = partial(
            read_data_file,
            io,
            path,
            file,
            self.schema,
            columns,
            stored=with_tracked(stored) if is_tracked else stored,
            partition=bucket.partition,
            batch_rows=batch_rows,
            batch_bytes=self.batch_bytes,
            mappings=None if is_tracked else self.mappings,
        )
        if is_tracked:
            batches = fill_tracked(read(), file)
            batches = batches if deleted is None else drop_deleted(batches, deleted, path)
        elif deleted is None:
            batches = read(choose=choose)
        else:
            groups = None if choose is None else chosen_groups(io, path, file, choose)
            most = _MOST_GROUPS if self.share is None else None
            batches = _less_deleted(read, deleted, path, groups, most)
        return batches if self.age is None else _unexpired(batches, self.age, wanted)

    def _chooser(self, file: DataFileMeta, stored: TableSchema) -> ChooseGroups | None:
        """Which row groups of a file are read."""
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
    """The rows of a file, or of some of its row groups, without those at the deleted positions. The whole file is read
    where more than `most` row groups would be."""
    if groups is None or (most is not None and len(groups) > most):
        yield from drop_deleted(read(), deleted, path)
        return
    for group in groups:
        first, last = np.searchsorted(deleted, [group.first_row, group.first_row + group.row_count])
        yield from drop_deleted(read(groups=[group.number]), deleted[first:last] - group.first_row, path)


def with_time(age: RowAge, columns: Sequence[str]) -> Sequence[str]:
    """The columns, and the one with the time of rows."""
    return columns if age.field.name in columns else (*columns, age.field.name)


def _unexpired(batches: Iterable[pa.RecordBatch], age: RowAge, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        kept = batch.filter(age.keeps(batch.column(age.field.name)))
        yield kept if age.field.name in wanted else kept.drop_columns([age.field.name])


@dataclass(frozen=True, slots=True)
class Projection:
    """The requested columns in order, and a filter on merged rows."""

    columns: tuple[str, ...]
    expression: pc.Expression | None
    needed: tuple[str, ...]


def plan_projection(schema: TableSchema, columns: Iterable[str] | None, expression: pc.Expression | None) -> Projection:
    """The projection of a read; `needed` adds the columns that only the filter needs. Raises SchemaMismatchError naming
    an unknown column, or one requested twice.
    """
    own = [f.name for f in schema.fields]
    known = own if not is_tracked(schema) else [*own, *TRACKED_NAMES]
    wanted = own if columns is None else list(columns)
    for position, name in enumerate(wanted):
        if name not in known:
            raise SchemaMismatchError(f"unknown column {name!r}; the table has {', '.join(known)}", column=name)
        if name in wanted[:position]:
            raise SchemaMismatchError(f"column {name!r} is asked for twice", column=name)
    readable = {f.name for f in representable(schema.fields)} | set(known[len(own) :])
    unread = next((name for name in wanted if name not in readable), None)
    if unread is not None:
        raise UnsupportedTableError(
            f"column {unread}: columns of type {schema.field(unread).type} are not read; ask for the others, as "
            f"columns={[name for name in own if name in readable]}",
            column=unread,
        )
    fields = representable((with_tracked(schema) if is_tracked(schema) else schema).fields)
    looked_at = () if expression is None else filter_columns(arrow_schema(fields), expression)
    # Rows without any column would have no count.
    needed = tuple(dict.fromkeys((*wanted, *looked_at))) or tuple(f.name for f in representable(schema.fields)[:1])
    return Projection(tuple(wanted), expression, needed)


def is_tracked(schema: TableSchema) -> bool:
    """Whether rows have the columns of row tracking, which must be requested by name."""
    return schema.settings.reading.row_tracking and not schema.primary_keys


def refuse_unreadable(schema: TableSchema) -> None:
    """Returns if rows of such a table can be read. Raises UnsupportedTableError naming the option."""
    refused = schema.settings.reading.refused
    if refused is not None:
        key, value = refused
        raise UnsupportedTableError(f"tables with '{key}' = '{value}' cannot be read", option=key, value=value)
    if schema.primary_keys:
        fold_for(schema)


def read_buckets(
    access: FileAccess, buckets: Iterable[BucketFiles], projection: Projection, *, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The current rows of the buckets, bucket after bucket; rows of a primary-key bucket ascend by key,
    unless the table has deletion vectors.

    Memory: one batch of each run of the section being merged; where storage answers late, the ends of the next files.
    Batches are never empty.
    """
    read_bucket = _merged_rows if access.schema.primary_keys else _reader_of_rows(access.schema)
    access = replace(access, choice=group_choice(access.schema, projection.expression))
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
    """The files of a bucket on the table's own storage, about as they are read."""
    for file in sorted(bucket.files, key=lambda f: (f.min_sequence_number, f.file_name)):
        if file.external_path is None:
            yield access.place(bucket, file)[1]


def parts_of(schema: TableSchema, bucket: BucketFiles) -> list[BucketFiles]:
    """Files of a bucket that can be read alone: the rows of the parts, one after the other, are those of the bucket."""
    if not schema.primary_keys:
        if schema.settings.reading.data_evolution:
            return [bucket]
        files = [[f] for f in _in_file_order(bucket)]
    else:
        files = [group for runs in _sections(schema, bucket) for group in _read_together(schema, runs)]
    return [replace(bucket, files=tuple(group)) for group in files]


def project(schema: TableSchema, batches: Iterable[pa.RecordBatch], projection: Projection) -> Iterator[pa.RecordBatch]:
    """The rows that pass the filter, in the requested columns and the table's types; no batch is empty."""
    names = list(projection.columns)
    out = arrow_schema(schema.select(projection.columns))
    for batch in batches:
        for kept in _filtered(batch, projection.expression):
            columns = kept.select(names)
            yield pa.RecordBatch.from_arrays(columns.columns, schema=out) if names else columns


def read_stored_rows(
    access: FileAccess, buckets: Iterable[BucketFiles], projection: Projection, *, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The rows of the buckets' files as they are stored, file after file, the kind of each (an int8) in a last column.

    Rows of tables without a primary key are all of kind +I.
    """
    if not access.schema.primary_keys:
        read_bucket = _reader_of_rows(access.schema)
        for bucket in buckets:
            for batch in read_bucket(access, bucket, projection.needed, batch_rows):
                for kept in _filtered(batch, projection.expression):
                    kinds = pa.repeat(_INSERT, kept.num_rows)
                    yield kept.select(list(projection.columns)).append_column(VALUE_KIND, kinds)
        return
    columns = (*projection.needed, VALUE_KIND)
    for bucket in buckets:
        for file in _in_file_order(bucket):
            for batch in access.rows(bucket, file, columns, batch_rows=batch_rows):
                for kept in _filtered(batch, projection.expression):
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
    """The rows of a section, one for each key, retracts included, in key order.

    `columns` must hold the trimmed primary key, the sequence fields, `_SEQUENCE_NUMBER` and `_VALUE_KIND`
    (`merge_columns`). The fold decides which columns come out, or `out` where it selects rows. With `ages_known`
    (`are_ages_known`) sequence numbers are not read, and none come out.

    Memory: about `memory_bytes` of Arrow data, what the caller does with a batch included. A run takes some 3 MB at
    least, and one of ORC files a stripe, however small `memory_bytes` is.
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
    """Bytes of the batches of each of so many runs that are merged in `memory_bytes`.

    A run holds a batch, most of the next one, and pages as they are in the file; merged rows are held gathered, put
    together, in their new order, and for as long as the caller looks at a part of them.
    """
    return max(_SMALLEST_BATCH_BYTES, memory_bytes // (_SHARES_OF_A_RUN * run_count))


def with_level(batches: Iterable[pa.RecordBatch], level: int) -> Iterator[pa.RecordBatch]:
    """The batches with a last column that says which level their rows come from."""
    for batch in batches:
        yield batch.append_column(LEVEL, pa.repeat(pa.scalar(level, pa.int32()), batch.num_rows))


def merge_columns(schema: TableSchema, needed: Sequence[str]) -> tuple[str, ...]:
    """The needed columns and those that merging needs, each once."""
    own = (*schema.trimmed_primary_key, *schema.settings.merge.sequence_fields, SEQUENCE, VALUE_KIND)
    return tuple(dict.fromkeys((*columns_to_merge(schema, needed), *own)))


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
    """The rows of a table with data evolution, by row id, each put together from the files that hold its columns."""
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
        if is_merged(schema, runs):
            with_system = merge_columns(schema, columns)
            # Other versions of a row may not pass the filter: what is left out must hold none of its key.
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
        # The files of one run share no key, so each row is the only one of its key.
        for file in chain.from_iterable(run.files for run in runs):
            if file.may_hold_deletes:
                yield from drop_deletes(_reader(access, bucket, (*columns, VALUE_KIND), batch_rows)(file))
            else:
                yield from _reader(access, bucket, columns, batch_rows)(file)


def _sections(schema: TableSchema, bucket: BucketFiles) -> list[list[SortedRun]]:
    return sections(bucket.files, key_order([f.type for f in schema.select(schema.trimmed_primary_key)]))


def is_merged(schema: TableSchema, runs: Sequence[SortedRun]) -> bool:
    """Whether the rows of a section are merged. Above level 0, deletion vectors leave one row of each key."""
    is_looked_up = schema.settings.changelog.deletion_vectors and all(f.level > 0 for run in runs for f in run.files)
    return len(runs) > 1 and not is_looked_up


def _read_together(schema: TableSchema, runs: Sequence[SortedRun]) -> list[list[DataFileMeta]]:
    """The files of a section: all at once where they are merged, else each alone."""
    files = [f for run in runs for f in run.files]
    return [files] if is_merged(schema, runs) else [[f] for f in files]


def _reader(
    access: FileAccess, bucket: BucketFiles, columns: Sequence[str], batch_rows: int
) -> Callable[[DataFileMeta], Iterator[pa.RecordBatch]]:
    return lambda file: access.rows(bucket, file, columns, batch_rows=batch_rows)


def _leveled_reader(
    access: FileAccess, bucket: BucketFiles, columns: Sequence[str], batch_rows: int
) -> Callable[[DataFileMeta], Iterator[pa.RecordBatch]]:
    """As `_reader`, each row with the level of its file."""
    return lambda file: with_level(access.rows(bucket, file, columns, batch_rows=batch_rows), file.level)


def _filtered(batch: pa.RecordBatch, expression: pc.Expression | None) -> list[pa.RecordBatch]:
    """The rows of the batch that pass, together; no batch is empty."""
    if expression is None:
        return [batch] if batch.num_rows else []
    batches: list[pa.RecordBatch] = pa.Table.from_batches([batch]).filter(expression).combine_chunks().to_batches()
    return batches
