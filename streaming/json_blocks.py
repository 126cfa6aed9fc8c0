"""JSON objects, one per value, to Arrow structs: fast for whole blocks, exact for the blocks where that fails.

*Fast*: Arrow's JSON reader over the values joined by newlines. It loses row alignment on values that are no single
object, crashes the process on a bare `null`, and fails as a whole on one bad value. So every value must begin with `{`
and end with `}`: then a value that is not closed makes the next `{` a syntax error (a text cannot go on over the
newline), and one that holds several objects makes too many rows; as many rows as values means one row for each.
*Exact*: `json_exact`. It accepts all that the fast way accepts, with the same result (a property test holds the two
together), and more: values of one column that differ in their form. What it refuses is bad, with the reason.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from bucketline.streaming.json_convert import convert_leaf, raw_type
from bucketline.streaming.json_exact import Failures, build_array, kind_of, parse_json
from bucketline.streaming.json_shape import Form, Reading, Shape

BLOCK_BYTES = 4 << 20
"""Bytes of values that are read at once; a larger value is a block of its own."""

_SPLIT_WAYS = 8
_EXACT_ROWS = 64
_SAMPLE_ROWS = 8
_JSON_BLANKS = " \t\n\r"
_BRACES = (ord("{"), ord("}"))


@dataclass(frozen=True, slots=True)
class Objects:
    """Values that were objects of the shape, and those that were not; JSON's `null` is neither.

    `structs` are of the shape's type; `positions` say which input value each stands for, ascending. `bad` are
    (position, reason), ascending.
    """

    structs: pa.Array
    positions: npt.NDArray[np.int64]
    bad: tuple[tuple[int, str], ...]


def read_objects(values: pa.Array, shape: Shape) -> Objects:
    """The objects in JSON texts. Shapes: n binary without nulls in; at most n structs and bad values together out."""
    found = [
        part for start, stop in _blocks(values) for part in _read_block(values.slice(start, stop - start), shape, start)
    ]
    return Objects(
        pa.concat_arrays([pa.nulls(0, shape.arrow), *(part.structs for part in found)]),
        np.concatenate([np.zeros(0, dtype=np.int64), *(part.positions for part in found)]),
        tuple(bad for part in found for bad in part.bad),
    )


def _blocks(values: pa.Array) -> Iterator[tuple[int, int]]:
    if len(values) == 0:
        return
    ends = np.cumsum(pc.binary_length(values).to_numpy(), dtype=np.int64)
    start = 0
    while start < len(values):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + BLOCK_BYTES, side="right")))
        yield start, stop
        start = stop


def _read_block(values: pa.Array, shape: Shape, start: int) -> Iterator[Objects]:
    """The block's objects in order. A block that fails is split, so that one bad value slows down few others.

    When the first two parts of a split fail, the rest is likely to: it is read exactly without another attempt.
    """
    found = read_fast(values, shape)
    if found is not None:
        yield Objects(found, np.arange(start, start + len(values)), ())
        return
    if len(values) <= _EXACT_ROWS:
        yield read_exact(values, shape, start)
        return
    step = -(-len(values) // _SPLIT_WAYS)
    for part, offset in enumerate(range(0, len(values), step)):
        found = read_fast(values.slice(offset, step), shape)
        if found is not None:
            yield Objects(found, np.arange(start + offset, start + offset + len(found)), ())
        elif part == 1:
            yield read_exact(values.slice(offset), shape, start + offset)
            return
        else:
            yield from _read_block(values.slice(offset, step), shape, start + offset)


def read_exact(values: pa.Array, shape: Shape, start: int = 0) -> Objects:
    """The values one by one; `start` is the position of the first."""
    parsed: list[object] = []
    positions: list[int] = []
    bad: dict[int, str] = {}
    for position, value in enumerate(values.to_pylist(), start):
        try:
            found = parse_json(value)
        except ValueError as e:
            bad[position] = str(e)
            continue
        if found is not None:
            parsed.append(found)
            positions.append(position)
    failures = Failures()
    structs = build_array(parsed, shape, failures)
    at = np.array(positions, dtype=np.int64)
    good = np.ones(len(parsed), dtype=bool)
    for record, reason in failures.reasons.items():
        good[record] = False
        bad[positions[record]] = reason
    return Objects(structs.filter(pa.array(good)), at[good], tuple(sorted(bad.items())))


def read_fast(values: pa.Array, shape: Shape) -> pa.Array | None:
    """The values as structs, or None when not every value is plainly an object of the shape."""
    try:
        texts = values if _is_braced(values) else _trimmed(values)
        if texts is None:
            return None
        settled = settle(shape, _samples(texts))
        return None if settled is None else _parse(texts, settled)
    except (pa.ArrowException, ValueError):
        return None


def settle(shape: Shape, samples: Sequence[object]) -> Shape | None:
    """The shape with one form for each leaf: the one that the first sample that is not null has.

    None when the fast way cannot read it: maps, literals as texts, forms that are refused.
    """
    there = [s for s in samples if s is not None]
    if shape.is_map:
        return None
    if not shape.children:
        form = shape.form_of(kind_of(there[0])) if there else shape.forms[0]
        if form is None or form.reading in (Reading.LITERAL, Reading.REFUSED):
            return None
        return replace(shape, forms=(form,))
    if shape.is_row:
        objects = [s for s in there if isinstance(s, dict)]
        nested: list[list[object]] = [[o.get(name) for o in objects] for name in shape.names]
    else:
        nested = [[e for s in there if isinstance(s, list) for e in s]]
    children = [settle(c, some) for c, some in zip(shape.children, nested, strict=True)]
    if any(child is None for child in children):
        return None
    return replace(shape, children=tuple(child for child in children if child is not None))


def _samples(texts: pa.Array) -> list[object]:
    """The first few values, parsed; what cannot be parsed here will fail later, with a reason."""
    found: list[object] = []
    for text in texts.slice(0, _SAMPLE_ROWS).to_pylist():
        try:
            found.append(parse_json(text))
        except ValueError:
            continue
    return found


def _parse(texts: pa.Array, shape: Shape) -> pa.Array | None:
    texts.cast(pa.string())  # refuses what is not UTF-8
    ends = pa.array([0, len(texts)], pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(ends, texts.cast(pa.binary())), b"\n")
    data = joined.buffers()[2]
    raw = _raw_struct(shape)
    table = pj.read_json(
        pa.BufferReader(data),
        read_options=pj.ReadOptions(use_threads=False, block_size=max(data.size + 1, 1024)),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema(list(raw)), newlines_in_values=True, unexpected_field_behavior="ignore"
        ),
    )
    if table.num_rows != len(texts):
        return None
    columns = [_flat(table.column(name)) for name in shape.names]
    children = [_convert(column, child) for column, child in zip(columns, shape.children, strict=True)]
    if not children:
        return pa.array([{}] * len(texts), shape.arrow)
    return pa.StructArray.from_arrays(children, fields=list(shape.arrow))


def _raw_struct(shape: Shape) -> pa.DataType:
    return pa.struct([pa.field(n, _raw(c)) for n, c in zip(shape.names, shape.children, strict=True)])


def _raw(shape: Shape) -> pa.DataType:
    if shape.is_row:
        return _raw_struct(shape)
    if shape.children:
        return pa.list_(_raw(shape.children[0]))
    return raw_type(shape.type, _only_form(shape))


def _convert(raw: pa.Array, shape: Shape) -> pa.Array:
    if shape.is_row:
        if not shape.children:
            return raw
        children = [_convert(raw.field(i), child) for i, child in enumerate(shape.children)]
        return pa.StructArray.from_arrays(children, fields=list(shape.arrow), mask=raw.is_null())
    if shape.children:
        assert raw.offset == 0, "raw arrays come fresh from the reader"
        null = np.append(raw.is_null().to_numpy(zero_copy_only=False), False)
        offsets = pa.array(raw.offsets.to_numpy(), mask=null)
        return pa.ListArray.from_arrays(offsets, _convert(raw.values, shape.children[0]), type=shape.arrow)
    return convert_leaf(raw, shape, _only_form(shape))


def _only_form(shape: Shape) -> Form:
    assert len(shape.forms) == 1, "the shape is settled"
    return shape.forms[0]


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _is_braced(values: pa.Array) -> bool:
    first = pc.binary_slice(values, 0, 1)
    last = pc.binary_slice(values, -1, 2**31 - 2)
    return bool(pc.all(pc.and_(pc.equal(first, b"{"), pc.equal(last, b"}"))).as_py())


def _trimmed(values: pa.Array) -> pa.Array | None:
    texts = pc.utf8_trim(values.cast(pa.string()), characters=_JSON_BLANKS).cast(pa.binary())
    return texts if _is_braced(texts) else None
