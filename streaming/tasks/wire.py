"""What crosses between driver and executors: routed runs and notes, and the results of tasks; as bytes, and as rows.

Our own bytes (Arrow IPC, messages) travel in a few large values a task: Spark never sees the data. A job whose tasks
get nothing from Spark sends each value as bytes; where Spark hands rows to tasks, values are rows of binary columns.
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
from bucketline.state.store.write.placing import BucketNews
from bucketline.state.store.write.sealed_runs import SealedRun
from bucketline.streaming.tasks.placement import task_keys

ROUTED_DDL = (
    "task_key int, kind string, partition binary, bucket int, origin int, flush int, consumed_rows long, "
    "rank_end long, row_count long, group int, feeds binary, blob binary"
)
ROUTED = pa.schema(
    [
        ("task_key", pa.int32()),
        ("kind", pa.string()),
        ("partition", pa.binary()),
        ("bucket", pa.int32()),
        ("origin", pa.int32()),
        ("flush", pa.int32()),
        ("consumed_rows", pa.int64()),
        ("rank_end", pa.int64()),
        ("row_count", pa.int64()),
        ("group", pa.int32()),
        ("feeds", pa.binary()),
        ("blob", pa.binary()),
    ]
)

RESULT_DDL = "kind string, payload binary"
RESULT = pa.schema([("kind", pa.string()), ("payload", pa.binary())])

RUN = "run"
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

ANY_TASK = 0
"""The task for what may go to any."""

_KINDS = (RUN, REJECTS, NOTE, NEWS, NEEDS, STATS, REPORT, UNFIT, SEEN, MIXED)
_HEAD = Struct("<BxxxIIiiiqqqi")
"""The kind, the lengths of the partition and the feeds, and the numbers of a run."""
_numbers = attrgetter("bucket", "origin", "flush", "consumed_rows", "rank_end", "row_count", "group")
"""The members of a run between its partition and its feeds, in the order of rows and bytes."""
_ALIGNED = 16
"""The blob begins at a multiple of this, where Arrow reads it best."""


@dataclass(frozen=True, slots=True)
class Routed:
    """A sealed run on its way to a task of the next stage; or, with another kind than RUN, a note whose blob any task
    passes on, or that the writer of a bucket has to know.
    """

    task: int
    kind: str
    run: SealedRun


Sent = tuple[str, SealedRun]
"""What arrives of it: the kind and the run."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a task says to the driver."""

    kind: str
    payload: bytes


Next = Callable[[Iterator[Sent]], Iterator[Any]]
"""A task of a later stage: yields Routed, and that of the last stage Result."""


def routed_note(kind: str, *, origin: int, row_count: int, blob: bytes) -> Routed:
    """What is no run and belongs to no bucket: rejected records, statistics, the token of a note."""
    return Routed(ANY_TASK, kind, _no_run(b"", 0, origin, row_count, blob))


def routed_mixed(key: MixedKey, origin: int) -> Routed:
    """A key whose rows came from several feeds."""
    return routed_note(MIXED, origin=origin, row_count=0, blob=key.to_bytes())


def routed_news(news: BucketNews, task: int) -> Routed:
    """What the writer of a bucket has to know beside its rows."""
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
    """What is routed as bytes, but for the task; the blob is copied once."""
    run = routed.run
    head = _HEAD.pack(_KINDS.index(routed.kind), len(run.partition), len(run.feeds), *_numbers(run))
    size = len(head) + len(run.partition) + len(run.feeds)
    return b"".join((head, run.partition, run.feeds, bytes(-size % _ALIGNED), memoryview(run.blob)))


def unpack(data: bytes) -> Sent:
    """What is in the bytes; the blob of a run is a part of them, not copied."""
    kind, partition_size, feeds_size, *numbers = _HEAD.unpack_from(data)
    bucket, origin, flush, consumed_rows, rank_end, row_count, group = numbers
    feeds = _HEAD.size + partition_size
    end = feeds + feeds_size
    blob = pa.py_buffer(data).slice(end + -end % _ALIGNED)
    run = SealedRun(
        partition=data[_HEAD.size : feeds],
        bucket=bucket,
        origin=origin,
        flush=flush,
        consumed_rows=consumed_rows,
        rank_end=rank_end,
        row_count=row_count,
        blob=blob if _KINDS[kind] == RUN else blob.to_pybytes(),
        group=group,
        feeds=data[feeds:end],
    )
    return _KINDS[kind], run


def routed_row(routed: Routed, task_count: int) -> pa.RecordBatch:
    """What is routed as a row whose key Spark's hash sends to the task; the blob, which may be large, is not copied."""
    run = routed.run
    values = (task_keys(task_count)[routed.task], routed.kind, run.partition, *_numbers(run), run.feeds)
    columns = [pa.array([value], field.type) for value, field in zip(values, list(ROUTED)[:-1], strict=True)]
    offsets = pa.py_buffer(np.array([0, len(run.blob)], np.int32))
    columns.append(pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(run.blob)]))
    return pa.RecordBatch.from_arrays(columns, schema=ROUTED)


def read_routed(batch: pa.RecordBatch) -> Iterator[Sent]:
    """What is in each routed row; blobs are copied out of the batch, so that it can be freed."""
    columns = [batch.column(name) for name in ROUTED.names[1:]]
    for i in range(batch.num_rows):
        kind, partition, bucket, origin, flush, consumed, rank_end, count, group, feeds, blob = (
            c[i].as_py() for c in columns
        )
        yield (
            kind,
            SealedRun(
                partition=partition,
                bucket=bucket,
                origin=origin,
                flush=flush,
                consumed_rows=consumed,
                rank_end=rank_end,
                row_count=count,
                blob=blob,
                group=group,
                feeds=feeds,
            ),
        )


def pack_result(result: Result) -> bytes:
    """A result as bytes."""
    return b"".join((result.kind.encode(), b"\0", result.payload))


def unpack_result(data: bytes) -> Result:
    """The result in the bytes."""
    kind, _, payload = data.partition(b"\0")
    return Result(kind.decode(), payload)


def result_row(result: Result) -> pa.RecordBatch:
    """A result as a row."""
    return pa.RecordBatch.from_pylist([{"kind": result.kind, "payload": result.payload}], schema=RESULT)


def stats_result(stats: TaskStats) -> Result:
    """A task's statistics."""
    return Result(STATS, stats_blob(stats))


def stats_blob(stats: TaskStats) -> bytes:
    """Statistics as results and notes carry them."""
    return json.dumps(asdict(stats)).encode()


def read_stats(payload: bytes) -> TaskStats:
    """The statistics in a result."""
    return TaskStats(**json.loads(payload))
