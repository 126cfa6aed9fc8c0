"""The loop of a replay: bad records are taken from their places, and written again in batches, each once.

A batch first marks its records in the place as taken, and then writes them. If a replay dies in between, the next
replay finds the marks and writes the same records. A record that is still bad becomes a bad record of the replay's
batch.
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
"""Records of one batch: the driver holds them."""
_ORDER = [(name, "ascending") for name in ("topic", "partition", "offset", "batch_id", "number")]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The numbers of a replay: records `taken`, and how many of these are `still_bad`. Records are `left` if they
    cannot be replayed, or if their batch is not in the table.
    """

    taken: int
    still_bad: int
    left: int

    def line(self) -> str:
        """The numbers as one line for people."""
        left = f"; left: {counted(self.left, 'record')}" if self.left else ""
        return f"replayed {counted(self.taken, 'record')}, of which {self.still_bad:,} are still bad{left}"


ChosenRecords = Callable[[pa.Table], pa.Table]
"""Bad records (STORED_SCHEMA) → some of them."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The replay of a job. `user` is the replay's commit user, which also marks the records that it takes. `own`
    chooses the records of the job among the records of a place; `written` chooses the records whose batch is in its
    table. `newest` is the number of the replay's newest batch, None before the first. `write` writes records as the
    batch with the given number.
    """

    user: str
    places: Sequence[StoredRecords]
    own: ChosenRecords
    written: ChosenRecords
    newest: int | None
    write: Callable[[pa.Table, int], None]

    def run(self, is_ending: Callable[[], bool]) -> Replayed:
        """Replays the records that the places hold at the time of the call, batch after batch. Returns how many records
        were replayed, and how many are still bad or left.
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
        """The records to replay, oldest first: no replay has taken them, and their batch is in its table."""
        can_be = pc.fill_null(pc.not_equal(rows["code"], ReasonCode.ROW.value), True)
        return self.written(rows.filter(pc.and_(rows["replay"].is_null(), can_be))).sort_by(_ORDER)

    def _still_bad(self, place: StoredRecords, first: int) -> int:
        rows = self._rows(place)
        own = pc.and_(pc.equal(rows["query_id"], self.user), pc.greater_equal(rows["batch_id"], first))
        return int(rows.filter(own).num_rows)


def up_to(rows: pa.Table, newest: Callable[[str, str | None], int | None]) -> pa.Table:
    """The records of batches that have been written. `newest` is the newest batch of a writer (`query_id`) in a table
    (`table_name`), None where none is known."""
    if not rows.num_rows:
        return rows
    users, of_users = _encoded(rows["query_id"])
    tables, of_tables = _encoded(rows["table_name"])
    pairs, of_pairs = np.unique(of_users * len(tables) + of_tables, return_inverse=True)
    found = [newest(users[pair // len(tables)], tables[pair % len(tables)]) for pair in pairs.tolist()]
    limits = pa.array(found, pa.int64()).take(pa.array(of_pairs))
    return rows.filter(pc.less_equal(rows["batch_id"], limits))


def _encoded(texts: pa.ChunkedArray) -> tuple[list[Any], npt.NDArray[np.int64]]:
    """The different texts of a column, and the position of each row's text among them; a null counts as a text."""
    encoded = one_array(texts).dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices).astype(np.int64)
