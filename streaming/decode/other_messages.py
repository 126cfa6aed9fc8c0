"""Recognizes two kinds of messages by their fields: messages of Debezium that do not describe the change of a row, and
messages of other programs.

Heartbeats, begins and ends of transactions, changes of the schema and notifications are in topics of their own, which a
pattern of topics may include. They hold no rows, so they are skipped and counted by kind. The name of a topic does not
tell its kind of message, because topics may have any name.
Source: Debezium 3.5 documentation (heartbeat.interval.ms, provide.transaction.metadata, include.schema.changes,
notifications); CloudEvents 1.0; Oracle GoldenGate for Big Data's JSON formatter; AWS DMS's Kafka target.
"""

from collections.abc import Mapping, Sequence
from enum import Enum


class Skipped(Enum):
    """Kinds of records that hold no row and are not bad."""

    TOMBSTONE = "tombstone"
    HEARTBEAT = "heartbeat"
    TRANSACTION = "transaction message"
    SCHEMA_CHANGE = "schema change"
    NOTIFICATION = "notification"
    MESSAGE = "logical message"
    TRUNCATE = "truncate"
    OTHER_TABLE = "record of another table"


TRUNCATE_REMEDY = "set truncate to skip to keep the rows of the table, or to apply to remove them"

_TIMES = frozenset({"ts_ms", "ts_us", "ts_ns"})
_TRANSACTION = frozenset({"status", "id", "event_count", "data_collections"})
_SCHEMA_CHANGE = frozenset({"databaseName", "ddl", "tableChanges"})
_NOTIFICATION = frozenset({"aggregate_type", "type", "additional_data"})
_NO_EVENT = "not a Debezium event: it has no field op"
_FOREIGN = (
    (frozenset({"specversion", "type", "source"}), "a CloudEvents message"),
    (frozenset({"op_type", "op_ts", "pos"}), "a message of Oracle GoldenGate"),
    (frozenset({"data", "metadata"}), "a message of AWS DMS"),
)
_FLATTENED = "for rows without an envelope, as Debezium's ExtractNewRecordState makes them, use debezium-flat-json"
_ENVELOPE = frozenset({"before", "after", "op"})


def skipped_kind(payload: object) -> Skipped | None:
    """Returns the kind of a message without a row; None for a change of a row, and for an unknown message."""
    if not isinstance(payload, Mapping):
        return None
    names, op = payload.keys(), payload.get("op")
    if op is not None:
        return Skipped.MESSAGE if op == "m" and "message" in names else None
    if "ts_ms" in names and names <= _TIMES:
        return Skipped.HEARTBEAT
    if names >= _TRANSACTION and payload["status"] in ("BEGIN", "END"):
        return Skipped.TRANSACTION
    if names >= _SCHEMA_CHANGE:
        return Skipped.SCHEMA_CHANGE
    return Skipped.NOTIFICATION if names >= _NOTIFICATION else None


def no_event(payload: object) -> str:
    """Returns the reason why a message without `op` gives no row, and what to do."""
    return foreign(payload) or f"{_NO_EVENT}; {_FLATTENED}"


def no_row(payload: object, key: Sequence[str]) -> str:
    """Returns the reason why a message without the columns of the key gives no row, and what to do."""
    if isinstance(payload, Mapping) and payload.keys() >= _ENVELOPE:
        return "an event of Debezium with its envelope, and not a row; use decode: debezium-json"
    return foreign(payload) or f"not a row: it has none of the columns of the key ({', '.join(key)})"


def foreign(payload: object) -> str | None:
    """Returns a reason with the name of a known format that is not supported; None if the message may be Debezium's."""
    if not isinstance(payload, Mapping):
        return None
    for fields, program in _FOREIGN:
        if payload.keys() >= fields:
            return f"not a Debezium event but {program}, a format that is not supported"
    source = payload.get("source")
    if isinstance(source, Mapping) and source.get("connector") == "mongodb":
        return "an event of Debezium for MongoDB, whose documents are texts: a format that is not supported"
    return None
