"""Checks that each key has one row in tables whose readers do not merge.

With deletion vectors, and in first-row tables, readers take the files above level 0 as they are, without the rows that
deletion vectors mark. Readers need not merge these files, because a compaction leaves one row of each key: the
compaction has marked the older rows, or, in first-row tables, dropped the newer rows. But if rows of input files are
marked after Paimon's compaction has read these rows, the compaction does not notice the marks, and writes the rows
again.

Source: Paimon 2.0 MergeTreeSplitGenerator, ConflictDetection.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bucketline.conf.errors import BucketlineError
from bucketline.conf.wording import counted
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import bucket_path
from bucketline.state.lsm.merge.fold import Indices, Kinds, Selection, Starts
from bucketline.state.lsm.merge.merge_runs import merge_runs
from bucketline.state.lsm.tree.interval import sections
from bucketline.state.lsm.tree.run import SortedRun
from bucketline.state.store.doctor.problem import Problem, State
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.merge_read import run_batch_bytes
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND
from bucketline.state.types.order import key_changes, key_order
from bucketline.state.types.row_kind import is_retract

MEMORY_BYTES = 64 << 20
"""The memory for keys, in bytes, while the files of a bucket are merged."""

BATCH_ROWS = 65536
_FILE = "_FILE"

_NO_REMEDY = (
    "A compaction would merge the rows, and so count values twice: roll the table back to a snapshot before these "
    "rows, or write the table anew"
)


def repeat_problems(
    access: FileAccess, bucket: BucketFiles, state: State, *, batch_rows: int = BATCH_ROWS
) -> Iterator[Problem]:
    """Yields a problem if keys of a bucket have several rows above level 0. Tables whose readers merge rows are not
    checked, because several rows of a key are no problem there.

    `access` must have the deletion vectors. Only files whose key ranges overlap are read, and only their key columns.
    Takes `MEMORY_BYTES` of memory.
    """
    schema = access.schema
    if bucket.bucket < 0 or not reads_unmerged(schema):
        return
    order = key_order([f.type for f in schema.select(schema.trimmed_primary_key)])
    for runs in sections((f for f in bucket.files if f.level > 0), order):
        if len(runs) < 2:
            continue  # The files of one sorted run have no key in common.
        try:
            repeated = _repeats(access, bucket, runs, batch_rows)
        except BucketlineError as e:
            yield Problem("data-file", e.path or str(bucket.bucket), e.message, state.needed)
            continue
        if repeated is not None:
            yield Problem("key-twice", bucket_path(schema, bucket.partition, bucket.bucket), _text(schema, repeated))


def reads_unmerged(schema: TableSchema) -> bool:
    """Returns True if readers take the files above level 0 of a table as they are, without merging."""
    if not schema.primary_keys:
        return False
    settings = schema.settings
    return settings.changelog.deletion_vectors or settings.merge.engine.keeps_first


@dataclass(frozen=True, slots=True)
class _RepeatedKeys:
    """The keys that have several rows: how many there are, the values of the first such key, and the files of its rows,
    oldest row first.
    """

    key_count: int
    key: tuple[object, ...]
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Repeated(Selection):
    """Selects all rows of each key that has several rows, if at least one of these rows is not of kind -U or -D."""

    def select(self, starts: Starts, kinds: Kinds) -> Indices:
        if starts.all():
            return np.empty(0, np.int64)
        numbers = np.cumsum(starts, dtype=np.int64) - 1
        rows = np.bincount(numbers)
        is_shown = ~is_retract(pa.array(kinds)).to_numpy(zero_copy_only=False)
        shown = np.bincount(numbers, weights=is_shown)
        return np.flatnonzero(((rows > 1) & (shown > 0))[numbers])


def _repeats(
    access: FileAccess, bucket: BucketFiles, runs: Sequence[SortedRun], batch_rows: int
) -> _RepeatedKeys | None:
    schema = access.schema
    keys, ages = list(schema.trimmed_primary_key), schema.settings.merge.sequence_fields
    columns = tuple(dict.fromkeys((*keys, *ages, SEQUENCE, VALUE_KIND)))
    files = [file for run in runs for file in run.files]
    numbers = {file.file_name: number for number, file in enumerate(files)}
    access = replace(access, batch_bytes=run_batch_bytes(MEMORY_BYTES, len(runs)))

    def rows_of(run: SortedRun) -> Iterator[pa.RecordBatch]:
        for file in run.files:
            number = pa.scalar(numbers[file.file_name], pa.int32())
            for batch in access.rows(bucket, file, columns, batch_rows=batch_rows):
                yield batch.append_column(_FILE, pa.repeat(number, batch.num_rows))

    merged = merge_runs(
        [rows_of(run) for run in runs],
        keys,
        ages,
        schema.settings.merge.newest_is_smallest,
        _Repeated(),
        batch_rows,
        MEMORY_BYTES // 24,
    )
    count, first, last = 0, None, None
    for batch in merged:
        joined = batch if last is None else pa.concat_batches([last, batch])
        changes = key_changes(joined, keys)
        count += int(changes.sum()) - (last is not None)
        last = batch.slice(batch.num_rows - 1)
        if first is None:
            ends = np.flatnonzero(changes[1:])
            rows = batch.slice(0, int(ends[0]) + 1 if len(ends) else batch.num_rows)
            key = tuple(rows.column(k)[0].as_py() for k in keys)
            held = [files[n] for n in rows.column(_FILE).to_pylist()]
            first = key, tuple(f"{f.file_name} (level {f.level})" for f in held)
    return None if first is None else _RepeatedKeys(count, *first)


def _text(schema: TableSchema, repeated: _RepeatedKeys) -> str:
    key = ", ".join(f"{n} = {v!r}" for n, v in zip(schema.trimmed_primary_key, repeated.key, strict=True))
    more = f" and {counted(repeated.key_count - 1, 'more key')}" if repeated.key_count > 1 else ""
    verb = "have" if repeated.key_count > 1 else "has"
    engine = schema.settings.merge.engine
    kept = "newest" if engine.keeps_newest else "first"
    remedy = _NO_REMEDY if engine.builds_rows else f"Then `bucketline compact PATH` keeps the {kept} row of each key"
    return (
        f"the key {key}{more} {verb} several rows above level 0, and readers show each of them: the rows of {key} are "
        f"in {' and '.join(repeated.places)}. Two programs compacted the bucket at the same time: let only one of "
        f"them compact. {remedy}"
    )
