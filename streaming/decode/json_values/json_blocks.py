"""Reads JSON objects, one in each value, into Arrow structs: fast for whole blocks, exactly for blocks that the fast
way cannot read.

*Fast*: Arrow's JSON reader reads the values joined by newlines. It loses the order of rows if a value is not exactly
one object, crashes the process on a bare `null`, and fails as a whole on one bad value. So every value must begin with
`{` and end with `}`. Then a value that is not closed makes the next `{` a syntax error (a string cannot continue over
the newline), and a value with several objects gives too many rows. If there are as many rows as values, each value is
one row.

*Exact*: `json_exact` accepts everything that the fast way accepts, with the same result (a property test compares
them), and also values of one column in different forms. A value that it refuses is bad, with the reason.

If the caller asks, both ways also find the columns and types that the values need and the shape lacks (`schema_needs`).
The fast way finds them in the same pass if the first few values contain every unknown field that occurs.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from bucketline.state.types.buffers import one_array
from bucketline.state.types.logical import all_fields
from bucketline.streaming.decode.json_values.json_convert import NotConvertible, convert_leaf, raw_type
from bucketline.streaming.decode.json_values.json_exact import Failures, build_array, kind_of, parse_json
from bucketline.streaming.decode.json_values.json_shape import SOURCE_PARTS, Form, JsonKind, Shape, ValueReading
from bucketline.streaming.decode.json_values.late_columns import Path, cut_out, late_columns, late_paths
from bucketline.streaming.decode.other_messages import Skipped
from bucketline.streaming.decode.schema_needs import (
    NO_NEED,
    WatchFor,
    joined,
    joined_all,
    need_of,
    needs_of_texts,
    part_of,
)
from bucketline.streaming.decode.texts.json_scan import ScannedJson

BLOCK_BYTES = 8 << 20
"""Values are read together until they have this many bytes. A larger value is a block of its own."""

_SPLIT_WAYS = 8
_EXACT_ROWS = 64
_SAMPLE_ROWS = 8
_SPREAD_ROWS = 64
_ONE_FIELD = pa.struct([("\0", pa.null())])
_JSON_BLANKS = " \t\n\r"
_SOURCE = "source"
_NAME = r'\s*:\s*"[^"{}]*"'
_SOURCE_BLOCK = (
    r'"source"\s*:\s*\{\s*"version"\s*:\s*"[^"{}]*"\s*,\s*"connector"\s*:'
    rf'[^{{}}]*?("db"{_NAME})(?:[^{{}}]*?("schema"{_NAME}\s*,))?[^{{}}]*?("table"{_NAME})[^{{}}]*\}}'
)
_SOURCE_NAMES = r'"source":{\1,\2\3}'


@dataclass(frozen=True, slots=True)
class Objects:
    """The result of reading values as objects. The objects must have a shape, which says the expected fields and their
    types. JSON's `null` is neither an object nor bad.

    - `structs` are the objects, as structs of the shape's type; `positions` are their positions in the input,
      ascending.
    - `bad` holds pairs of position and reason, in ascending order.
    - `need` holds the columns and types that the values need and the shape lacks, if the caller has asked for them.
    - `skipped` holds pairs of position and kind, for messages of a known kind that hold no row, such as heartbeats.
    """

    structs: pa.Array
    positions: npt.NDArray[np.int64]
    bad: tuple[tuple[int, str], ...]
    need: pa.DataType = NO_NEED
    skipped: tuple[tuple[int, Skipped], ...] = ()


def read_objects(values: pa.Array, shape: Shape, watch: WatchFor = WatchFor.NOTHING) -> Objects:
    """Takes JSON strings as binary values without nulls, and returns the objects in them. A value that is JSON's null
    is neither among the structs nor among the bad values. `watch` says which missing columns and types to look for.
    """
    parts = [
        part
        for start, stop in _blocks(values)
        for part in _read_block(values.slice(start, stop - start), shape, start, watch)
    ]
    if len(parts) == 1:
        return parts[0]
    return Objects(
        pa.concat_arrays([pa.nulls(0, shape.arrow), *(part.structs for part in parts)]),
        np.concatenate([np.zeros(0, dtype=np.int64), *(part.positions for part in parts)]),
        tuple(bad for part in parts for bad in part.bad),
        joined_all(part.need for part in parts),
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


def _read_block(values: pa.Array, shape: Shape, start: int, watch: WatchFor) -> Iterator[Objects]:
    """Yields the objects of a block of JSON values, in order. The fast reader reads the whole block first. If it fails,
    the block is split into parts, so that one bad value slows down only a few others. A part on which the fast reader
    fails is split again.

    The second part is an exception: if the fast reader fails on it, it would probably fail on later parts, too. Then
    the exact reader reads the second part and all later parts together.
    """
    objects = _read_fast_objects(values, shape, start, watch)
    if objects is not None:
        yield objects
        return
    if len(values) <= _EXACT_ROWS:
        yield read_exact(values, shape, start, watch)
        return
    step = -(-len(values) // _SPLIT_WAYS)
    for part, offset in enumerate(range(0, len(values), step)):
        objects = _read_fast_objects(values.slice(offset, step), shape, start + offset, watch)
        if objects is not None:
            yield objects
        elif part == 1:
            yield read_exact(values.slice(offset), shape, start + offset, watch)
            return
        else:
            yield from _read_block(values.slice(offset, step), shape, start + offset, watch)


def _read_fast_objects(values: pa.Array, shape: Shape, start: int, watch: WatchFor) -> Objects | None:
    """Returns the objects as `read_fast` reads them; None if `read_fast` cannot read them. If `watch` is
    `WatchFor.ALL`, the result also names the fields that the table lacks. The result never names a wider type for a
    column of the table, because the values that `read_fast` can read fit their columns.
    """
    positions = np.arange(start, start + len(values))
    if watch is WatchFor.ALL:
        watched = _read_watching(values, shape, NO_NEED)
        if watched is not None:
            return Objects(watched[0], positions, (), watched[1])
    structs = read_fast(values, shape)
    if structs is None:
        return None
    return Objects(structs, positions, (), _hunt(values, shape, NO_NEED) if watch is WatchFor.ALL else NO_NEED)


def _read_watching(values: pa.Array, shape: Shape, need: pa.DataType) -> tuple[pa.Array, pa.DataType] | None:
    """Parses the values with the fast reader, and also finds the columns and types that the values need and the table
    lacks. Returns the values as structs, and one need (see `schema_needs`) that covers `need` and what the values need.

    Only a few sample values are searched for unknown fields, before all values are parsed. Returns None if any value
    has an unknown field or a type that is covered neither by `need` nor by the samples. The reader itself never infers
    fields: objects with a thousand different keys would take gigabytes, and deeply nested objects would crash the
    process.
    """
    try:
        texts = _texts(_without_source(values, shape))
        samples = [] if texts is None else _samples(texts)
        known = joined_all([need, *(need_of(sample, shape, WatchFor.ALL) for sample in samples)])
        settled = None if texts is None else settle(shape, samples)
        return None if settled is None else (_parse(texts, settled, known, "error"), known)
    except (pa.ArrowException, ValueError):
        return None


def _hunt(values: pa.Array, shape: Shape, need: pa.DataType) -> pa.DataType:
    """Returns one need (the columns and types that the table lacks, see `schema_needs`) that covers `need` and what all
    of the values need. The block is split until the few values with an unknown field are found.
    """
    if len(values) <= _EXACT_ROWS:
        return joined(need, needs_of_texts(values, shape))
    step = -(-len(values) // _SPLIT_WAYS)
    for offset in range(0, len(values), step):
        part = values.slice(offset, step)
        watched = _read_watching(part, shape, need)
        need = _hunt(part, shape, need) if watched is None else watched[1]
    return need


def _without_source(values: pa.Array, shape: Shape) -> pa.Array:
    """Returns Debezium's events with their `source` reduced to the names of the table, because `source` is half of the
    bytes of an event. Events are unchanged if the table has a field `source`, or if more fields of `source` are read.
    """
    if not shape.is_envelope or len(shape.children[-1].names) > len(SOURCE_PARTS):
        return values
    if any(f.name == _SOURCE for f in all_fields(shape.children[0].type.fields)):
        return values
    return pc.replace_substring_regex(values, _SOURCE_BLOCK, _SOURCE_NAMES)


def read_exact(values: pa.Array, shape: Shape, start: int = 0, watch: WatchFor = WatchFor.NOTHING) -> Objects:
    """Returns the objects in the values, which are read one by one. `start` is the position of the first value in the
    input.
    """
    parsed: list[object] = []
    positions: list[int] = []
    bad: dict[int, str] = {}
    for position, value in enumerate(values.to_pylist(), start):
        try:
            parsed_value = parse_json(value)
        except ValueError as e:
            bad[position] = str(e)
            continue
        if parsed_value is not None:
            parsed.append(parsed_value)
            positions.append(position)
    failures = Failures()
    structs = build_array(parsed, shape, failures)
    at = np.array(positions, dtype=np.int64)
    good = np.ones(len(parsed), dtype=bool)
    for record, reason in failures.reasons.items():
        good[record] = False
        bad[positions[record]] = reason
    need = NO_NEED
    if watch is not WatchFor.NOTHING:
        for value, is_good in zip(parsed, good, strict=True):
            # A bad value needs no columns, unless it is bad only because of the types of its columns.
            if is_good or not pa.types.is_null(need_of(value, shape, WatchFor.WIDER)):
                need = joined(need, need_of(value, shape, watch))
    return Objects(structs.filter(pa.array(good)), at[good], tuple(sorted(bad.items())), need)


def read_fast(values: pa.Array, shape: Shape) -> pa.Array | None:
    """Returns the values as structs, or None if it is not certain that each value is an object of the shape."""
    try:
        texts = _texts(values)
        if texts is None:
            return None
        settled = settle(shape, _samples(texts))
        if settled is None:
            return None
    except (pa.ArrowException, ValueError):
        return None
    with suppress(pa.ArrowException, ValueError):
        return _parse(texts, settled, NO_NEED, "ignore")
    with suppress(pa.ArrowException, ValueError):
        # a text may be of another kind further on
        other = settle(shape, _samples(texts, _SPREAD_ROWS))
        return None if other is None or other == settled else _parse(texts, other, NO_NEED, "ignore")
    return None


def _texts(values: pa.Array) -> pa.Array | None:
    """Returns the values without blanks around them; None if a value does not begin and end with a brace."""
    return values if _is_braced(values) else _trimmed(values)


def settle(shape: Shape, samples: Sequence[object], *, in_rows: bool = True) -> Shape | None:
    """Returns the shape in which each value that is not nested has only one form (way of writing in JSON): the form of
    the first sample that is not null.

    Columns that the fast reader cannot read are marked as late: maps, and STRING columns for which a sample is not a
    string. Returns None if the fast reader cannot read the objects at all, because a form is refused, or because a late
    column is inside an array (then `in_rows` is false).
    """
    present = [s for s in samples if s is not None]
    if shape.is_map:
        return replace(shape, is_late=True) if in_rows else None
    if not shape.children:
        # There are many values, but few kinds of values.
        forms = {shape.form_of(kind) for kind in set(map(kind_of, present))} or {shape.forms[0]}
        if any(form is not None and form.reading is ValueReading.LITERAL for form in forms):
            return replace(shape, is_late=True) if in_rows else None
        form = shape.form_of(kind_of(present[0])) if present else shape.forms[0]
        if form is None or form.reading is ValueReading.REFUSED:
            return None
        return replace(shape, forms=(form,))
    if shape.is_row:
        objects = [s for s in present if isinstance(s, dict)]
        nested: list[list[object]] = [[o.get(name) for o in objects] for name in shape.names]
    else:
        nested = [[e for s in present if isinstance(s, list) for e in s]]
    inside = in_rows and shape.is_row
    children = [settle(c, values, in_rows=inside) for c, values in zip(shape.children, nested, strict=True)]
    if any(child is None for child in children):
        return None
    return replace(shape, children=tuple(child for child in children if child is not None))


def _samples(texts: pa.Array, spread: int = 0) -> list[object]:
    """Returns some of the JSON values in `texts`, parsed, to find out which forms the values have: the first few
    values, and `spread` values at equal distances. Values that cannot be parsed are left out; they fail later, with a
    reason.
    """
    samples: list[object] = []
    others = np.linspace(0, len(texts) - 1, min(spread, len(texts))).astype(np.int64)
    for text in (*texts.slice(0, _SAMPLE_ROWS).to_pylist(), *texts.take(pa.array(others)).to_pylist()):
        try:
            samples.append(parse_json(text))
        except ValueError:
            continue
    return samples


def _parse(texts: pa.Array, shape: Shape, need: pa.DataType, unexpected: str) -> pa.Array:
    """Parses JSON objects, and returns them as structs. The structs have the fields of `shape`, and the fields of
    `need`, which the table's columns lack.

    Raises ValueError for values that do not fit. If `unexpected` is `error`, also raises ValueError for objects with
    other fields; if it is `ignore`, such fields are skipped.
    """
    texts.cast(pa.string())  # refuses what is not UTF-8
    paths = late_paths(shape)
    if not paths:
        return _convert(_read_lines(texts, _raw(shape, need), unexpected), shape, {})
    if unexpected == "error":
        # Values that are cut out are not read again, so the whole text is read once before.
        _read_lines(texts, _ONE_FIELD, "ignore")
    scan = ScannedJson.of(texts)
    lines = cut_out(scan, paths) if unexpected == "error" else texts
    raw = _read_lines(lines, _raw(shape, need, with_late=unexpected == "error"), unexpected)
    return _convert(raw, shape, late_columns(scan, len(texts), paths, read_fast))


def _read_lines(texts: pa.Array, fields: pa.DataType, unexpected: str) -> pa.Array:
    """Reads the JSON objects in `texts` with Arrow's reader, and returns them as structs of `fields`. `unexpected` says
    what the reader does with other fields: `ignore`, or `error`, which raises an error.
    """
    ends = pa.array([0, len(texts)], pa.int32())
    lines = pc.binary_join(pa.ListArray.from_arrays(ends, texts.cast(pa.binary())), b"\n")
    data = lines.buffers()[2]
    table = pj.read_json(
        pa.BufferReader(data),
        read_options=pj.ReadOptions(use_threads=False, block_size=max(data.size + 1, 1024)),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema(list(fields)),
            newlines_in_values=True,
            unexpected_field_behavior=unexpected,
        ),
    )
    if table.num_rows != len(texts):
        raise ValueError("not one object per value")
    if not table.num_columns:
        return pa.array([{}] * len(texts), pa.struct([]))
    return pa.StructArray.from_arrays([one_array(column) for column in table.columns], fields=list(table.schema))


def _raw(shape: Shape, need: pa.DataType, *, with_late: bool = False) -> pa.DataType:
    """Returns the Arrow type with which Arrow's JSON reader reads the texts: the fields of the shape, and then the
    fields that occur only in `need` (unknown fields of the records).

    Late fields (see `Shape`) are left out. If `with_late` is true, late fields have the null type, because the texts
    have nulls in place of their values.
    """
    if shape.is_late:
        return pa.null()
    if shape.is_row:
        known = [
            (n, _raw(c, part_of(need, n), with_late=with_late))
            for n, c in zip(shape.names, shape.children, strict=True)
            if with_late or not c.is_late
        ]
        if not known and shape.children:
            known = [(f.name, f.type) for f in _ONE_FIELD]
        unknown = [(f.name, f.type) for f in need if f.name not in shape.names] if pa.types.is_struct(need) else []
        return pa.struct([*known, *unknown])
    if shape.children:
        return pa.list_(_raw(shape.children[0], need.value_type if pa.types.is_list(need) else NO_NEED))
    return raw_type(shape.type, _only_form(shape))


def _convert(raw: pa.Array, shape: Shape, late: Mapping[Path, pa.Array], path: Path = ()) -> pa.Array:
    if shape.is_row:
        if not shape.children:
            return pa.array([None if absent else {} for absent in raw.is_null().to_pylist()], shape.arrow)
        children = []
        for name, child in zip(shape.names, shape.children, strict=True):
            at = (*path, name)
            children.append(late[at] if child.is_late else _convert(raw.field(name), child, late, at))
        return pa.StructArray.from_arrays(children, fields=list(shape.arrow), mask=raw.is_null())
    if shape.children:
        assert raw.offset == 0, "raw arrays come fresh from the reader"
        null = np.append(raw.is_null().to_numpy(zero_copy_only=False), False)
        offsets = pa.array(raw.offsets.to_numpy(), mask=null)
        return pa.ListArray.from_arrays(offsets, _convert(raw.values, shape.children[0], late), type=shape.arrow)
    form = _only_form(shape)
    if form.kind is JsonKind.NUMBER and pa.types.is_floating(raw.type) and pc.any(pc.is_inf(raw)).as_py():
        raise NotConvertible("Infinity, or a number too large for a double: the reader does not distinguish them")
    return convert_leaf(raw, shape, form)


def _only_form(shape: Shape) -> Form:
    assert len(shape.forms) == 1, "the shape is settled"
    return shape.forms[0]


def _is_braced(values: pa.Array) -> bool:
    first = pc.binary_slice(values, 0, 1)
    last = pc.binary_slice(values, -1, 2**31 - 2)
    return bool(pc.all(pc.and_(pc.equal(first, b"{"), pc.equal(last, b"}"))).as_py())


def _trimmed(values: pa.Array) -> pa.Array | None:
    texts = pc.utf8_trim(values.cast(pa.string()), characters=_JSON_BLANKS).cast(pa.binary())
    return texts if _is_braced(texts) else None
