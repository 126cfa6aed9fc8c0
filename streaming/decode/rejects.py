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
from bucketline.conf.secrets import mask_text
from bucketline.conf.wording import counted
from bucketline.state.store.storage.file_io import file_io_for

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
    """A batch holds more bad records than the job allows; nothing of it has been committed."""

    code = "REJECTED_RECORDS"


@dataclass(frozen=True, slots=True)
class RejectPolicy:
    """`max_count` rejects a batch are let through to `path`; any more stop the job. 0 stops at the first."""

    path: str | None = None
    max_count: int = 0


@dataclass(frozen=True, slots=True)
class SetAside:
    """The rejects of a batch that were let through: how many, the file that holds them, and the first of them."""

    count: int
    path: str
    first: str

    def line(self) -> str:
        return (
            f"{counted(self.count, 'record')} could not be written, kept in {mask_text(self.path)}; first: {self.first}"
        )


def settle_rejects(
    policy: RejectPolicy,
    blobs: Sequence[bytes],
    *,
    user: str,
    batch_id: int,
    storage: Mapping[str, str] | None = None,
) -> SetAside | None:
    """Counts a batch's rejects and writes them to the policy's folder; None where there are none.

    `storage` says how the folder is reached.
    Raises RejectedRecordsError above the limit, naming the first record and its reason.
    """
    if not blobs:
        return None
    rejects = pa.concat_tables([pa.ipc.open_stream(b).read_all() for b in blobs]).sort_by(
        [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    )
    count = int(rejects.num_rows)
    if count > policy.max_count or policy.path is None:
        raise RejectedRecordsError(
            f"batch {batch_id} holds at least {counted(count, 'record')} that cannot be "
            f"written; first: {_describe(rejects)}. {_what_helps(policy)}",
            rejected=count,
            allowed=policy.max_count,
        )
    io, root = file_io_for(policy.path, storage)
    sink = pa.BufferOutputStream()
    pq.write_table(rejects, sink)
    name = f"{user}/batch-{batch_id}.parquet"
    io.overwrite(f"{root}/{name}", sink.getvalue().to_pybytes())
    return SetAside(count, f"{policy.path.rstrip('/')}/{name}", _describe(rejects))


def _what_helps(policy: RejectPolicy) -> str:
    """The setting that lets such records through, given those that are set."""
    if policy.path is None and policy.max_count == 0:
        return "Mend the source; or set bad-records.path and bad-records.max, and such records go to that folder"
    if policy.path is None:
        return f"bad-records.max lets {policy.max_count:,} of them through: set bad-records.path to say where they go"
    if policy.max_count == 0:
        return (
            "Mend the source; or set bad-records.max, which is 0, to the number that a batch may hold: they go to "
            "bad-records.path, which is set"
        )
    return f"Mend the source; or raise bad-records.max, which lets {policy.max_count:,} of a batch through"


def _describe(rejects: pa.Table) -> str:
    topic, partition, offset, reason, value = (rejects[name][0].as_py() for name in REJECTS_SCHEMA.names)
    place = f"topic {topic} partition {partition} offset {offset}: " if topic is not None else ""
    shown = (value or b"")[:80].decode("utf-8", "replace")
    return f"{place}{reason} ({shown!r})"
