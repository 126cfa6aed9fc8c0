"""Flattens the arrays and maps of a column into one column of their elements, gives equal elements equal codes, and
builds arrays and maps from elements again.

`grouped` sorts the elements of all rows by the key of their row and by their code, so that aggregate functions can
treat elements like rows.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketline.state.lsm.aggregate.events import Events, Indices, Mask, Op
from bucketline.state.types.order import total_order


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """The elements of lists or maps. For each element, `rows` has the index of the row that contains the element, and
    `places` has the position of the element in the child array.
    """

    rows: Indices
    places: Indices

    def keep(self, mask: Mask) -> "Entries":
        return Entries(self.rows[mask], self.places[mask])


def entries_of(values: pa.Array, chosen: Mask) -> Entries:
    """Returns the elements of the chosen rows of a list or map array, in order. A null row has no elements."""
    offsets = values.offsets.to_numpy().astype(np.int64)
    lengths = np.where(chosen, np.diff(offsets), 0)
    if values.null_count:
        lengths[values.is_null().to_numpy(zero_copy_only=False)] = 0
    rows = np.repeat(np.arange(len(values)), lengths)
    before = np.cumsum(lengths) - lengths
    return Entries(rows, offsets[rows] + np.arange(len(rows)) - before[rows])


def arrival(events: Events, rows: Indices) -> Indices:
    """Returns an integer for each row in `rows`. Within a key, the integers ascend in the order in which rows take
    effect: late rows (rows that count as older than all other rows) come first, and of two late rows the later one
    comes first.
    """
    order: Indices = np.where(events.ops[rows] == Op.ADD_BEFORE, -rows - 1, rows)
    return order


def chronology(events: Events, entries: Entries) -> Indices:
    """Returns an integer for each element of the arrays. The integers ascend in the order in which elements take
    effect: row by row, and inside a row from the first element to the last. In a late row (a row that counts as older
    than all other rows), the order is from the last element to the first.
    """
    number = np.arange(len(entries.rows))
    late = events.ops[entries.rows] == Op.ADD_BEFORE
    positions = np.empty_like(number)
    positions[np.lexsort((np.where(late, -number, number), entries.rows))] = number
    return positions


def grouped(keys: Indices, codes: Indices, ops: np.ndarray, order: Indices) -> tuple[Indices, Events]:
    """Groups elements of arrays or maps: elements of the same key with equal values are a group. Each element has its
    key in `keys`, a code in `codes` that is the same for equal values, an `Op` in `ops`, and in `order` a number that
    orders the elements of a group.

    Returns the indices of the elements, sorted by key, code and `order`. Also returns an Events object that treats each
    group like the rows of one key. There must be at least one element.
    """
    sorted_by = np.lexsort((order, codes, keys))
    changes = np.ones(len(keys), bool)
    changes[1:] = (np.diff(keys[sorted_by]) != 0) | (np.diff(codes[sorted_by]) != 0)
    return sorted_by, Events(np.flatnonzero(changes), ops[sorted_by])


def list_array(keys: Indices, key_count: int, elements: pa.Array, present: Mask, data_type: pa.ListType) -> pa.Array:
    """Returns a list for each key, and null for a key for which `present` is false. `keys` has the index of the key to
    which each element belongs; these indices ascend.
    """
    offsets = pa.array(_offsets(keys, key_count))
    mask = None if present.all() else pa.array(~present)
    return pa.ListArray.from_arrays(offsets, elements, type=data_type, mask=mask)


def map_array(
    keys: Indices, key_count: int, names: pa.Array, items: pa.Array, present: Mask, data_type: pa.MapType
) -> pa.Array:
    """Returns a map for each key, and null for a key for which `present` is false. `names` and `items` are the map keys
    and values of all maps, and `keys` has the index of the key to which each entry belongs; these indices ascend.
    """
    offsets = pa.array(_offsets(keys, key_count))
    mask = None if present.all() else pa.array(~present)
    return pa.MapArray.from_arrays(offsets, names, items, type=data_type, mask=mask)


def value_codes(values: pa.Array) -> Indices:
    """Returns an integer code for each value. Two values have the same code if Java compares them as equal: NaN equals
    NaN, and -0.0 does not equal 0.0. Two maps are equal if they have the same entries, in any order.

    The code of a null is -1.
    """
    data_type = values.type
    if pa.types.is_struct(data_type):
        parts = [value_codes(c) for c in values.flatten()] or [np.zeros(len(values), np.int64)]
        codes = _codes_of_runs(np.stack(parts, axis=1), np.ones(len(values), np.int64))
    elif pa.types.is_list(data_type):
        codes = _codes_of_entries(values, value_codes(values.values)[:, None])
    elif pa.types.is_map(data_type):
        codes = _codes_of_map(values)
    else:
        if pa.types.is_floating(data_type):
            values = pa.array(total_order(values), mask=values.is_null().to_numpy(zero_copy_only=False))
        codes = values.dictionary_encode().indices.fill_null(-1).to_numpy().astype(np.int64)
    if values.null_count:
        codes = np.where(values.is_null().to_numpy(zero_copy_only=False), -1, codes)
    return codes


def _codes_of_map(values: pa.Array) -> Indices:
    entries = entries_of(values, np.ones(len(values), bool))
    names = value_codes(values.keys)[entries.places]
    items = value_codes(values.items)[entries.places]
    order = np.lexsort((names, entries.rows))
    return _codes_of_runs(np.stack([names, items], axis=1)[order], np.bincount(entries.rows, minlength=len(values)))


def _codes_of_entries(values: pa.Array, words: np.ndarray) -> Indices:
    entries = entries_of(values, np.ones(len(values), bool))
    return _codes_of_runs(words[entries.places], np.bincount(entries.rows, minlength=len(values)))


def _codes_of_runs(words: np.ndarray, lengths: Indices) -> Indices:
    """Returns an integer code for each group of consecutive lines of the matrix `words`. Two groups have the same
    code if their lines are equal. `lengths` has the number of lines of each group.
    """
    width = words.shape[1] * 8
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64) * width
    data = np.ascontiguousarray(words, np.int64)
    runs = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    codes: Indices = runs.dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def _offsets(keys: Indices, key_count: int) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=key_count))]).astype(np.int32)
