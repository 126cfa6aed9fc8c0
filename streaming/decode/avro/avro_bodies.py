"""Reads the bodies of Avro records into an Arrow array, and lists the damaged bodies with their reasons. The body is
the record without the frame in front, which names the schema. All bodies have the same schema.

Bodies are read in parallel, field by field (`avro_columns`). Damaged bodies are left out, and the other bodies are read
again; after a few such turns the remaining bodies are read one by one (`avro_exact`). Bodies whose schema cannot be
read in parallel are read one by one from the start.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketline.streaming.decode.avro.avro_columns import read_column
from bucketline.streaming.decode.avro.avro_cursor import Cursor, DamagedRecords, LongRecords, Longs
from bucketline.streaming.decode.avro.avro_exact import LEFT_OVER, DamagedRecord, read_value
from bucketline.streaming.decode.avro.avro_schema import AvroKind, AvroSchema, Node

_MOST_TURNS = 16
_FEW = 16


@dataclass(frozen=True, slots=True)
class Bodies:
    """The values that were read from Avro bodies (Avro values without the bytes that name the schema), and the damaged
    bodies.

    - `values` have the Arrow type of the schema's root.
    - `positions` has for each value the position of its body in the input, in ascending order.
    - `bad` has for each damaged body its position in the input and the reason, in ascending order of positions.
    """

    values: pa.Array
    positions: Longs
    bad: tuple[tuple[int, str], ...]


def read_bodies(records: pa.Array, schema: AvroSchema, begin: int = 0) -> Bodies:
    """Decodes Avro records that all have the same schema. Each record is a binary value, without nulls; its first
    `begin` bytes are skipped (for example the magic byte and schema id). The result has for each record either a
    value, or the reason why the record cannot be decoded.
    """
    starts, ends, data = _places(records)
    starts = np.minimum(starts + begin, ends)
    pending = np.arange(len(records), dtype=np.int64)
    alone: list[Longs] = []
    bad: dict[int, str] = {}
    together, values = pending[:0], pa.nulls(0, schema.root.arrow)
    if not schema.root.is_parallel or len(records) <= _FEW:
        alone, pending = [pending], pending[:0]
    turns = 0
    while len(pending):
        turns += 1
        if turns > _MOST_TURNS:
            alone.append(pending)
            break
        cursor = Cursor(data, starts[pending], ends[pending], pending)
        try:
            values, together = _whole(schema.root, cursor), pending
            break
        except DamagedRecords as e:
            bad.update(dict.fromkeys(e.records.tolist(), e.reason))
            pending = np.setdiff1d(pending, e.records, assume_unique=True)
        except LongRecords as e:
            alone.append(e.records)
            pending = np.setdiff1d(pending, e.records, assume_unique=True)
    one_by_one = np.sort(np.concatenate([pending[:0], *alone]))
    if len(one_by_one):
        others, read = _one_by_one(records, one_by_one, schema, begin, bad)
        values, together = _in_order(pa.concat_arrays([values, others]), np.concatenate([together, read]))
    return Bodies(values, together, tuple(sorted(bad.items())))


def _places(records: pa.Array) -> tuple[Longs, Longs, np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    """Returns for each record the positions of its first byte and of the byte after its last, and the buffer that holds
    all records.
    """
    width = np.int64 if pa.types.is_large_binary(records.type) else np.int32
    _, offsets, data = records.buffers()
    if offsets is None or len(records) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8)
    places = np.frombuffer(offsets, dtype=width)[records.offset : records.offset + len(records) + 1].astype(np.int64)
    return places[:-1], places[1:], np.frombuffer(data or b"", dtype=np.uint8)


def _whole(root: Node, cursor: Cursor) -> pa.Array:
    values = read_column(root, cursor)
    cursor.demand(cursor.at == cursor.end, LEFT_OVER)
    return values


def _one_by_one(
    records: pa.Array, positions: Longs, schema: AvroSchema, begin: int, bad: dict[int, str]
) -> tuple[pa.Array, Longs]:
    values, read = [], []
    for position, record in zip(positions.tolist(), records.take(pa.array(positions)).to_pylist(), strict=True):
        try:
            values.append(_arrow_ready(read_value(record[begin:], schema), schema.root))
            read.append(position)
        except DamagedRecord as e:
            bad[position] = str(e)
    return pa.array(values, schema.root.arrow), np.array(read, dtype=np.int64)


def _arrow_ready(value: object, node: Node) -> object:
    """Returns the value with maps as lists of pairs, because older releases of pyarrow need this form."""
    if value is None or node.is_text:
        return value
    if isinstance(value, dict) and node.kind is AvroKind.MAP:
        return [(name, _arrow_ready(item, node.children[0])) for name, item in value.items()]
    if isinstance(value, dict) and node.kind is AvroKind.RECORD:
        return {name: _arrow_ready(value[name], child) for name, child in node.read_fields}
    if isinstance(value, list):
        return [_arrow_ready(item, node.children[0]) for item in value]
    if node.kind is AvroKind.UNION:
        return _arrow_ready(value, _branch_of(value, node.children))
    return value


def _branch_of(value: object, branches: Sequence[Node]) -> Node:
    """Returns the branch of a union that fits a value. All branches but null have the same Arrow type."""
    kinds = (AvroKind.MAP, AvroKind.RECORD) if isinstance(value, dict) else (AvroKind.ARRAY,)
    return next((branch for branch in branches if branch.kind in kinds), branches[0])


def _in_order(values: pa.Array, positions: Longs) -> tuple[pa.Array, Longs]:
    order = np.argsort(positions, kind="stable")
    return values.take(pa.array(order)), positions[order]
