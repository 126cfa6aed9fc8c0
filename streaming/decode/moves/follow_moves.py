"""What a task does with records that change the key of a row and leave out values of that row. The task asks the driver
for the values, sends rows of the old keys to the driver, or puts in the values that the driver has found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.lsm.merge.left_out import unpack_left_out
from bucketline.state.types.arrow import UNAVAILABLE
from bucketline.state.types.binary_row import encode_rows
from bucketline.state.types.buffers import one_array
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataField
from bucketline.state.types.row_kind import RowKind
from bucketline.streaming.decode.moves.key_moves import Asking, FoundValues, KeyMoves, Longs, from_ipc, to_ipc
from bucketline.streaming.decode.row_changes import true_of
from bucketline.streaming.decode.unavailable import Keeping, LeftOut, Placeholder

TOPIC, PARTITION, OFFSET = "\0topic", "\0partition", "\0offset"
AT, MOVED = "\0at", "\0moved"
"""Columns of the rows that a task sends to the driver. Three columns are the topic, the partition and the offset of the
row's record (`PLACE`). AT is the record's position in the source's log; it is null unless the driver has asked for that
position. MOVED says whether the row is the new row of an update that changes the key and leaves out values.
"""
REFUSED, FILLED = "\0refused", "\0filled"
"""Columns of the table of values that the driver sends to tasks. REFUSED says whether the record is bad because its
values were not found. FILLED says which columns get values, in the form of the column UNAVAILABLE.
"""
PLACE = (TOPIC, PARTITION, OFFSET)

_SOURCE_PLACE = ("topic", "partition", "offset")
_NEW = (int(RowKind.INSERT), int(RowKind.UPDATE_AFTER))
_DELETE = int(RowKind.DELETE)


@dataclass(frozen=True, slots=True)
class Followed:
    """The result of following changes of keys in a task.

    - `rows` are the rows, in which values that the driver has found may be filled in.
    - `said` are the messages that the task sends to the driver, such as questions for values.
    - `bad` has the reason why a record is bad, by the index of the record.
    """

    rows: pa.Table
    said: tuple[bytes, ...] = ()
    bad: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Follower:
    """Fills in values for records that change the key of a row and leave out other values of this row: the missing
    values are those of the row under its old key. A task uses the object after it has decoded the records.

    - `keeping` says how the table keeps values that the source leaves out.
    - `key` are the columns that identify a row.
    - `told` is what the driver has sent. None: the first reading of the batch, in which the task reports which values
      are missing. Asking: the task looks for these values in its records. FoundValues: the task fills the values in.
    - `judges_old` is true if the job has a condition that may leave out the old row of an update.
    """

    keeping: Keeping
    key: tuple[DataField, ...]
    placeholder: Placeholder
    told: Asking | FoundValues | None = None
    judges_old: bool = False

    def follow(self, records: pa.Table, rows: pa.Table, of_rows: pa.Array, moves: KeyMoves) -> Followed:
        """Does the part of this task in finding values that the source has left out of rows whose key changed. `told`
        decides what is done:

        If `told` is None, the result has a question to the driver about the missing values.
        If `told` is a question of the driver, the result has the answer, and no rows.
        If `told` has the values that the driver has found, the result has the rows with these values put in.

        If no record in `moves` needs a value, the rows are returned unchanged. `of_rows` has for each row the index of
        its record, in ascending order.
        """
        if not moves and not isinstance(self.told, Asking):
            return Followed(rows)
        found = _Found(records, rows, np.asarray(of_rows), np.asarray(rows[ROW_KIND_COLUMN]), moves)
        if isinstance(self.told, Asking):
            answer = found.answer(from_ipc(self.told.asks), self.key) if found.has_places else None
            return Followed(rows.slice(0, 0), () if answer is None or not answer.num_rows else (to_ipc(answer),))
        if not found.has_places:
            return Followed(
                rows, bad=self._bad(found.inserted) | _all_for(found.moved, self.placeholder.reason_of_place)
            )
        bad = _all_for(found.without_old if self.judges_old else found.moved[:0], self.placeholder.reason_of_move)
        if isinstance(self.told, FoundValues):
            followed = self._with_told(found, self.told.table())
            return Followed(followed.rows, bad={**bad, **followed.bad})
        asks = found.asks(self.key)
        bad |= self._bad(found.inserted[~found.has_position])
        return Followed(rows, (to_ipc(asks),) if asks.num_rows else (), bad)

    def _bad(self, inserts: Longs) -> dict[int, str]:
        """`inserts` are the indices of records that insert a row, do not change a key, and leave out values. Returns
        the reason for each of these records that is bad.

        If left-out values are written as null, all of these records are bad: when rows are merged, a null does not
        replace a value, so the new row would take over values of an older row with the same key. Otherwise none is bad.
        """
        return _all_for(inserts, self.placeholder.reason) if self.keeping.left_out is LeftOut.NULL else {}

    def _with_told(self, found: "_Found", values: pa.Table) -> Followed:
        asked = np.union1d(found.moved, found.inserted)
        told = joined([one_array(values[name]) for name in PLACE])
        at = np.full(found.records.num_rows, -1, dtype=np.int64)
        at[asked] = pc.index_in(found.places(asked), value_set=told).fill_null(-1).to_numpy(zero_copy_only=False)
        known, unknown = asked[at[asked] >= 0], asked[at[asked] < 0]
        bad = self._bad(np.intersect1d(unknown, found.inserted))
        bad |= _all_for(np.intersect1d(unknown, found.moved), self.placeholder.reason_of_move)
        refused = true_of(one_array(values[REFUSED]).take(pa.array(at[known])))
        bad |= _all_for(known[refused], self.placeholder.reason_of_move)
        takes = np.flatnonzero((at[found.of_rows] >= 0) & np.isin(found.kinds, _NEW))
        return Followed(_with_values(found.rows, takes, at[found.of_rows[takes]], values, self.keeping.names), bad=bad)


def _all_for(records: Longs, reason: str) -> dict[int, str]:
    """Returns a dict with `reason` for each of these records."""
    return dict.fromkeys(map(int, records), reason)


@dataclass(frozen=True, slots=True)
class _Found:
    """The records of one call of `follow`, and the rows that were decoded from these records. `of_rows` has for each
    row the index of its record, and `kinds` has the row kind of each row. `moves` are the records that may change the
    key of a row although the source has left out some values of the row.
    """

    records: pa.Table
    rows: pa.Table
    of_rows: Longs
    kinds: npt.NDArray[np.int8]
    moves: KeyMoves

    @property
    def moved(self) -> Longs:
        """Returns the indices of the records that change the key of a row, and that give both a new row and a delete of
        the old row. Records without a delete are left out: the table computes its key from other columns, and the key
        of both rows is the same.
        """
        new = np.intersect1d(self.moves.moved, self.of_rows[np.isin(self.kinds, _NEW)])
        return np.intersect1d(new, self.of_rows[self.kinds == _DELETE])

    @property
    def without_old(self) -> Longs:
        """Returns the indices of the records that change a key and give only the row with the new key. These records
        give no delete of the row with the old key.
        """
        new = np.intersect1d(self.moves.moved, self.of_rows[np.isin(self.kinds, _NEW)])
        return np.setdiff1d(new, self.of_rows[~np.isin(self.kinds, _NEW)])

    @property
    def _gives_row(self) -> npt.NDArray[np.bool_]:
        return np.isin(self.moves.inserted, self.of_rows)

    @property
    def inserted(self) -> Longs:
        """Returns the indices of the records that insert a row and leave out values of this row. Records that give no
        row are left out.
        """
        return self.moves.inserted[self._gives_row]

    @property
    def has_position(self) -> npt.NDArray[np.bool_]:
        """Returns a mask of the records in `inserted`: true if the position of the record in the source's log is not
        null.
        """
        return true_of(self.moves.inserted_at.is_valid())[self._gives_row]

    @property
    def has_places(self) -> bool:
        """Whether every record has a topic, a partition and an offset."""
        known = all(name in self.records.column_names for name in _SOURCE_PLACE)
        return known and not any(self.records[name].null_count for name in _SOURCE_PLACE)

    def places(self, records: Longs) -> pa.Array:
        """Returns the topic, partition and offset of each of these records, joined into one text."""
        return joined([one_array(self.records[name]).take(pa.array(records)) for name in _SOURCE_PLACE])

    def asks(self, key: Sequence[DataField]) -> pa.Table:
        """Returns what this task asks for: rows that other tasks may have read. The driver passes the question to all
        tasks. Each row of the result has one of these:

        - the old key of a record that changes the key of a row, or
        - the topic and the position of an insert that has a position in the source's log.
        """
        rows = pa.array(np.flatnonzero((self.kinds == _DELETE) & np.isin(self.of_rows, self.moved)))
        topics = one_array(self.records["topic"]).take(pa.array(self.inserted[self.has_position]))
        positions = self.moves.inserted_at.filter(pa.array(self._gives_row)).drop_null()
        keys, places = len(rows), len(topics)
        columns = {f.name: one_array(self.rows[f.name]).take(rows) for f in key}
        nulls = {name: pa.nulls(places, column.type) for name, column in columns.items()}
        columns = {name: pa.concat_arrays([column, nulls[name]]) for name, column in columns.items()}
        columns[TOPIC] = pa.concat_arrays([pa.nulls(keys, pa.string()), topics.cast(pa.string())])
        columns[AT] = pa.concat_arrays([pa.nulls(keys, pa.string()), positions])
        return pa.table(columns)

    def answer(self, asked: pa.Table, key: Sequence[DataField]) -> pa.Table:
        """Returns the rows of this task that the driver needs to find the values that were left out: rows that have one
        of the asked keys, rows whose record is at one of the asked positions in the source's log, and rows that lack
        values.

        Columns are added to the rows: the topic, partition and offset of the record (`PLACE`), the record's position in
        the source's log (`AT`), and whether the row is the new row of an update that lacks values (`MOVED`).
        """
        of_rows = self.of_rows
        is_key = asked[AT].is_null()
        keys, wanted = asked.filter(is_key), asked.filter(pc.invert(is_key))
        topics = one_array(self.records["topic"]).cast(pa.string())
        positions = self._positions()
        there = joined([topics, positions]).take(pa.array(of_rows))
        is_there = pc.is_in(there, value_set=joined([one_array(wanted[TOPIC]), one_array(wanted[AT])]))
        has_key = pc.is_in(encoded(self.rows, key), value_set=encoded(keys, key))
        is_moved = np.isin(of_rows, self.moved) & np.isin(self.kinds, _NEW)
        takes = true_of(pc.or_(has_key, pc.fill_null(is_there, False))) | is_moved
        takes &= self.kinds != int(RowKind.UPDATE_BEFORE)
        chosen = pa.array(np.flatnonzero(takes))
        rows, its_record = self.rows.take(chosen), pa.array(of_rows[takes])
        for name, of_source in zip(PLACE, _SOURCE_PLACE, strict=True):
            rows = rows.append_column(name, one_array(self.records[of_source]).take(its_record))
        at = if_else(is_there, positions.take(pa.array(of_rows)), pa.scalar(None, pa.string())).take(chosen)
        return rows.append_column(AT, at).append_column(MOVED, pa.array(is_moved[takes]))

    def _positions(self) -> pa.Array:
        """Returns the position of each record in the source's log; null for a record that is neither a delete nor an
        insert that leaves out values.
        """
        moves = self.moves
        at = np.concatenate([moves.deleted, moves.inserted])
        known = pa.concat_arrays([moves.deleted_at, moves.inserted_at])
        place = np.full(self.records.num_rows, -1, dtype=np.int64)
        place[at] = np.arange(len(at))
        return known.take(pa.array(place, mask=place < 0))


def _with_values(rows: pa.Table, takes: Longs, sources: Longs, values: pa.Table, names: Sequence[str]) -> pa.Table:
    """Returns `rows` with values from the table `values`. The row at position `takes[i]` gets its values from the row
    at position `sources[i]` of `values`. `names` are the columns of the table.
    """
    bits = unpack_left_out(one_array(values[FILLED]), len(names))
    for at, name in enumerate(names):
        gets = bits[sources, at]
        if gets.any():
            column = one_array(rows[name])
            new = one_array(values[name]).cast(column.type)
            take = np.arange(rows.num_rows, dtype=np.int64)
            take[takes[gets]] = rows.num_rows + sources[gets]
            column = pa.concat_arrays([column, new]).take(pa.array(take))
            at_rows = rows.column_names.index(name)
            rows = rows.set_column(at_rows, rows.schema.field(at_rows), column)
    if UNAVAILABLE in rows.column_names:
        given = np.zeros(rows.num_rows, dtype=bool)
        given[takes] = bits[sources].any(axis=1)
        marks = if_else(pa.array(given), pa.scalar(None, pa.binary()), one_array(rows[UNAVAILABLE]))
        rows = rows.set_column(rows.column_names.index(UNAVAILABLE), UNAVAILABLE, marks)
    return rows


def joined(columns: Sequence[pa.Array]) -> pa.Array:
    """Returns a text for each row, which joins the values of the columns by slashes; null if one of the values is null.
    Topics contain no slash, so rows have equal texts only if all columns are equal.
    """
    return pc.binary_join_element_wise(*(column.cast(pa.string()) for column in columns), "/")


def encoded(rows: pa.Table, fields: Sequence[DataField]) -> pa.Array:
    """Returns the key of each row as bytes. The key consists of the columns `fields`. Equal keys have equal bytes."""
    return encode_rows([one_array(rows[f.name]) for f in fields], [f.type for f in fields], with_arity=True)
