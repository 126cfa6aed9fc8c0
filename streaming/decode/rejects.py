"""Records that cannot be written: they stop the job, or go to a folder up to a limit.

Map tasks send rejects through the batch's own shuffle. The driver counts them before the commit and publishes them
before the snapshot, under a name made of commit user and batch id: a replay of the batch overwrites the file.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
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
"""The columns kept of a bad record. The first three are null for sources without topics."""


UNEXPECTED = "expectation "
"""How the reason begins of a record that an expectation refuses. Such records do not count for the limit."""


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """Rejects sent to the driver: how many count for the limit, an Arrow IPC stream of REJECTS_SCHEMA, and how many
    more are in it that an expectation refuses."""

    row_count: int
    blob: bytes
    unexpected_count: int = 0


def rejected_rows(rows: pa.Table, reasons: pa.Array, limit: int) -> RejectedRows:
    """Refused rows with their reasons; only the first `limit` are kept, because more stop the job anyway. A row is kept
    as JSON text.
    """
    kept = rows.slice(0, limit)
    texts = [json.dumps(row, default=str, ensure_ascii=False).encode() for row in kept.to_pylist()]
    nothing = {n: pa.nulls(len(texts), REJECTS_SCHEMA.field(n).type) for n in ("topic", "partition", "offset")}
    table = pa.table(
        {**nothing, "reason": reasons[: len(texts)], "value": pa.array(texts, pa.binary())}, schema=REJECTS_SCHEMA
    )
    return RejectedRows(table.num_rows, pack_rejects(table))


def joined_rejects(parts: Iterable[RejectedRows | None]) -> RejectedRows | None:
    """All of them together; None for none."""
    given = [part for part in parts if part is not None]
    if len(given) < 2:
        return given[0] if given else None
    blob = pack_rejects(pa.concat_tables([pa.ipc.open_stream(part.blob).read_all() for part in given]))
    return RejectedRows(sum(p.row_count for p in given), blob, sum(p.unexpected_count for p in given))


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


class UnexpectedRowsError(BucketlineError):
    """A batch holds rows that are not as the job expects, which is to end it; nothing of it has been committed."""

    code = "UNEXPECTED_ROWS"


@dataclass(frozen=True, slots=True)
class RejectPolicy:
    """Up to `max_count` rejects of a batch are written to `path`; more stop the job. 0 stops at the first."""

    path: str | None = None
    max_count: int = 0


@dataclass(frozen=True, slots=True)
class SetAside:
    """The rejects of a batch that were written to a file: how many, the file, and the first of them."""

    count: int
    path: str
    first: str

    def line(self) -> str:
        return f"{counted(self.count, 'record')} rejected and written to {mask_text(self.path)}; first: {self.first}"


def settle_rejects(
    policy: RejectPolicy,
    blobs: Sequence[bytes],
    *,
    user: str,
    batch_id: int,
    storage: Mapping[str, str] | None = None,
) -> SetAside | None:
    """Counts a batch's rejects and writes them to the policy's folder; None if there are none. `storage` are the
    folder's storage options. Raises RejectedRecordsError above the limit, naming the first record and its reason.
    """
    if not blobs:
        return None
    rejects = pa.concat_tables([pa.ipc.open_stream(b).read_all() for b in blobs]).sort_by(
        [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    )
    is_counted = pc.invert(pc.starts_with(rejects["reason"], UNEXPECTED))
    count = int(pc.sum(is_counted).as_py() or 0)
    if count > policy.max_count or policy.path is None:
        first = _describe(rejects.filter(is_counted) if count else rejects)
        raise RejectedRecordsError(
            f"batch {batch_id} has at least {counted(count or rejects.num_rows, 'bad record')}; first: {first}. "
            f"{_what_helps(policy)}",
            rejected=count,
            allowed=policy.max_count,
        )
    io, root = file_io_for(policy.path, storage)
    sink = pa.BufferOutputStream()
    pq.write_table(rejects, sink)
    name = f"{user}/batch-{batch_id}.parquet"
    io.overwrite(f"{root}/{name}", sink.getvalue().to_pybytes())
    return SetAside(rejects.num_rows, f"{policy.path.rstrip('/')}/{name}", _describe(rejects))


def _what_helps(policy: RejectPolicy) -> str:
    """The setting that would allow the bad records, given the current settings."""
    if policy.path is None and policy.max_count == 0:
        return "Correct the source; or set bad-records.path and bad-records.max: bad records then go to that folder"
    if policy.path is None:
        return f"bad-records.max allows {policy.max_count:,} bad records: set bad-records.path, the folder for them"
    if policy.max_count == 0:
        return (
            "Correct the source; or raise bad-records.max, which is 0, to the number that a batch may have: they go "
            "to bad-records.path"
        )
    return f"Correct the source; or raise bad-records.max, which allows {policy.max_count:,} in a batch"


def _describe(rejects: pa.Table) -> str:
    topic, partition, offset, reason, value = (rejects[name][0].as_py() for name in REJECTS_SCHEMA.names)
    place = f"topic {topic} partition {partition} offset {offset}: " if topic is not None else ""
    shown = (value or b"")[:80].decode("utf-8", "replace")
    return f"{place}{reason} ({shown!r})"
