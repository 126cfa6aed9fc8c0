"""Notes about a topic for bad records, in files next to the job's checkpoint: what was sent, and what a replay has
taken.

A topic cannot take a record back. So before bad records are sent, a note stores the id of the attempt. Before a
repeated batch sends its bad records, a note withdraws the bad records of the earlier attempt.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bucketline.state.store.storage.file_io import FileIO, file_io_for
from bucketline.streaming.bad_records.place import BatchName

BESIDE = "-replay"
"""The end of the name of the folder next to the checkpoint."""
_SENT, _WITHDRAWN, _TAKEN = "sent", "withdrawn", "taken"


def notes_beside(checkpoint: str, topic: str, storage: Mapping[str, str]) -> "TopicNotes":
    """Returns the notes of a job about its topic for bad records: what was sent to the topic, and what a replay has
    taken from it. `checkpoint` is the path of the job's checkpoint; the notes are in a folder next to it.
    """
    return TopicNotes(f"{checkpoint.rstrip('/')}{BESIDE}/topics/{topic}", storage)


@dataclass(frozen=True, slots=True)
class TopicNotes:
    """The notes about the bad records that a job has sent to a topic: which attempts of a batch were sent or
    withdrawn, and what a replay has taken. The notes are files in the folder `path`. `storage` holds the options to
    reach the storage.
    """

    path: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def begin(self, batches: Sequence[BatchName], attempts: Mapping[str, str], *, is_begun: bool) -> None:
        """Notes the ids of the attempts (`attempts`, by table) that send their bad records to the topic next. Withdraws
        earlier attempts at the same batch, so that readers ignore the bad records of these attempts.

        `batches` has one name for each table of the batch. `is_begun` is True if there may have been an earlier
        attempt.
        """
        if not attempts and not is_begun:
            return
        io, root = file_io_for(self.path, self.storage)
        first = batches[0]
        name, path = [first.batch_id, first.digest], f"{root}/{_SENT}/{first.user}.json"
        said = io.read_optional(path) if is_begun else None
        noted: dict[str, Any] = {} if said is None else json.loads(said)
        known: dict[str, list[str]] = noted["tables"] if noted.get("batch") == name else {}
        gone = [attempt for batch in batches for attempt in known.get(batch.table, ())]
        if gone:
            io.overwrite(f"{root}/{_WITHDRAWN}/{gone[-1]}.json", json.dumps(gone).encode())
        if attempts:
            # An attempt may be withdrawn twice, but must never be forgotten before it is withdrawn.
            tables = known | {table: [attempt] for table, attempt in attempts.items()}
            io.overwrite(path, json.dumps({"batch": name, "tables": tables}).encode())

    def withdrawn(self) -> set[str]:
        """Returns the ids of withdrawn attempts at batches. The topic still has the bad records of these attempts, and
        readers ignore them.
        """
        io, root = file_io_for(self.path, self.storage)
        return {attempt for _, said in _files(io, f"{root}/{_WITHDRAWN}") for attempt in said}

    def take(self, records: Sequence[str], number: int) -> None:
        """Notes that the batch `number` of the replay takes the records that are recognised by these strings
        (`records`).
        """
        io, root = file_io_for(self.path, self.storage)
        io.overwrite(f"{root}/{_TAKEN}/{number}.json", json.dumps(list(records)).encode())

    def taken(self) -> dict[str, int]:
        """Returns the bad records that replays have taken from the topic to write their rows. The keys are the strings
        by which bad records are recognised. The value of a key is the number of the replay's batch that took the bad
        record.
        """
        io, root = file_io_for(self.path, self.storage)
        return {record: int(name) for name, said in _files(io, f"{root}/{_TAKEN}") for record in said}


def _files(io: FileIO, folder: str) -> Iterator[tuple[str, list[str]]]:
    for name in sorted(io.list_names(folder)):
        if name.endswith(".json") and not name.startswith("."):
            yield name.removesuffix(".json"), json.loads(io.read(f"{folder}/{name}"))
