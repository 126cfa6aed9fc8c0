"""Elements of arrays and maps as flat columns, codes for their values, and arrays built from them.

Elements of all rows together can be grouped like rows: see `grouped`.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketline.state.lsm.aggregate.events import Events, Indices, Mask, Op
from bucketline.state.types.order import total_order


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Elements of lists or maps. For each element `rows` has the row that contains the element, and `places` has the
    element's position in the child array.
    """

    rows: Indices
    places: Indices

    def keep(self, mask: Mask) -> "Entries":
        return Entries(self.rows[mask], self.places[mask])


def entries_of(values: pa.Array, chosen: Mask) -> Entries:
    """Returns the elements of the chosen rows of a list or map array, in order; absent rows have none."""
    offsets = values.offsets.to_numpy().astype(np.int64)
    lengths = np.where(chosen, np.diff(offsets), 0)
    if values.null_count:
        lengths[values.is_null().to_numpy(zero_copy_only=False)] = 0
    rows = np.repeat(np.arange(len(values)), lengths)
    before = np.cumsum(lengths) - lengths
    return Entries(rows, offsets[rows] + np.arange(len(rows)) - before[rows])


def arrival(events: Events, rows: Indices) -> Indices:
    """Returns for each row a number that ascends in the order in which the rows of its key count: late rows come before
    all others, the latest of them first.
    """
    order: Indices = np.where(events.ops[rows] == Op.ADD_BEFORE, -rows - 1, rows)
    return order


def chronology(events: Events, entries: Entries) -> Indices:
    """Returns for each entry a number that ascends in the order in which entries apply: row by row, and within a late
    row from the last entry backwards.
    """
    number = np.arange(len(entries.rows))
    late = events.ops[entries.rows] == Op.ADD_BEFORE
    positions = np.empty_like(number)
    positions[np.lexsort((np.where(late, -number, number), entries.rows))] = number
    return positions


def grouped(keys: Indices, codes: Indices, ops: np.ndarray, order: Indices) -> tuple[Indices, Events]:
    """Returns the numbers of the entries sorted by key, code and `order`, and the events of each group of entries with
    the same key and code. There must be at least one entry.
    """
    sorted_by = np.lexsort((order, codes, keys))
    changes = np.ones(len(keys), bool)
    changes[1:] = (np.diff(keys[sorted_by]) != 0) | (np.diff(codes[sorted_by]) != 0)
    return sorted_by, Events(np.flatnonzero(changes), ops[sorted_by])


def list_array(keys: Indices, key_count: int, elements: pa.Array, present: Mask, data_type: pa.ListType) -> pa.Array:
    """Returns one list for each key; null for keys that are not `present`. `keys` has the key of each element,
    ascending.
    """
    offsets = pa.array(_offsets(keys, key_count))
    mask = None if present.all() else pa.array(~present)
    return pa.ListArray.from_arrays(offsets, elements, type=data_type, mask=mask)


def map_array(
    keys: Indices, key_count: int, names: pa.Array, items: pa.Array, present: Mask, data_type: pa.MapType
) -> pa.Array:
    """Returns one map for each key; null for keys that are not `present`. `keys` has the key of each name and item,
    ascending.
    """
    offsets = pa.array(_offsets(keys, key_count))
    mask = None if present.all() else pa.array(~present)
    return pa.MapArray.from_arrays(offsets, names, items, type=data_type, mask=mask)


def value_codes(values: pa.Array) -> Indices:
    """Returns codes that are equal for equal values, as Java compares them: NaN equals NaN, -0.0 does not equal 0.0.

    The code of a null is -1. Maps are equal whatever the order of their entries.
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
    """Takes a matrix, and divides its lines into consecutive groups of these lengths. Returns a code for each group;
    equal groups have equal codes.
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
