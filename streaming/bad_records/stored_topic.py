"""Reads bad records back from a topic, each once, and notes the records that a replay takes.

A record is recognised by its writer, table and batch, and by the topic, partition and offset from which the job read
it. So a record that is twice in the topic for bad records counts once, also if that topic is copied.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.streaming.bad_records.rejects_table import REPLAY
from bucketline.streaming.bad_records.stored import STORED_SCHEMA
from bucketline.streaming.bad_records.topic import (
    ATTEMPT,
    BATCH,
    CODE,
    OFFSET,
    PARTITION,
    PREFIX,
    QUERY,
    REASON,
    SOURCE_TABLE,
    TABLE,
    TIMESTAMP,
    TOPIC,
)
from bucketline.streaming.bad_records.topic_notes import TopicNotes

_TEXTS = {"query_id": QUERY, "table_name": TABLE, "code": CODE, "reason": REASON, "source_table": SOURCE_TABLE}
_OTHERS = {"batch_id": BATCH, "topic": TOPIC, "partition": PARTITION, "offset": OFFSET, "timestamp": TIMESTAMP}
_IDENTITY = ("query_id", "table_name", "batch_id", "topic", "partition", "offset")
_ATTEMPT = "attempt"


@dataclass(frozen=True, slots=True)
class StoredInTopic:
    """The bad records in a topic. `read` returns all messages of the topic, with the columns key, value and headers.
    `notes` record which bad records were replayed; all replays of the job share them.
    """

    read: Callable[[], pa.Table]
    notes: TopicNotes

    def rows(self, user: str) -> pa.Table:
        """Returns all bad records of the topic, each once; see `StoredRecords.rows`. The column `input` has the string
        by which a record is recognised.
        """
        found = _records(self.read())
        withdrawn = pa.array(sorted(self.notes.withdrawn()), pa.string())
        found = found.filter(pc.invert(pc.is_in(found[_ATTEMPT], value_set=withdrawn)))
        texts = [pc.cast(found[name], pa.string()) for name in _IDENTITY]
        names = pc.binary_join_element_wise(*texts, "\t", null_handling="replace", null_replacement="")
        named = found.append_column("input", names).append_column("at", pa.array(np.arange(found.num_rows)))
        newest = named.group_by("input", use_threads=False).aggregate([("at", "max")])["at_max"]
        once = named.take(newest.sort())
        taken = self.notes.taken()
        numbers = pc.index_in(once["input"], value_set=pa.array([*taken], pa.string()))
        replays = pa.array([*taken.values()], pa.int64()).take(numbers.combine_chunks())
        once = once.append_column(REPLAY, replays).append_column(
            "number", pa.array(np.zeros(once.num_rows, dtype=np.int32))
        )
        return once.select(STORED_SCHEMA.names).cast(STORED_SCHEMA)

    def claim(self, rows: pa.Table, user: str, number: int) -> None:
        """Notes that the batch `number` of the replay takes these rows; see `StoredRecords.claim`."""
        self.notes.take(rows["input"].to_pylist(), number)


def _records(messages: pa.Table) -> pa.Table:
    """Returns the bad records in messages, with the id of the attempt that sent them. Other messages are left out.

    The headers are Python values: bad records are few, and Spark returns headers as Python values.
    """
    said: list[dict[str, bytes]] = []
    own: list[list[dict[str, Any]] | None] = []
    for headers in messages["headers"].to_pylist():
        said.append({h["key"]: h["value"] or b"" for h in headers or () if h["key"].startswith(PREFIX)})
        own.append([h for h in headers or () if not h["key"].startswith(PREFIX)] or None)
    columns: dict[str, Any] = {"key": messages["key"], "value": messages["value"]}
    columns["headers"] = pa.array(own, STORED_SCHEMA.field("headers").type)
    for name, header in (*_TEXTS.items(), *_OTHERS.items(), (_ATTEMPT, ATTEMPT)):
        texts = pa.array([None if (text := of.get(header)) is None else text.decode() for of in said], pa.string())
        columns[name] = texts if name == _ATTEMPT else texts.cast(STORED_SCHEMA.field(name).type)
    found = pa.table(columns)
    return found.filter(pc.and_(found["query_id"].is_valid(), found["batch_id"].is_valid()))
