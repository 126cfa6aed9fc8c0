"""Counts the bad records of a batch. If there are too many, the job stops; otherwise they are stored before the batch
is committed.

Bad records are written before the commit, under the name of the batch. If the job dies before the commit, the batch is
repeated, and stores its bad records under the same name again. A folder or a table replaces the bad records of the
first attempt, so it has each bad record once. A topic cannot take a record back, so it may have a bad record twice. No
bad record is lost.

The place (folder, table or topic) does not know the tables of the job. The place is called once for each batch, with
the bad records of all tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.secrets import mask_text
from bucketline.conf.wording import counted
from bucketline.streaming.decode.rejects import REJECTS_SCHEMA, UNEXPECTED, RejectedRecordsError

_ORDER = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]


@dataclass(frozen=True, slots=True)
class BatchName:
    """The batch and the table that bad records belong to.

    - `user` is the commit user of the writer (made of the query's id and the sink's id).
    - `batch_id` is the number of the batch.
    - `digest` is a digest of the batch's input.
    - `run_id` changes with each start of the query; None if it is not known.
    - `table` is the name of the table.
    - `folder` is the folder for the file of the batch; None means the writer's folder, which is named `user`.
    """

    user: str
    batch_id: int
    digest: str | None = None
    run_id: str | None = None
    table: str = ""
    folder: str | None = None


Rejects = Sequence[tuple[BatchName, pa.Table]]
"""The bad records of a batch: for each table, in a fixed order, rows of REJECTS_SCHEMA or no rows."""


class BadRecordsPlace(Protocol):
    """A place where bad records are stored: a folder, a table or a topic."""

    @property
    def name(self) -> str:
        """The name of the place (folder, table or topic), for messages."""
        ...

    def prepare(self) -> None:
        """Checks that the place (folder, table or topic) can take bad records, and creates it if it is missing. Raises
        BucketlineError if the place cannot take them.
        """
        ...

    def put(self, rejects: Rejects) -> str:
        """Stores the bad records of a batch, and returns where they are, for messages.

        The bad records of each table replace the bad records that an earlier attempt at the batch has stored for the
        table.
        """
        ...


@dataclass(frozen=True, slots=True)
class SetAside:
    """The stored bad records of a batch: their number, the path of the place (folder, table or topic) that holds them,
    and a description of the first bad record.
    """

    count: int
    path: str
    first: str

    def line(self) -> str:
        return f"{counted(self.count, 'record')} rejected and written to {mask_text(self.path)}; first: {self.first}"


def settle_bad_records(
    place: BadRecordsPlace | None, max_count: int, blobs: Sequence[bytes], batch: BatchName
) -> SetAside | None:
    """Stores the bad records of one batch of one table. `blobs` are the bad records that tasks have reported. Returns
    how many bad records there are, and where they are stored; None if there are no bad records.

    Raises RejectedRecordsError if there are more than `max_count` bad records (see `allowed_rejects`), and the errors
    of `BadRecordsPlace.put`.
    """
    rejects = allowed_rejects(place, max_count, blobs, batch.batch_id)
    return None if place is None else put_aside(place, [(batch, rejects)])


def put_aside(place: BadRecordsPlace, rejects: Rejects) -> SetAside | None:
    """Stores the bad records of all tables of a batch with one call. Returns their number and where they are
    stored; None if there are no bad records.
    """
    where = place.put(rejects)
    given = [table for _, table in rejects if table.num_rows]
    if not given:
        return None
    return SetAside(sum(table.num_rows for table in given), where, described(given[0]))


def allowed_rejects(place: BadRecordsPlace | None, max_count: int, blobs: Sequence[bytes], batch_id: int) -> pa.Table:
    """Returns the bad records of a batch as one table, ordered by topic, partition and offset. `blobs` has the bad
    records of each task, as `pack_rejects` makes them.

    Raises RejectedRecordsError if there are more than `max_count` bad records. Records that an expectation rejects do
    not count for this limit. Also raises the error if there is any bad record, and the job has no place (folder, table
    or topic) for bad records. The error contains the first bad record and its reason.
    """
    parts = [REJECTS_SCHEMA.empty_table(), *(pa.ipc.open_stream(blob).read_all() for blob in blobs)]
    rejects = pa.concat_tables(parts).sort_by(_ORDER)
    is_counted = pc.invert(pc.starts_with(rejects["reason"], UNEXPECTED))
    count = int(pc.sum(is_counted).as_py() or 0)
    if not rejects.num_rows or (count <= max_count and place is not None):
        return rejects
    first = described(rejects.filter(is_counted) if count else rejects)
    raise RejectedRecordsError(
        f"batch {batch_id} has at least {counted(count or rejects.num_rows, 'bad record')}; first: {first}. "
        f"{_what_helps(place, max_count)}",
        rejected=count,
        allowed=max_count,
    )


def _what_helps(place: BadRecordsPlace | None, max_count: int) -> str:
    """Returns advice for the error that there are too many bad records: which setting (such as `bad-records.max`) must
    be changed.
    """
    if place is None and max_count == 0:
        return "Correct the source; or set bad-records.path and bad-records.max, to store bad records in that folder"
    if place is None:
        return (
            f"bad-records.max allows {counted(max_count, 'bad record')}: also set bad-records.path, the folder that "
            "stores them"
        )
    if max_count == 0:
        return (
            "Correct the source; or raise bad-records.max, which is 0, to the number of bad records that a batch may "
            f"have: they are then stored in {mask_text(place.name)}"
        )
    allowed = counted(max_count, "bad record")
    return f"Correct the source; or raise bad-records.max, which allows {allowed} in a batch"


def described(rejects: pa.Table) -> str:
    """Returns a description of the first of the bad records, for messages."""
    topic, partition, offset, reason, value = (
        rejects[name][0].as_py() for name in ("topic", "partition", "offset", "reason", "value")
    )
    place = f"topic {topic} partition {partition} offset {offset}: " if topic is not None else ""
    shown = (value or b"")[:80].decode("utf-8", "replace")
    return f"{place}{reason} ({shown!r})"
