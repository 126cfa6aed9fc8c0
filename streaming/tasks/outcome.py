"""What the tasks of one Spark action have written and say, read from their result rows."""

from typing import Any

from bucketline.state.commit.message import CommitMessage, decode_messages
from bucketline.state.store.engine.engine import Outcome
from bucketline.state.types.schema_need import decode_need
from bucketline.streaming.decode.schema_needs import joined_needs
from bucketline.streaming.tasks.wire import FOUND, MESSAGES, NEEDS, NOTE, REJECTS, STATS, read_stats


def read_outcome(rows: list[Any], retired: tuple[CommitMessage, ...] = ()) -> Outcome:
    """The outcome in the result rows of tasks; `retired` are messages that go with theirs."""
    by_kind: dict[str, list[bytes]] = {MESSAGES: [], REJECTS: [], NOTE: [], STATS: [], NEEDS: [], FOUND: []}
    for row in rows:
        by_kind[row["kind"]].append(bytes(row["payload"]))
    return Outcome(
        messages=(*(m for payload in by_kind[MESSAGES] for m in decode_messages(payload)), *retired),
        rejects=tuple(by_kind[REJECTS]),
        stats=tuple(read_stats(payload) for payload in by_kind[STATS]),
        notes=tuple(payload.decode() for payload in by_kind[NOTE]),
        need=joined_needs(map(decode_need, by_kind[NEEDS])),
        found=tuple(by_kind[FOUND]),
    )
