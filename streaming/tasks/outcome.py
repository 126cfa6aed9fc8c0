"""What the tasks of one Spark action have written and say, read from their result rows."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bucketline.state.commit.message import CommitMessage, decode_messages
from bucketline.streaming.decode.schema_needs import NEEDS, NO_NEED, read_needs
from bucketline.streaming.tasks.wire import MESSAGES, NOTE, REJECTS, STATS, TaskStats, read_stats

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
"""Bounds what a write task receives at once; without it ten thousand runs would come in one record batch."""

ARROW_BYTES_LIMIT = 64 << 20


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What the tasks of a batch have written and told; `notes` are tokens of key-index notes.

    `need` is what the records need and the table does not have: not null, the batch is not to be committed.
    """

    messages: tuple[CommitMessage, ...]
    rejects: tuple[bytes, ...]
    stats: tuple[TaskStats, ...]
    notes: tuple[str, ...] = ()
    need: pa.DataType = NO_NEED

    @property
    def accepted_rows(self) -> int:
        return sum(s.accepted_rows for s in self.stats)


def read_outcome(rows: list[Any]) -> BatchOutcome:
    """The outcome in the result rows of tasks."""
    by_kind: dict[str, list[bytes]] = {MESSAGES: [], REJECTS: [], NOTE: [], STATS: [], NEEDS: []}
    for row in rows:
        by_kind[row["kind"]].append(bytes(row["payload"]))
    return BatchOutcome(
        messages=tuple(m for payload in by_kind[MESSAGES] for m in decode_messages(payload)),
        rejects=tuple(by_kind[REJECTS]),
        stats=tuple(read_stats(payload) for payload in by_kind[STATS]),
        notes=tuple(payload.decode() for payload in by_kind[NOTE]),
        need=read_needs(by_kind[NEEDS]),
    )


def bound_arrow(spark: Any) -> None:
    """Sets how many bytes of runs a write task of this session receives at once, where nobody has set it lower."""
    current = spark.conf.get(ARROW_BYTES, None)
    if current is None or not current.isdigit() or int(current) > ARROW_BYTES_LIMIT:
        spark.conf.set(ARROW_BYTES, str(ARROW_BYTES_LIMIT))
