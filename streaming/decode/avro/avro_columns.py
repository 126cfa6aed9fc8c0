"""Reads many Avro values of one type at once into an Arrow array. There is one step for each field, however many
records there are.
Source: Avro 1.12 specification, binary encoding.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from bucketline.streaming.decode.avro.avro_cursor import Cursor, DamagedRecords, LongRecords, Longs
from bucketline.streaming.decode.avro.avro_exact import inside_of
from bucketline.streaming.decode.avro.avro_schema import AvroKind, Node

_FEW_ROWS, _MANY_ITEMS = 16, 64
_INT = np.iinfo(np.int32)


def read_column(node: Node, cursor: Cursor, path: str = "") -> pa.Array:
    """Reads the next value of each row, and returns the values in the node's Arrow type.

    `path` is put before each reason, for example `field a.b: `. Raises DamagedRecords for records that cannot be read,
    and LongRecords for a few records whose arrays are much longer than the arrays of the other records.
    """
    return _READERS[node.kind](node, cursor, path)


def skip_column(node: Node, cursor: Cursor, path: str = "") -> None:
    """Skips the next value of each row. The bytes are checked as in `read_column`, but UTF-8 and the keys of maps are
    not checked.
    """
    kind = node.kind
    if kind in (AvroKind.BYTES, AvroKind.STRING):
        cursor.skip(cursor.lengths(path), path)
    elif kind is AvroKind.RECORD:
        for name, child in zip(node.names, node.children, strict=True):
            skip_column(child, cursor, inside_of(path, name))
    elif kind is AvroKind.UNION:
        for branch, rows in _branches(node, cursor, path):
            part = cursor.some(rows)
            skip_column(branch, part, path)
            cursor.go_on(rows, part)
    elif kind in (AvroKind.ARRAY, AvroKind.MAP):
        _each_item(node, cursor, path, lambda part: _skip_item(node, part, path))
    elif kind is not AvroKind.NULL:
        read_column(node, cursor, path)


def _skip_item(node: Node, part: Cursor, path: str) -> None:
    if node.kind is AvroKind.MAP:
        part.skip(part.lengths(path), path)
    skip_column(node.children[0], part, path)


def _null(node: Node, cursor: Cursor, path: str) -> pa.Array:
    return pa.nulls(len(cursor))


def _boolean(node: Node, cursor: Cursor, path: str) -> pa.Array:
    bytes_ = cursor.data[cursor.skip(1, path)]
    cursor.demand(bytes_ < 2, f"{path}a boolean is neither 0 nor 1")
    return pa.array(bytes_ == 1)


def _int(node: Node, cursor: Cursor, path: str) -> pa.Array:
    numbers = cursor.numbers(path)
    cursor.demand((numbers >= _INT.min) & (numbers <= _INT.max), f"{path}an int has more than 32 bits")
    return pa.array(numbers.astype(np.int32))


def _long(node: Node, cursor: Cursor, path: str) -> pa.Array:
    return pa.array(cursor.numbers(path))


def _float(node: Node, cursor: Cursor, path: str) -> pa.Array:
    return pa.array(cursor.block(4, path).view("<f4").reshape(-1))


def _double(node: Node, cursor: Cursor, path: str) -> pa.Array:
    return pa.array(cursor.block(8, path).view("<f8").reshape(-1))


def _bytes(node: Node, cursor: Cursor, path: str) -> pa.Array:
    return cursor.spans(cursor.lengths(path), path)


def _string(node: Node, cursor: Cursor, path: str) -> pa.Array:
    spans = cursor.spans(cursor.lengths(path), path)
    try:
        return spans.cast(pa.string())
    except pa.ArrowInvalid:
        raise DamagedRecords(np.unique(cursor.record[_not_utf8(spans)]), f"{path}a text is not UTF-8") from None


def _not_utf8(spans: pa.Array) -> Longs:
    """Returns the rows whose bytes are not UTF-8. These rows are found by halving, because most often there are few or
    none.
    """
    rows: list[int] = []
    pending = [(0, len(spans))]
    while pending:
        start, stop = pending.pop()
        try:
            spans.slice(start, stop - start).cast(pa.string())
        except pa.ArrowInvalid:
            if stop - start == 1:
                rows.append(start)
            else:
                half = (start + stop) // 2
                pending += [(start, half), (half, stop)]
    return np.array(rows, dtype=np.int64)


def _fixed(node: Node, cursor: Cursor, path: str) -> pa.Array:
    return _as(node.arrow, cursor.spans(node.size, path))


def _enum(node: Node, cursor: Cursor, path: str) -> pa.Array:
    codes = cursor.numbers(path)
    inside = (codes >= 0) & (codes < len(node.names))
    cursor.demand(inside, f"{path}the enum has {len(node.names)} symbols, and the record names one beyond them")
    return pa.array(node.names, pa.string()).take(pa.array(codes))


def _record(node: Node, cursor: Cursor, path: str) -> pa.Array:
    columns = []
    for name, child in zip(node.names, node.children, strict=True):
        if child.is_read:
            columns.append(read_column(child, cursor, inside_of(path, name)))
        else:
            skip_column(child, cursor, inside_of(path, name))
    if not columns:
        return pa.array([{}] * len(cursor), pa.struct([]))
    return pa.StructArray.from_arrays(columns, names=[name for name, _ in node.read_fields])


def _union(node: Node, cursor: Cursor, path: str) -> pa.Array:
    kind = node.arrow
    columns, places = [pa.nulls(0, kind)], [np.zeros(0, dtype=np.int64)]
    for branch, rows in _branches(node, cursor, path):
        if branch.kind is AvroKind.NULL:
            continue
        if len(rows) == len(cursor):
            return _as(kind, read_column(branch, cursor, path))
        part = cursor.some(rows)
        columns.append(_as(kind, read_column(branch, part, path)))
        places.append(rows)
        cursor.go_on(rows, part)
    values, rows = pa.concat_arrays(columns), np.concatenate(places)
    order = np.full(len(cursor), -1, dtype=np.int64)
    order[rows] = np.arange(len(rows))
    return values.take(pa.array(order, mask=order < 0))


def _as(kind: pa.DataType, values: pa.Array) -> pa.Array:
    """Returns the values cast to the Arrow type `kind`. If the values have the type `kind` already, they are returned
    without a cast, because Arrow fails to cast an empty map.
    """
    return values if values.type == kind else values.cast(kind)


def _branches(node: Node, cursor: Cursor, path: str) -> list[tuple[Node, Longs]]:
    """Reads for each row which branch (which of the possible types) of a union the row has. Returns the branches that
    occur, each with the indices of the rows that have this branch.
    """
    chosen = cursor.numbers(path)
    inside = (chosen >= 0) & (chosen < len(node.children))
    cursor.demand(inside, f"{path}the union has {len(node.children)} branches, and the record names one beyond them")
    split = [(branch, np.flatnonzero(chosen == at)) for at, branch in enumerate(node.children)]
    return [(branch, rows) for branch, rows in split if len(rows)]


def _array(node: Node, cursor: Cursor, path: str) -> pa.Array:
    items: list[pa.Array] = [pa.nulls(0, node.children[0].arrow)]
    rows = _each_item(node, cursor, path, lambda part: items.append(read_column(node.children[0], part, path)))
    order, offsets = _by_row(rows, len(cursor))
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(items).take(order))


def _map(node: Node, cursor: Cursor, path: str) -> pa.Array:
    keys: list[pa.Array] = [pa.nulls(0, pa.string())]
    items: list[pa.Array] = [pa.nulls(0, node.children[0].arrow)]

    def read(part: Cursor) -> None:
        keys.append(_string(node, part, path))
        items.append(read_column(node.children[0], part, path))

    rows = _each_item(node, cursor, path, read)
    names, values = pa.concat_arrays(keys), pa.concat_arrays(items)
    last = _last_of_each_name(rows, names)
    names, values, rows = names.take(pa.array(last)), values.take(pa.array(last)), rows[last]
    order, offsets = _by_row(rows, len(cursor))
    return pa.MapArray.from_arrays(offsets, names.take(order), values.take(order))


def _last_of_each_name(rows: Longs, names: pa.Array) -> Longs:
    """Finds the entries of maps that stay if a map has a key twice: the last entry of each key. `rows` and `names` have
    for each entry the row of its map, and its key. Returns the positions of the entries that stay, in ascending order.
    """
    codes = names.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = rows * (int(codes.max(initial=0)) + 1) + codes
    _, from_behind = np.unique(pairs[::-1], return_index=True)
    return np.sort(len(rows) - 1 - from_behind)


def _by_row(rows: Longs, count: int) -> tuple[pa.Array, pa.Array]:
    """Groups array or map items by the row they belong to. `rows` has the row number of each item, and `count` is the
    number of rows.

    Returns the positions of the items, sorted by row, and offsets into these positions: the items of row i are at
    `offsets[i]` to `offsets[i + 1]`.
    """
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
    return pa.array(np.argsort(rows, kind="stable")), pa.array(offsets)


def _each_item(node: Node, cursor: Cursor, path: str, read: Callable[[Cursor], object]) -> Longs:
    """Reads the items of an array or map in many rows at a time: first the first item of each row, then the second
    items, and so on. Each call of `read` gets a cursor at the next item of all rows that have a further item. Returns
    for each item that was read the index of its row, in the order of the calls.

    In the bytes of an array, items come in blocks: a count, then that many items. After a negative count comes the size
    of the block in bytes. A count of 0 is the end.
    """
    fewest = node.children[0].fewest_bytes + (node.kind is AvroKind.MAP)
    rows_of_items: list[Longs] = [np.zeros(0, dtype=np.int64)]
    open_rows = np.arange(len(cursor), dtype=np.int64)
    turns = 0
    while len(open_rows):
        part = cursor.some(open_rows)
        left = _block_counts(part, fewest, path)
        cursor.go_on(open_rows, part)
        open_rows, left = open_rows[left > 0], left[left > 0]
        rows = open_rows
        while len(rows):
            turns += 1
            if turns > _MANY_ITEMS and len(rows) <= _FEW_ROWS:
                raise LongRecords(np.unique(cursor.record[rows]))
            part = cursor.some(rows)
            read(part)
            cursor.go_on(rows, part)
            rows_of_items.append(rows)
            left = left - 1
            rows, left = rows[left > 0], left[left > 0]
    return np.concatenate(rows_of_items)


def _block_counts(part: Cursor, fewest: int, path: str) -> Longs:
    counts = part.numbers(path)
    sized = np.flatnonzero(counts < 0)
    if len(sized):
        with_size = part.some(sized)
        size = with_size.lengths(path)
        with_size.demand(size <= with_size.end - with_size.at, f"{path}a block is longer than the record")
        part.go_on(sized, with_size)
        counts[sized] = -counts[sized]
    part.demand((counts >= 0) & (counts <= (part.end - part.at) // fewest), f"{path}there are more items than bytes")
    return counts


_READERS: dict[AvroKind, Callable[[Node, Cursor, str], pa.Array]] = {
    AvroKind.NULL: _null,
    AvroKind.BOOLEAN: _boolean,
    AvroKind.INT: _int,
    AvroKind.LONG: _long,
    AvroKind.FLOAT: _float,
    AvroKind.DOUBLE: _double,
    AvroKind.BYTES: _bytes,
    AvroKind.STRING: _string,
    AvroKind.FIXED: _fixed,
    AvroKind.ENUM: _enum,
    AvroKind.RECORD: _record,
    AvroKind.UNION: _union,
    AvroKind.ARRAY: _array,
    AvroKind.MAP: _map,
}
