"""Sorts the rows of neighbouring buckets together if each bucket has few rows. For a single small bucket, the calls
that slice, sort and copy columns would cost more than the work on its rows.

A window is a sequence of neighbouring buckets whose rows fit into a part of the memory for merging. The rows come in
sealed runs (sorted, packed rows), each with rows of many buckets. In each sealed run the rows of a window are next to
each other, so one slice has all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketline.state.commit.live_files import BucketId
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.fold import Starts
from bucketline.state.lsm.merge.merge_runs import sort_rows
from bucketline.state.store.write.run_buffer import Blob, RunBuffer
from bucketline.state.store.write.run_passes import SMALL_ROWS
from bucketline.state.store.write.sealed_runs import SealedRun, sequence_offsets
from bucketline.state.types.arrow import SEQUENCE

Runs = Sequence[tuple[SealedRun, Blob]]


@dataclass(frozen=True, slots=True)
class SortedRows:
    """The rows of a bucket, sorted by key; rows of one key are ordered from old to new.

    - `starts` is true at the first row of each key.
    - `runs` are the sealed runs (sorted, packed rows) from which the rows came.
    - `first_numbers` has a sequence number for each run. The first row of the run that arrived gets this number, and
      the later rows get the next numbers in order of arrival.
    """

    rows: pa.Table
    starts: Starts
    runs: Sequence[SealedRun]
    first_numbers: Sequence[int]


class SortedWindows:
    """Takes the rows of one bucket after another out of a buffer. Small buckets that follow each other are sorted
    together, as one window, because sorting each of them alone would cost more. A window holds at most `window_bytes`
    bytes of rows.

    `next_number` is a function that returns the next sequence number of a bucket.
    """

    def __init__(
        self, buffer: RunBuffer, schema: TableSchema, next_number: Callable[[BucketId], int], window_bytes: int
    ) -> None:
        self._buffer, self._schema = buffer, schema
        self._next_number, self._window_bytes = next_number, window_bytes
        self._order = buffer.buckets()
        self._position = {bucket_id: i for i, bucket_id in enumerate(self._order)}
        self._ready: dict[BucketId, SortedRows] = {}

    def take(self, bucket_id: BucketId) -> Runs | SortedRows:
        """Removes the rows of a bucket from the buffer, and returns the rows. If the bucket is small, the result is a
        SortedRows: the rows are sorted already. Otherwise the result is a list of sealed runs (sorted, packed rows)
        with their bytes, as `RunBuffer.take` returns them. Only one thread at a time may call this method.
        """
        if bucket_id in self._ready:
            return self._ready.pop(bucket_id)
        window = list(self._window(bucket_id))
        if not window:
            return self._buffer.take(bucket_id)
        self._ready.update(self._sorted(window))
        return self._ready.pop(bucket_id)

    def _window(self, first: BucketId) -> Iterator[BucketId]:
        """Yields the buckets of the window that begins at the bucket `first`: this bucket and the next buckets, as long
        as each of them has few rows and all of them fit into the memory of the window. Yields nothing if `first` has
        too many rows, or if the table has no primary key.
        """
        left = self._window_bytes
        if not self._schema.primary_keys:
            return
        for bucket_id in self._order[self._position[first] :]:
            size = self._buffer.small_bytes(bucket_id, SMALL_ROWS)
            if size is None or size > left:
                return
            left -= size
            yield bucket_id

    def _sorted(self, window: Sequence[BucketId]) -> Iterator[tuple[BucketId, SortedRows]]:
        pieces, rows = self._buffer.take_pieces(window)
        starts: list[list[int]] = []
        for bucket_id, runs in zip(window, pieces.by_bucket, strict=True):
            offsets, first = sequence_offsets(runs), self._next_number(bucket_id)
            starts.append([first + offsets[run.origin, run.group] for run in runs])
        added = [starts[bucket][number] for bucket, number in pieces.order]
        counts = [pieces.by_bucket[bucket][number].row_count for bucket, number in pieces.order]
        buckets = np.repeat(np.array([bucket for bucket, _ in pieces.order]), counts)
        numbers = rows[SEQUENCE].to_numpy() + np.repeat(np.array(added, np.int64), counts)
        rows = rows.set_column(rows.schema.get_field_index(SEQUENCE), SEQUENCE, pa.array(numbers))
        merge = self._schema.settings.merge
        keys = self._schema.trimmed_primary_key, merge.sequence_fields, merge.newest_is_smallest
        ordered, key_starts = sort_rows(rows, buckets, *keys)
        del rows
        first = 0
        for bucket, bucket_id in enumerate(window):
            runs = pieces.by_bucket[bucket]
            end = first + sum(run.row_count for run in runs)
            yield bucket_id, SortedRows(ordered.slice(first, end - first), key_starts[first:end], runs, starts[bucket])
            first = end
