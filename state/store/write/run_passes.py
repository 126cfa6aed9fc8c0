"""Reduces the number of sorted runs of a bucket before they are merged. Small runs become one table of rows, which is
sorted. Larger runs are merged in groups, to disk, until one merge can hold a record batch of every run in memory.

A merge takes memory for each run that it reads, and a batch can have any number of runs. Without this step the memory
of a write task would grow with the size of the batch.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from bucketline.state.store.compact.watch import Watch, unwatched, watched
from bucketline.state.store.write.run_buffer import Blob, SpillFile, again
from bucketline.state.store.write.sealed_runs import SealedRun, batch_rows, unseal
from bucketline.state.types.arrow import SEQUENCE

RowRun = Iterator[pa.RecordBatch]
MergeRuns = Callable[[Sequence[RowRun]], RowRun]
"""A function that merges sorted runs, ordered from old to new, into one. It keeps every row that rows of other runs may
still need.
"""

RUN_MEMORY_BYTES = 6 << 20
"""The memory that a merge takes for each sealed run, in bytes, measured with rows of 1 KiB: a batch, its keys, and its
share of the result.
"""

SMALL_ROWS = 4096
"""Runs with at most this many rows on average are sorted together, because merging one run costs as much as sorting
this many rows.
"""

_FEWEST_RUNS = 8


def runs_at_once(memory_bytes: int) -> int:
    """Returns how many runs a merge may read at once if it may take `memory_bytes` of memory."""
    return max(_FEWEST_RUNS, memory_bytes // RUN_MEMORY_BYTES)


def small_runs(
    runs: Sequence[tuple[SealedRun, Blob]], starts: Sequence[int], limit_bytes: int, watch: Watch = unwatched
) -> pa.Table | None:
    """Returns the rows of all sealed runs (sorted, packed rows) as one table, if sorting this table is faster than
    merging the runs: a merge takes some time for each run, whatever its size. `starts` holds a number for each run.
    The arrival ranks of the run plus this number are the sequence numbers of its rows.

    Returns None if there is a single run, if the runs are large on average, or if together they exceed `limit_bytes`.
    The caller can read the runs again in any case.
    """
    row_count = sum(run.row_count for run, _ in runs)
    if len(runs) < 2 or row_count > SMALL_ROWS * len(runs):
        return None
    batches, size = list[pa.RecordBatch](), 0
    for _, blob in runs:
        for batch in watched(unseal(again(blob)), watch):
            batches.append(batch)
            size += batch.nbytes
        if size > limit_bytes:
            return None
    rows = pa.Table.from_batches(batches).combine_chunks()
    position = rows.schema.get_field_index(SEQUENCE)
    counts = [run.row_count for run, _ in runs]
    sequence = rows[SEQUENCE].to_numpy() + np.repeat(np.array(starts, np.int64), counts)
    return rows.set_column(position, SEQUENCE, pa.array(sequence))


def few_runs(
    runs: Sequence[RowRun], limit: int, merge: MergeRuns, directory: str | None, stack: ExitStack
) -> list[RowRun]:
    """Returns at most `limit` runs, in order of arrival, that together hold the rows of all runs in `runs`. If there
    are more runs, neighbouring runs are merged into one, which is stored in a temporary file in `directory`. The files
    are removed when `stack` is closed.
    """
    assert limit > 1, "merging needs two runs"
    left = list(runs)
    while len(left) > limit:
        needed = len(left) - limit + 1
        if needed <= limit:
            left = [_merged(left[:needed], merge, directory, stack), *left[needed:]]
        else:
            left = [_merged(left[i : i + limit], merge, directory, stack) for i in range(0, len(left), limit)]
    return left


def _merged(runs: Sequence[RowRun], merge: MergeRuns, directory: str | None, stack: ExitStack) -> RowRun:
    if len(runs) == 1:
        return runs[0]
    file = stack.enter_context(SpillFile(directory))
    writer: pa.RecordBatchStreamWriter | None = None
    for batch in merge(runs):
        if writer is None:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            writer = pa.ipc.new_stream(file, batch.schema, options=options)
        writer.write_table(pa.Table.from_batches([batch]), max_chunksize=batch_rows(batch))
    if writer is None:
        return iter(())
    writer.close()
    return iter(unseal(file.blob(0, file.tell())))
