"""The ledger: what a job of many tables knows about its tables between two batches. There is one file for each batch,
in the checkpoint.

A table commits only in batches that bring it rows, so its newest snapshot does not say how far the job has read. The
ledger says how far: it has each table's last batch, and the offsets up to which the table has its records.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bucketline.conf.routes.route import SourceName
from bucketline.state.errors import CorruptFileError, UnsupportedTableError
from bucketline.streaming.tasks.many.split import Feed, Origin

FORMAT = 1
BEFORE_ALL = -1
"""The batch number of a ledger with which a query begins."""

FeedOffsets = Mapping[Feed, int]
"""The next offset of each topic and partition."""


@dataclass(frozen=True, slots=True)
class Parked:
    """Why and when a table was parked (left out of batches). `batch` is the batch in which the table failed; this batch
    has the offsets from `start` to `end`. `why` is the text of the error, and `since_ms` is the time at which the table
    was parked, in milliseconds since 1970.
    """

    batch: int
    user: str
    digest: str | None
    start: FeedOffsets
    end: FeedOffsets
    why: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What the job knows about one table.

    - `birth` is the hash of the table's first schema: a table that was dropped and created again has another hash.
    - `last_batch` is the newest batch with rows for the table, and `commits` is the number of batches with rows for it.
    - `fed` are the Kafka partitions from which the table has got records.
    - `origins` are the source tables and topics of these records.
    - All records before the offsets `cutoff` are in the table. None means the end of the ledger's batch; every table
      that takes part in batches has None.
    - `parked` says why batches leave out the records of the table; None if they do not.
    - `catching_up` is true for a table that was parked, and now reads the records that it has missed.
    - `lacks_since_ms` is the time at which the first missed record was written; None if not known.
    - `marked_ms` is the time at which the table's newest batch was tagged.
    """

    birth: str
    last_batch: int | None = None
    commits: int = 0
    fed: frozenset[Feed] = frozenset()
    origins: frozenset[Origin] = frozenset()
    cutoff: FeedOffsets | None = None
    parked: Parked | None = None
    catching_up: bool = False
    lacks_since_ms: int | None = None
    marked_ms: int = 0

    @property
    def takes_part(self) -> bool:
        """True if batches write this table together with the other tables. False if the table is parked (left out after
        a failure), or catching up (reading the records that it missed while it was parked).
        """
        return self.parked is None and not self.catching_up


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a job of many tables knows about its tables after one batch.

    - `query`, `batch` and `digest` identify the query, the batch and its input.
    - `pin` is the hash of the settings with which the batch was written.
    - `end` are the offsets in Kafka at the end of the batch.
    - `tables` has an entry for each table that the job has ever written.
    """

    query: str
    batch: int
    digest: str | None
    pin: str
    end: FeedOffsets
    tables: Mapping[str, Entry] = field(default_factory=dict)

    def cutoff(self, target: str) -> FeedOffsets:
        """Returns the offsets up to which a table has got its records. Returns the end offsets of the batch for a
        table that the job does not know, or whose entry stores no offsets.
        """
        entry = self.tables.get(target)
        return self.end if entry is None or entry.cutoff is None else entry.cutoff

    def encode(self) -> bytes:
        """Returns the text of the ledger's file. Equal ledgers have equal texts."""
        said = {
            "format": FORMAT,
            "query": self.query,
            "batch": self.batch,
            "digest": self.digest,
            "pin": self.pin,
            "end": _topics(self.end),
            "tables": {target: _said(entry) for target, entry in sorted(self.tables.items())},
        }
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()


def decode_ledger(data: bytes, path: str) -> Ledger:
    """Returns the ledger in a file. Raises CorruptFileError for a file that is cut short, and UnsupportedTableError for
    a newer format.
    """
    try:
        said = json.loads(data)
        if said["format"] != FORMAT:
            raise UnsupportedTableError(
                f"{path} is a ledger of format {said['format']}, but only format {FORMAT} is known: a newer "
                "bucketline has written the checkpoint; use the newer bucketline",
                path=path,
            )
        tables = {target: _entry(entry) for target, entry in said["tables"].items()}
        end = offsets_in(said["end"])
        return Ledger(said["query"], int(said["batch"]), said["digest"], said["pin"], end, tables)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise CorruptFileError(
            (
                f"{path} is not a ledger, or is cut short; restore the checkpoint, or run the job once with "
                "--reset-identity"
            ),
            path=path,
        ) from e


def _topics(offsets: FeedOffsets) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def offsets_in(topics: Mapping[str, Mapping[str, int]]) -> dict[Feed, int]:
    """Returns offsets by topic and partition, from the nested form in which Spark writes them."""
    return {(t, int(p)): int(offset) for t, of in topics.items() for p, offset in of.items()}


def offsets_text(offsets: FeedOffsets) -> str:
    """Returns offsets as JSON text, in the form in which a batch's identity holds the offsets of a Kafka source."""
    return json.dumps([_topics(offsets)], sort_keys=True)


def _said(entry: Entry) -> dict[str, Any]:
    said: dict[str, Any] = {"birth": entry.birth, "last-batch": entry.last_batch, "commits": entry.commits}
    said["marked-ms"] = entry.marked_ms
    fed: dict[str, list[int]] = {}
    for topic, partition in sorted(entry.fed):
        fed.setdefault(topic, []).append(partition)
    said["fed"] = fed
    said["origins"] = sorted(
        ([None if o.name is None else [o.name.table, o.name.schema, o.name.database], o.topic] for o in entry.origins),
        key=str,
    )
    if entry.cutoff is not None:
        said["cutoff"] = _topics(entry.cutoff)
    if entry.catching_up:
        said["catching-up"] = True
    if entry.lacks_since_ms is not None:
        said["lacks-since-ms"] = entry.lacks_since_ms
    if entry.parked is not None:
        p = entry.parked
        said["parked"] = {
            "batch": p.batch,
            "user": p.user,
            "digest": p.digest,
            "start": _topics(p.start),
            "end": _topics(p.end),
            "why": p.why,
            "since-ms": p.since_ms,
        }
    return said


def _entry(said: Mapping[str, Any]) -> Entry:
    parked = said.get("parked")
    cutoff = said.get("cutoff")
    return Entry(
        birth=said["birth"],
        last_batch=said["last-batch"],
        commits=int(said["commits"]),
        fed=frozenset((topic, int(p)) for topic, partitions in said["fed"].items() for p in partitions),
        origins=frozenset(Origin(None if n is None else SourceName(*n), topic) for n, topic in said["origins"]),
        cutoff=None if cutoff is None else offsets_in(cutoff),
        parked=None
        if parked is None
        else Parked(
            parked["batch"],
            parked["user"],
            parked["digest"],
            offsets_in(parked["start"]),
            offsets_in(parked["end"]),
            parked["why"],
            parked["since-ms"],
        ),
        catching_up=said.get("catching-up", False),
        lacks_since_ms=said.get("lacks-since-ms"),
        marked_ms=int(said["marked-ms"]),
    )
