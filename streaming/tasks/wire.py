"""What crosses between driver and executors: the columns of routed runs and of task results, and their rows.

Binary columns carry our own bytes (Arrow IPC, messages); Spark sees a handful of rows a task, never the data.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import pyarrow as pa

from bucketline.state.store.engine.engine import TaskStats
from bucketline.state.store.write.placing import BucketNews
from bucketline.state.store.write.sealed_runs import SealedRun

ROUTED_DDL = (
    "shard_key int, kind string, partition binary, bucket int, origin int, flush int, consumed_rows long, "
    "rank_end long, row_count long, blob binary"
)
ROUTED = pa.schema(
    [
        ("shard_key", pa.int32()),
        ("kind", pa.string()),
        ("partition", pa.binary()),
        ("bucket", pa.int32()),
        ("origin", pa.int32()),
        ("flush", pa.int32()),
        ("consumed_rows", pa.int64()),
        ("rank_end", pa.int64()),
        ("row_count", pa.int64()),
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
MESSAGES = "messages"
STATS = "stats"
FOUND = "found"
GIVEN_BACK = "given back"


def routed_run(run: SealedRun, shard_key: int, *, accepted_rows: int | None = None) -> pa.RecordBatch:
    """One routed row: a sealed run on its way to the task of its shard.

    `accepted_rows` is what counts as accepted with it, where that is not the run's own number.
    """
    return _one_row(
        shard_key,
        RUN,
        run.partition,
        run.bucket,
        run.origin,
        run.flush,
        run.consumed_rows if accepted_rows is None else accepted_rows,
        run.rank_end,
        run.row_count,
        blob=run.blob,
    )


def routed_note(kind: str, *, shard_key: int, origin: int, row_count: int, blob: bytes) -> pa.RecordBatch:
    """One routed row that is no run and belongs to no bucket: rejected records, statistics, the token of a note."""
    return _routed(kind, b"", 0, shard_key=shard_key, origin=origin, row_count=row_count, blob=blob)


def routed_news(news: BucketNews, shard_key: int) -> pa.RecordBatch:
    """One routed row with what the writer of a bucket has to know beside its rows."""
    return _routed(NEWS, news.partition, news.bucket, shard_key=shard_key, origin=0, row_count=0, blob=news.payload)


def _routed(
    kind: str, partition: bytes, bucket: int, *, shard_key: int, origin: int, row_count: int, blob: bytes
) -> pa.RecordBatch:
    return _one_row(shard_key, kind, partition, bucket, origin, 0, 0, 0, row_count, blob=blob)


def _one_row(*values: int | str | bytes, blob: bytes) -> pa.RecordBatch:
    """A routed row of the values of all columns but the last, in order; the blob, which may be large, is not copied."""
    columns = [pa.array([value], field.type) for value, field in zip(values, list(ROUTED)[:-1], strict=True)]
    offsets = pa.py_buffer(np.array([0, len(blob)], np.int32))
    columns.append(pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(blob)]))
    return pa.RecordBatch.from_arrays(columns, schema=ROUTED)


def read_routed(batch: pa.RecordBatch) -> Iterator[tuple[str, SealedRun]]:
    """The kind and the run of each routed row; blobs are copied out of the batch, so that it can be freed."""
    columns = [batch.column(name) for name in ROUTED.names[1:]]
    for i in range(batch.num_rows):
        kind, partition, bucket, origin, flush, consumed, rank_end, count, blob = (c[i].as_py() for c in columns)
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
            ),
        )


def result(kind: str, payload: bytes) -> pa.RecordBatch:
    """One result row of a task."""
    return pa.RecordBatch.from_pylist([{"kind": kind, "payload": payload}], schema=RESULT)


def stats_result(stats: TaskStats) -> pa.RecordBatch:
    """The result row of a task's statistics."""
    return result(STATS, stats_blob(stats))


def stats_blob(stats: TaskStats) -> bytes:
    """Statistics as results and notes carry them."""
    return json.dumps(asdict(stats)).encode()


def read_stats(payload: bytes) -> TaskStats:
    """The statistics in a result row."""
    return TaskStats(**json.loads(payload))
