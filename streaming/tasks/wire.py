"""What tasks send to one another and to the driver, as bytes or as rows: sealed runs (sorted, packed rows), notes
(facts about the rows, such as bad records and missing columns), and the results of tasks.

bucketline's own bytes (Arrow IPC, commit messages) are sent in a few large values for each task: Spark never sees the
data. In a job whose tasks get nothing from Spark, each value is bytes; if Spark passes rows to tasks, values are rows
of binary columns.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from operator import attrgetter
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa

from bucketline.state.lsm.merge.feeds import MixedKey
from bucketline.state.store.engine.engine import TaskStats
from bucketline.state.store.write.owned.owner_runs import OwnerRun, pieces_bytes, read_pieces
from bucketline.state.store.write.placing import BucketNews
from bucketline.state.store.write.sealed_runs import SealedRun
from bucketline.streaming.tasks.placement import task_keys

ROUTED_DDL = "task_key int, head binary, blob binary"
ROUTED = pa.schema([("task_key", pa.int32()), ("head", pa.binary()), ("blob", pa.binary())])

RESULT_DDL = "kind string, payload binary"
RESULT = pa.schema([("kind", pa.string()), ("payload", pa.binary())])

RUN = "run"
RUNS = "runs"
REJECTS = "rejects"
NOTE = "note"
NEWS = "news"
NEEDS = "needs"
SEEN = "seen"
MESSAGES = "messages"
STATS = "stats"
REPORT = "report"
GIVEN_BACK = "given back"
UNFIT = "unfit"
MIXED = "mixed"
TABLES = "tables"
ERROR = "error"

ANY_TASK = 0
"""The number of the receiving task in a message that any task may pass on to the driver."""

_KINDS = (RUN, REJECTS, NOTE, NEWS, NEEDS, STATS, REPORT, UNFIT, SEEN, MIXED, RUNS, TABLES)
_HEAD = Struct("<BxxxIIiiiqqqi")
"""The beginning of a message: the kind, the lengths of the partition and of the feeds, and the integers of a sealed
run.
"""
_numbers = attrgetter("bucket", "origin", "flush", "consumed_rows", "rank_end", "row_count", "group")
"""The integers of a sealed run that are written between its partition and its feeds, in this order."""
_RUNS_HEAD = Struct("<BxxxIiiii")
"""The beginning of a message with rows of several buckets: the kind, the number of bytes of the list of buckets, the
table, the owner (the task that writes the buckets), the origin (the task that sends the message) and the flush number.
"""
_ALIGNED = 16
"""The blob begins at a multiple of this number of bytes, where Arrow reads it best."""


@dataclass(frozen=True, slots=True)
class Routed:
    """A message to a task of the next stage. `kind` says what the message is:

    - RUN: a sealed run (sorted, packed rows) of one bucket.
    - RUNS: one sealed run with the rows of all buckets that the receiving task writes.
    - NEWS: a note for the task that writes a certain bucket.
    - any other kind: a note for the driver. It can be sent to any task, which passes it on to the driver.
    """

    task: int
    kind: str
    run: SealedRun | OwnerRun


Sent = tuple[str, SealedRun | OwnerRun]
"""The received form of a message: its kind, and the sealed run."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A result that a task returns to the driver. `kind` says how the bytes of `payload` are read."""

    kind: str
    payload: bytes


Next = Callable[[Iterator[Sent]], Iterator[Any]]
"""A task of a later stage. It yields Routed messages, or TaskResult in the last stage."""


def routed_note(kind: str, *, origin: int, row_count: int, blob: bytes) -> Routed:
    """Returns a message that holds no rows and belongs to no bucket. Any task passes the message on to the driver.
    `kind` says how the bytes of `blob` are read, `origin` is the number of the task that sends the message, and
    `row_count` is the number of bad records in `blob`.
    """
    return Routed(ANY_TASK, kind, _no_run(b"", 0, origin, row_count, blob))


def routed_mixed(key: MixedKey, origin: int) -> Routed:
    """Returns a note about a key whose rows came from several topic partitions. `origin` is the number of the task that
    sends the note.
    """
    return routed_note(MIXED, origin=origin, row_count=0, blob=key.to_bytes())


def routed_news(news: BucketNews, task: int) -> Routed:
    """Returns a message to the task that writes a bucket. The message holds no rows. It holds what this task must know
    in addition to the bucket's rows, for example the hashes of the new keys.
    """
    return Routed(task, NEWS, _no_run(news.partition, news.bucket, 0, 0, news.payload))


def _no_run(partition: bytes, bucket: int, origin: int, row_count: int, blob: bytes) -> SealedRun:
    return SealedRun(
        partition=partition,
        bucket=bucket,
        origin=origin,
        flush=0,
        consumed_rows=0,
        rank_end=0,
        row_count=row_count,
        blob=blob,
    )


