"""Records that cannot be written: they stop the job, or go to a folder up to a limit.

Map tasks report rejects through the batch's own shuffle. The driver counts them before the commit and publishes them
before the snapshot, under a name made of commit user and batch id: a replay of the batch overwrites, never doubles.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from bucketline.conf.errors import BucketlineError
from bucketline.conf.wording import counted
from bucketline.state.store.file_io import file_io_for

REJECTS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
        ("value", pa.binary()),
    ]
)
"""What is kept of a rejected record. Sources without topics leave the first three null."""


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """Rejects on their way to the driver: how many, and an Arrow IPC stream of REJECTS_SCHEMA."""

    row_count: int
    blob: bytes


def rejected_rows(rows: pa.Table, reasons: pa.Array, limit: int) -> RejectedRows:
    """Rows that are refused, each with its reason; only the first `limit` are kept, as more stop the job anyway.

    The value kept of a row is its JSON text.
    """
    kept = rows.slice(0, limit)
    texts = [json.dumps(row, default=str, ensure_ascii=False).encode() for row in kept.to_pylist()]
    nothing = {n: pa.nulls(len(texts), REJECTS_SCHEMA.field(n).type) for n in ("topic", "partition", "offset")}
    table = pa.table(
        {**nothing, "reason": reasons[: len(texts)], "value": pa.array(texts, pa.binary())}, schema=REJECTS_SCHEMA
    )
    return RejectedRows(table.num_rows, pack_rejects(table))


def pack_rejects(rejects: pa.Table) -> bytes:
    """The bytes of a table of REJECTS_SCHEMA, for the shuffle."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, REJECTS_SCHEMA) as writer:
        writer.write_table(rejects)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


class RejectedRecordsError(BucketlineError):
    """More records were rejected than the job allows; nothing of the batch has been committed."""

    code = "REJECTED_RECORDS"


@dataclass(frozen=True, slots=True)
class RejectPolicy:
    """`max_count` rejects a batch are let through to `path`; any more stop the job. 0 stops at the first."""

    path: str | None = None
    max_count: int = 0


def settle_rejects(
    policy: RejectPolicy,
    blobs: Sequence[bytes],
    *,
    user: str,
    batch_id: int,
    storage: Mapping[str, str] | None = None,
) -> int:
    """Counts a batch's rejects and writes them to the policy's folder; returns how many there are.

    `storage` says how the folder is reached.
    Raises RejectedRecordsError above the limit, naming the first record and its reason.
    """
    if not blobs:
        return 0
    rejects = pa.concat_tables([pa.ipc.open_stream(b).read_all() for b in blobs]).sort_by(
        [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    )
    if rejects.num_rows > policy.max_count or policy.path is None:
        raise RejectedRecordsError(
            f"at least {counted(rejects.num_rows, 'record')} of batch {batch_id} cannot be written, "
            f"the limit is {policy.max_count:,}; first: {_describe(rejects)}. Mend the source, or set bad-records.path "
            "and bad-records.max to let records like this one go to a folder",
            rejected=rejects.num_rows,
            allowed=policy.max_count,
        )
    io, root = file_io_for(policy.path, storage)
    sink = pa.BufferOutputStream()
    pq.write_table(rejects, sink)
    io.overwrite(f"{root}/{user}/batch-{batch_id}.parquet", sink.getvalue().to_pybytes())
    return int(rejects.num_rows)


def _describe(rejects: pa.Table) -> str:
    topic, partition, offset, reason, value = (rejects[name][0].as_py() for name in REJECTS_SCHEMA.names)
    place = f"topic {topic} partition {partition} offset {offset}: " if topic is not None else ""
    shown = (value or b"")[:80].decode("utf-8", "replace")
    return f"{place}{reason} ({shown!r})"
