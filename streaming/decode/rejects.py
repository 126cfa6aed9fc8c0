"""Bad records on their way from the tasks to the driver, through the batch's own shuffle. On the driver,
`streaming/bad_records` decides what happens to them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import BucketlineError

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
REJECTS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("headers", HEADERS),
        ("source_table", pa.string()),
        ("code", pa.string()),
        ("reason", pa.string()),
        ("value", pa.binary()),
    ]
)
"""The stored columns of a bad record.

The first six are null for sources without topics. All columns but position, reason and value are null if the folder,
table or topic for bad records does not store them. `source_table` is null if the record does not say its table.
"""

RECORD_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
"""The columns that hold the record itself."""


class ReasonCode(Enum):
    """The kind of reason why a record is bad."""

    MESSAGE = "MESSAGE"
    """The record is not a message of the format, or is a message that must have a row and has none."""
    VALUE = "VALUE"
    """A value does not fit its column, or cannot be computed."""
    NULL = "NULL"
    """A NOT NULL column has no value."""
    KEY = "KEY"
    """The record does not say which row it changes."""
    CONDITION = "CONDITION"
    """`where`, or a check of `expect`, cannot be computed for the row."""
    EXPECTATION = "EXPECTATION"
    """The row does not meet an expectation with `otherwise: reject`."""
    ROW = "ROW"
    """The table refuses the row. The row was stored as JSON, and not the record."""


UNEXPECTED = "expectation "
"""The beginning of the reason of a record that an expectation rejects. Such records do not count for the limit."""
_PATTERNS = {
    f"^{UNEXPECTED}": ReasonCode.EXPECTATION,
    r"^(?:where|expect\.[^:]*): ": ReasonCode.CONDITION,
    r"^field .*: null, but the column is NOT NULL$": ReasonCode.NULL,
    r"^field ": ReasonCode.VALUE,
    r"^(?:a delete |an update |a record without a value|a record with a key and without a value)": ReasonCode.KEY,
}


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """Bad records sent to the driver.

    - `row_count` is the number of records that count for the limit of bad records.
    - `blob` has all bad records, as an Arrow IPC stream of REJECTS_SCHEMA.
    - `unexpected_count` is the number of records in `blob` that an expectation has rejected; they do not count for the
      limit.
    """

    row_count: int
    blob: bytes
    unexpected_count: int = 0


def rejected_rows(rows: pa.Table, reasons: pa.Array, limit: int) -> RejectedRows:
    """Returns rows that the table refuses, as bad records: each row as JSON text, with its reason from `reasons`. Only
    the first `limit` rows are kept, because more bad records stop the job anyway.
    """
    kept = rows.slice(0, limit)
    texts = [json.dumps(row, default=str, ensure_ascii=False).encode() for row in kept.to_pylist()]
    known = {
        "code": pa.repeat(ReasonCode.ROW.value, len(texts)),
        "reason": reasons[: len(texts)],
        "value": pa.array(texts, pa.binary()),
    }
    table = rejects_of(known, len(texts))
    return RejectedRows(table.num_rows, pack_rejects(table))


def rejects_of(columns: Mapping[str, pa.Array], row_count: int) -> pa.Table:
    """Returns a table of REJECTS_SCHEMA with these columns of bad records; the columns that are missing are null."""
    given = [columns.get(f.name, pa.nulls(row_count, f.type)).cast(f.type) for f in REJECTS_SCHEMA]
    return pa.Table.from_arrays(given, schema=REJECTS_SCHEMA)


def reason_codes(reasons: pa.Array) -> pa.Array:
    """Takes the reasons why records are bad, as text without nulls. Returns for each reason its code (a
    `ReasonCode`), by which programs can tell kinds of reasons apart.
    """
    return pc.case_when(
        pc.make_struct(*(pc.fill_null(pc.match_substring_regex(reasons, pattern), False) for pattern in _PATTERNS)),
        *(pa.scalar(code.value) for code in _PATTERNS.values()),
        pa.scalar(ReasonCode.MESSAGE.value),
    )


def joined_rejects(parts: Iterable[RejectedRows | None]) -> RejectedRows | None:
    """Returns the bad records of all tasks in one value; None if there are none."""
    given = [part for part in parts if part is not None]
    if len(given) < 2:
        return given[0] if given else None
    blob = pack_rejects(pa.concat_tables([pa.ipc.open_stream(part.blob).read_all() for part in given]))
    return RejectedRows(sum(p.row_count for p in given), blob, sum(p.unexpected_count for p in given))


def pack_rejects(rejects: pa.Table) -> bytes:
    """Returns a table of REJECTS_SCHEMA as bytes, for the shuffle."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, REJECTS_SCHEMA) as writer:
        writer.write_table(rejects)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


class RejectedRecordsError(BucketlineError):
    """A batch holds more bad records than the job allows; the batch has not been committed."""

    code = "REJECTED_RECORDS"


class UnexpectedRowsError(BucketlineError):
    """A batch holds rows that do not meet an expectation with `otherwise: fail`; the batch has not been committed."""

    code = "UNEXPECTED_ROWS"
