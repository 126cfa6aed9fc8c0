"""The loop of a replay: reads the stored bad records, and decodes and writes them again in batches, each record once.

A batch first marks its records as taken, in the folder, table or topic that stores them, and then writes them. If a
replay dies in between, the next replay finds the marks and writes the same records. A record that is still bad becomes
a bad record of the replay's batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.wording import counted
from bucketline.state.types.buffers import one_array
from bucketline.streaming.bad_records.stored import StoredRecords
from bucketline.streaming.decode.rejects import ReasonCode

MOST_RECORDS = 10_000
"""The largest number of records in one batch of a replay; the driver holds them in memory."""
_ORDER = [(name, "ascending") for name in ("topic", "partition", "offset", "batch_id", "number")]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The counts of a replay: the records that were `taken`, and how many of these are `still_bad`. The records that
    were `left` cannot be replayed, or their batch is not in the table.
    """

    taken: int
    still_bad: int
    left: int

    def line(self) -> str:
        """Returns the counts as one line for people."""
        left = f"; left: {counted(self.left, 'record')}" if self.left else ""
        return f"replayed {counted(self.taken, 'record')}, of which {self.still_bad:,} are still bad{left}"


ChosenRecords = Callable[[pa.Table], pa.Table]
"""A function that returns some of the given bad records (STORED_SCHEMA)."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The replay of a job: stored bad records are written again.

    `user` is the commit user of the replay, which also marks the records that the replay takes.
    `own` takes the records of a place (a folder, table or topic) and returns the records that belong to this job.
    `written` takes records and returns the records whose batch has been committed to the table.
    `newest` is the number of the replay's newest batch, None before the first batch.
    `write` writes records as the batch with the given number.
    """

    user: str
    places: Sequence[StoredRecords]
    own: ChosenRecords
    written: ChosenRecords
    newest: int | None
    write: Callable[[pa.Table, int], None]

    def run(self, is_ending: Callable[[], bool]) -> Replayed:
        """Replays the records that the places (folders, tables, topics) hold now, batch after batch, until `is_ending`
        returns True. Returns three counts: the records that were replayed, how many of these are still bad, and the
        records that cannot be replayed.
        """
        number = first = 0 if self.newest is None else self.newest + 1
        found = [(place, self._rows(place)) for place in self.places]
        begun = pa.concat_tables([rows.filter(pc.equal(rows["replay"], number)) for _, rows in found])
        taken = begun.num_rows
        if taken:
            self.write(begun, number)
            number += 1
        left = 0
        for place, rows in found:
            waiting = self._waiting(rows)
            left += int(pc.sum(rows["replay"].is_null()).as_py() or 0) - waiting.num_rows
            for start in range(0, waiting.num_rows, MOST_RECORDS):
                if is_ending():
                    break
                part = waiting.slice(start, MOST_RECORDS)
                place.claim(part, self.user, number)
                self.write(part, number)
                number, taken = number + 1, taken + part.num_rows
        return Replayed(taken, sum(self._still_bad(place, first) for place in self.places), left)

    def _rows(self, place: StoredRecords) -> pa.Table:
        return self.own(place.rows(self.user))

    def _waiting(self, rows: pa.Table) -> pa.Table:
        """Returns the bad records that can be replayed, oldest first. `rows` are bad records as they are stored. Three
        kinds of records are left out: records that a replay has already taken, records whose batch has not been
        committed to its table, and records of which only the refused row was stored (code ROW).
        """
        can_be = pc.fill_null(pc.not_equal(rows["code"], ReasonCode.ROW.value), True)
        return self.written(rows.filter(pc.and_(rows["replay"].is_null(), can_be))).sort_by(_ORDER)

    def _still_bad(self, place: StoredRecords, first: int) -> int:
        rows = self._rows(place)
        own = pc.and_(pc.equal(rows["query_id"], self.user), pc.greater_equal(rows["batch_id"], first))
        return int(rows.filter(own).num_rows)


def up_to(rows: pa.Table, newest: Callable[[str, str | None], int | None]) -> pa.Table:
    """Returns the records whose batch has been written. `newest` returns the newest batch that a writer (`query_id`)
    has written to a table (`table_name`); None if no batch is known.
    """
    if not rows.num_rows:
        return rows
    users, of_users = _encoded(rows["query_id"])
    tables, of_tables = _encoded(rows["table_name"])
    pairs, of_pairs = np.unique(of_users * len(tables) + of_tables, return_inverse=True)
    found = [newest(users[pair // len(tables)], tables[pair % len(tables)]) for pair in pairs.tolist()]
    limits = pa.array(found, pa.int64()).take(pa.array(of_pairs))
    return rows.filter(pc.less_equal(rows["batch_id"], limits))


def _encoded(texts: pa.ChunkedArray) -> tuple[list[Any], npt.NDArray[np.int64]]:
    """Returns the distinct strings of a column, and the position of each row's string among them. A null counts as a
    string.
    """
    encoded = one_array(texts).dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices).astype(np.int64)