def pack(routed: Routed) -> bytes:
    """Returns a message to a task as bytes, without the number of the task. The packed rows in the message
    (`routed.run.blob`) are copied only once.
    """
    head = _head(routed)
    return b"".join((head, bytes(-len(head) % _ALIGNED), memoryview(routed.run.blob)))


def unpack(data: bytes) -> Sent:
    """Takes the bytes that `pack` has made from a message between two tasks. Returns the kind of the message and its
    sealed run (sorted, packed rows). The rows are not copied: the blob of the sealed run is a slice of `data`.
    """
    end = _head_size(data)
    return _sent(data, pa.py_buffer(data).slice(end + -end % _ALIGNED))


def _head(routed: Routed) -> bytes:
    run, kind = routed.run, _KINDS.index(routed.kind)
    if isinstance(run, OwnerRun):
        pieces = pieces_bytes(run.pieces)
        return _RUNS_HEAD.pack(kind, len(pieces), run.table, run.owner, run.origin, run.flush) + pieces
    head = _HEAD.pack(kind, len(run.partition), len(run.feeds), *_numbers(run))
    return b"".join((head, run.partition, run.feeds))


def _head_size(data: bytes) -> int:
    if _KINDS[data[0]] == RUNS:
        return _RUNS_HEAD.size + int(_RUNS_HEAD.unpack_from(data)[1])
    _, partition_size, feeds_size, *_ = _HEAD.unpack_from(data)
    return _HEAD.size + int(partition_size) + int(feeds_size)


def _sent(head: bytes, blob: pa.Buffer) -> Sent:
    """Decodes a message between tasks. Returns its kind, and a sealed run (sorted, packed rows); a note comes in the
    same form, but without rows. `head` has the numbers that describe the run, and `blob` has the packed rows or the
    bytes of the note. Bytes after the end of the head are ignored.
    """
    kind = _KINDS[head[0]]
    if kind == RUNS:
        _, size, table, owner, origin, flush = _RUNS_HEAD.unpack_from(head)
        pieces = read_pieces(head[_RUNS_HEAD.size : _RUNS_HEAD.size + size])
        return kind, OwnerRun(owner, origin, flush, pieces, blob, table)
    _, partition_size, feeds_size, *numbers = _HEAD.unpack_from(head)
    bucket, origin, flush, consumed_rows, rank_end, row_count, group = numbers
    feeds = _HEAD.size + partition_size
    run = SealedRun(
        partition=head[_HEAD.size : feeds],
        bucket=bucket,
        origin=origin,
        flush=flush,
        consumed_rows=consumed_rows,
        rank_end=rank_end,
        row_count=row_count,
        blob=blob if kind == RUN else blob.to_pybytes(),
        group=group,
        feeds=head[feeds : feeds + feeds_size],
    )
    return kind, run


def routed_row(routed: Routed, task_count: int) -> pa.RecordBatch:
    """Returns a message to a task of the next stage as one row of a DataFrame. The row's column `task_key` makes Spark
    send the row to the receiving task. The blob (the packed rows) may be large, and is not copied.
    """
    blob = routed.run.blob
    columns = [pa.array([task_keys(task_count)[routed.task]], pa.int32()), pa.array([_head(routed)], pa.binary())]
    offsets = pa.py_buffer(np.array([0, len(blob)], np.int32))
    columns.append(pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(blob)]))
    return pa.RecordBatch.from_arrays(columns, schema=ROUTED)


def read_routed(batch: pa.RecordBatch) -> Iterator[Sent]:
    """Yields the message in each row of a shuffle's output; the columns are `head` and `blob`. The bytes of `blob` are
    copied out of the batch, so that the batch can be freed.
    """
    heads, blobs = batch.column("head"), batch.column("blob")
    for i in range(batch.num_rows):
        yield _sent(heads[i].as_py(), pa.py_buffer(blobs[i].as_py()))


def pack_result(result: TaskResult) -> bytes:
    """Returns a result as bytes."""
    return b"".join((result.kind.encode(), b"\0", result.payload))


def unpack_result(data: bytes) -> TaskResult:
    """Returns the result that `pack_result` has packed."""
    kind, _, payload = data.partition(b"\0")
    return TaskResult(kind.decode(), payload)


def result_row(result: TaskResult) -> pa.RecordBatch:
    """Returns a result as a row."""
    return pa.RecordBatch.from_pylist([{"kind": result.kind, "payload": result.payload}], schema=RESULT)


def stats_result(stats: TaskStats) -> TaskResult:
    """Returns a task's statistics as a result."""
    return TaskResult(STATS, stats_blob(stats))


def stats_blob(stats: TaskStats) -> bytes:
    """Returns statistics as bytes, for results and notes."""
    return json.dumps(asdict(stats)).encode()


def read_stats(payload: bytes) -> TaskStats:
    """Returns the statistics that a result holds."""
    return TaskStats(**json.loads(payload))
