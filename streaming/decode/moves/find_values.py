"""Finds the values that rows with a changed key take over from the rows of their old keys.

A change of a key deletes the row of the old key and inserts the row of the new key. The new row takes the values that
its record leaves out from the last row of the old key before that delete. Rows of one key are ordered by the table's
sequence fields, and then by arrival.

The row of the old key may leave out a value too. If that row has itself come from another key, the value comes from the
row of that other key; otherwise the value comes from an earlier row of the same key. If the batch has no earlier row,
the value comes from the row that the table has stored. A row before another delete gives no values. A record for which
a value is not found is bad, and its rows give no values to other records.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.lsm.merge.left_out import pack_left_out, unpack_left_out
from bucketline.state.types.arrow import UNAVAILABLE
from bucketline.state.types.buffers import one_array
from bucketline.state.types.logical import DataField
from bucketline.state.types.order import Direction, key_changes, sort_indices
from bucketline.state.types.row_kind import RowKind
from bucketline.streaming.decode.moves.follow_moves import AT, FILLED, MOVED, PLACE, REFUSED, TOPIC, encoded, joined
from bucketline.streaming.decode.moves.key_moves import Longs
from bucketline.streaming.decode.row_changes import true_of

Mask = npt.NDArray[np.bool_]
_DELETE, _NONE = int(RowKind.DELETE), -1

ReadStored = Callable[[pa.Table, tuple[str, ...]], pa.Table]
"""A function that takes keys and names of columns. It returns the rows with these keys that the table had before the
batch, with at least these columns.
"""


@dataclass(frozen=True, slots=True)
class MovedOrder:
    """A record may lack a value that another row of its key has. These facts about the table decide from which row the
    value is taken.

    `names` are the columns of the table, and `key` are the columns of the key.
    `sequence` are the columns that order the rows of one key, each with its direction.
    `null_keeps` is true if a null in a row counts as a value that the row leaves out.
    `keeps_deleted` is true if the table ignores deletes. Then the search for a value goes on in rows before a delete.
    """

    names: tuple[str, ...]
    key: tuple[DataField, ...]
    sequence: tuple[tuple[str, Direction], ...] = ()
    null_keeps: bool = False
    keeps_deleted: bool = False


def no_values() -> pa.Table:
    """Returns the result of `find_values` for no rows: an empty table with the columns that every result has."""
    return pa.table(
        {
            **dict(
                zip(PLACE, (pa.array([], pa.string()), pa.array([], pa.int32()), pa.array([], pa.int64())), strict=True)
            ),
            REFUSED: pa.array([], pa.bool_()),
            FILLED: pa.array([], pa.binary()),
        }
    )


def find_values(answers: pa.Table, order: MovedOrder, read_stored: ReadStored) -> pa.Table:
    """Returns a table with a row for each record that lacks values:

    - the topic, partition and offset of the record (`PLACE`);
    - whether the record is refused, because a value was not found (`REFUSED`);
    - which columns get values (`FILLED`), and these values.

    `answers` are the rows that tasks have sent; the rows of each task are in the order of arrival. `read_stored` reads
    the rows of the old keys that the table had before the batch.
    """
    rows = _sorted(answers, order)
    group = np.cumsum(key_changes(rows, [f.name for f in order.key])) - 1 if len(rows) else np.zeros(0, np.int64)
    linked = _linked(rows, group)
    wanting = linked.wanting
    bits = unpack_left_out(one_array(rows[UNAVAILABLE]), len(order.names))
    columns = [at for at in range(len(order.names)) if bits[wanting, at].any()]
    names = [order.names[at] for at in columns]
    keys = rows.take(pa.array(np.flatnonzero(np.diff(group, prepend=-1)))).select([f.name for f in order.key])
    stored = read_stored(keys, tuple(names))
    at_stored = pc.index_in(encoded(keys, order.key), value_set=encoded(stored, order.key))
    at_stored = at_stored.fill_null(_NONE).to_numpy(zero_copy_only=False).astype(np.int64)
    search = _Search(linked, np.asarray(rows[ROW_KIND_COLUMN]) == _DELETE, group, at_stored, order.keeps_deleted)
    lacks = {name: bits[:, at] | _is_null(rows[name], wanting, order) for name, at in zip(names, columns, strict=True)}
    asked = {name: bits[:, at] for name, at in zip(names, columns, strict=True)}
    refused, sources = search.run(lacks, asked)
    result = {name: rows[name].take(pa.array(wanting)) for name in PLACE}
    result[REFUSED] = pa.array(refused[wanting])
    filled = {name: asked[name][wanting] & ~refused[wanting] for name in names}
    result[FILLED] = pack_left_out(filled, order.names, len(wanting))
    for name in names:
        at = sources[name][wanting]
        behind = np.where(at > len(rows), len(rows) + at_stored[np.maximum(at - len(rows) - 1, 0)], at)
        both = pa.concat_arrays([one_array(rows[name]), one_array(stored[name]).cast(rows.schema.field(name).type)])
        result[name] = both.take(pa.array(behind, mask=~filled[name]))
    return pa.table(result)


def _is_null(column: pa.ChunkedArray, wanting: Longs, order: MovedOrder) -> Mask:
    """Returns a mask that is true where a null in the column means that the source left out the value. If a null is a
    value like any other in this table, the mask is false everywhere. `wanting` are the rows that name the values that
    they lack; in these rows the mask is false, and a null is a value.
    """
    if not order.null_keeps:
        return np.zeros(len(column), dtype=bool)
    mask = true_of(one_array(column).is_null())
    mask[wanting] = False
    return mask


def _sorted(answers: pa.Table, order: MovedOrder) -> pa.Table:
    """Returns the rows sorted by key. Rows with the same key are sorted by the sequence fields, and then by the
    position of their records in Kafka.
    """
    arrived = answers.append_column("\0row", pa.array(np.arange(len(answers))))
    arrived = arrived.sort_by([(name, "ascending") for name in (*PLACE, "\0row")]).drop_columns(["\0row"])
    keyed = sort_indices(arrived, [f.name for f in order.key], then=order.sequence)
    return arrived.take(keyed).combine_chunks()


@dataclass(frozen=True, slots=True)
class _Linked:
    """The rows that lack values, and the deletes of their old keys.

    `wanting` are the positions of the rows that lack values. `deletes` has for each of these rows the position of the
    delete of its old key, or -1 if this delete is not known. `ties` says for each of these rows whether the row and the
    delete come from the same record.
    """

    wanting: Longs
    deletes: Longs
    ties: Mask


def _linked(rows: pa.Table, group: Longs) -> _Linked:
    kinds = np.asarray(rows[ROW_KIND_COLUMN])
    is_delete = kinds == _DELETE
    is_moved = true_of(one_array(rows[MOVED]))
    at = joined([one_array(rows[TOPIC]), one_array(rows[AT])])
    is_pair = true_of(at.is_valid()) & ~is_delete
    is_pair &= true_of(pc.fill_null(pc.is_in(at, value_set=at.filter(pa.array(is_delete)).drop_null()), False))
    moved, pairs = np.flatnonzero(is_moved), np.flatnonzero(is_pair & ~is_moved)
    places = joined([one_array(rows[name]) for name in PLACE])
    of_moved = _only(places, group, moved, np.flatnonzero(is_delete))
    of_pairs = _only(at, group, pairs, np.flatnonzero(is_delete & true_of(at.is_valid())))
    ties = np.concatenate([np.ones(len(moved), bool), np.zeros(len(pairs), bool)])
    return _Linked(np.concatenate([moved, pairs]), np.concatenate([of_moved, of_pairs]), ties)


def _only(names: pa.Array, group: Longs, rows: Longs, deletes: Longs) -> Longs:
    """Finds, for each row in `rows`, the delete of its old key: the delete with the same name. A name is a string that
    identifies a record, or the record's position in the source's log.

    - `names` has the name of each row of the batch, and `group` has the number of each row's key.
    - `rows` and `deletes` are positions in `names` and `group`.

    Returns the position of the delete for each row. The result is -1 if no delete has the name, or if rows or deletes
    of different keys have the name. Deletes of one key may have the same name, because Debezium sends records again
    after a crash; then the first of these deletes is taken.
    """
    of_rows, of_deletes = names.take(pa.array(rows)), names.take(pa.array(deletes))
    if not len(rows) or not len(deletes):
        return np.full(len(rows), _NONE, dtype=np.int64)
    found = pc.index_in(of_rows, value_set=of_deletes).fill_null(_NONE).to_numpy(zero_copy_only=False)
    result = np.where(found >= 0, deletes[np.maximum(found, 0)], _NONE).astype(np.int64)
    for side, keys in ((of_rows, group[rows]), (of_deletes, group[deletes])):
        distinct = pa.table({"name": side, "key": pa.array(keys)}).group_by(["name", "key"], use_threads=False)
        counts = pc.value_counts(one_array(distinct.aggregate([])["name"]))
        often = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        result[true_of(pc.is_in(of_rows, value_set=often))] = _NONE
    return result


@dataclass(frozen=True, slots=True)
class _Search:
    """The rows of the old keys, sorted by key and then by age, and the search for values in these rows.

    `is_delete` says for each row whether the row is a delete.
    `group` has for each row the number of its group; a group consists of the rows of one key.
    `at_stored` has for each group the position of the key's row among the rows that the table has stored, or -1 if the
    table has no such row.

    The methods write the end of a search as a number. Let n be the count of rows. A number below n is the position of
    the row where the search ends. The number n means that the search has found nothing. The number n + 1 + g means that
    the search goes on in the stored row of group g.
    """

    linked: _Linked
    is_delete: Mask
    group: Longs
    at_stored: Longs
    keeps_deleted: bool

    @property
    def _count(self) -> int:
        return len(self.group)

    def run(self, lacks: dict[str, Mask], asked: dict[str, Mask]) -> tuple[Mask, dict[str, Longs]]:
        """Finds, for each row and column, the row from which the row gets its value. A row that keeps its value gets
        its own number (the class says how rows are numbered). Returns a mask of the rows that are refused because a
        value was not found, and the numbers by column.

        - `lacks` has for each column a mask of the rows without a value.
        - `asked` has for each column a mask of the rows for which a value is wanted.

        The search for a value may end at another row whose values are not found yet. So the search is done in rounds,
        and a round decides only the rows that do not wait for such a row. If a round decides no row, the rows that are
        left wait for one another in a circle, and all of them are refused.
        """
        count, wanting, deletes = self._count, self.linked.wanting, self.linked.deletes
        alive, refused = np.ones(count, dtype=bool), np.zeros(count, dtype=bool)
        sources = {name: np.arange(count, dtype=np.int64) for name in asked}
        open_ = deletes >= 0
        self._refuse(np.flatnonzero(~open_), alive, refused)
        while open_.any():
            waits, fails = np.zeros(len(wanting), bool), np.zeros(len(wanting), bool)
            undecided = np.zeros(count + 1 + len(self.at_stored), dtype=bool)
            undecided[wanting[open_]] = True
            if not self.keeps_deleted:
                undecided[deletes[open_ & self.linked.ties]] = True
            before, found = self._before(alive), {}
            for name, lacking in lacks.items():
                ends = self._ends(before, lacking, sources[name], undecided)
                at = ends[before[np.maximum(deletes, 0)]]
                of_column = asked[name][wanting]
                waits |= of_column & undecided[at]
                fails |= of_column & ~undecided[at] & self._is_nothing(at)
                found[name] = at
            decided = open_ & (fails | ~waits)
            if not decided.any():
                self._refuse(np.flatnonzero(open_), alive, refused)
                break
            self._refuse(np.flatnonzero(decided & fails), alive, refused)
            good = decided & ~fails
            for name, at in found.items():
                takes = good & asked[name][wanting]
                sources[name][wanting[takes]] = at[takes]
            open_ = open_ & ~decided
        return refused, sources

    def _refuse(self, at: Longs, alive: Mask, refused: Mask) -> None:
        """Marks rows in `refused`, and takes them out of `alive`, so that they give no values to other rows. `at` are
        positions in `linked.wanting`, the rows for which values are wanted. If a row and the delete of its old key come
        from the same record, the delete is taken out of `alive`, too.
        """
        rows, deletes = self.linked.wanting[at], self.linked.deletes[at]
        refused[rows], alive[rows] = True, False
        alive[deletes[self.linked.ties[at] & (deletes >= 0)]] = False

    def _before(self, alive: Mask) -> Longs:
        """Returns for each row where the search for an older value of its key begins. This is the number of the nearest
        earlier row of the same key that still counts (`alive`). If there is no such row, it is the number that stands
        for the stored row of the key (see the class).
        """
        before = self._count + 1 + self.group
        latest = np.maximum.accumulate(np.where(alive, np.arange(self._count), _NONE))
        earlier = np.concatenate([[_NONE], latest[:-1]]) if self._count else latest
        same = (earlier >= 0) & (self.group[np.maximum(earlier, 0)] == self.group)
        return np.where(same, earlier, before)

    def _ends(self, before: Longs, lacking: Mask, sources: Longs, undecided: Mask) -> Longs:
        """Returns for each row, and for each stored row, where a search that begins there ends. The class describes
        how numbers stand for the end of a search.

        From a row that lacks the value (`lacking`), the search goes on to the row `before` it. From a row that
        already got its value from another row, the search goes on to that row (`sources`). A search ends at a row
        with a value, and at an undecided row. It also ends at a delete, unless the table ignores deletes.
        """
        count = self._count
        after = np.arange(count + 1 + len(self.at_stored), dtype=np.int64)
        after[:count] = np.where(lacking, before, after[:count])
        own = sources != np.arange(count)
        after[:count][own] = sources[own]
        after[:count] = np.where(self.is_delete, before if self.keeps_deleted else count, after[:count])
        after = np.where(undecided, np.arange(len(after)), after)
        for _ in range(max(1, len(after)).bit_length() + 1):
            after = after[after]
        return after

    def _is_nothing(self, at: Longs) -> Mask:
        groups = np.maximum(at - self._count - 1, 0)
        has_none = self.at_stored[groups] < 0 if len(self.at_stored) else np.ones(len(at), bool)
        nothing: Mask = (at == self._count) | ((at > self._count) & has_none)
        return nothing


def old_keys(answers: pa.Table, asked: pa.Table, key: Sequence[DataField]) -> pa.Table:
    """Returns the keys that the driver has to ask for next. `asked` has the positions in the source's log, and the
    keys, that the driver has asked for. The result has the keys of the deletes in `answers` at one of these positions,
    without the keys that are in `asked` already.
    """
    is_there = pc.and_(pc.equal(answers[ROW_KIND_COLUMN], _DELETE), answers[AT].is_valid())
    there = answers.filter(is_there)
    places = joined([one_array(asked[TOPIC]), one_array(asked[AT])]).drop_null()
    there = there.filter(pc.is_in(joined([one_array(there[TOPIC]), one_array(there[AT])]), value_set=places))
    known = encoded(asked.filter(asked[AT].is_null()), key)
    new = pc.invert(pc.is_in(encoded(there, key), value_set=known))
    return there.filter(new).select([f.name for f in key])
