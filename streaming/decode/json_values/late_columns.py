"""Reads the columns that Arrow's JSON reader cannot read: maps, and STRING columns for which records have objects,
arrays or numbers.

The values of these columns are cut out of the JSON strings and read separately. A STRING column gets the value as it
was written. The object of a map may be inside a JSON string. The reader has read the JSON already without these
columns, so the JSON is valid. Every function here raises ValueError if a value does not fit its column; `json_exact`
then finds the reason.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataType, TypeRoot
from bucketline.streaming.decode.json_values.json_exact import json_text, parse_json
from bucketline.streaming.decode.json_values.json_shape import Form, JsonKind, Shape, ValueReading
from bucketline.streaming.decode.texts.json_scan import Bytes, Ranges, ScannedJson, slices, without_blanks

Path = tuple[str, ...]
Read = Callable[[pa.Array, Shape], "pa.Array | None"]
"""A function that reads objects of a shape; it returns None if it cannot read them."""

_NULL = b"null"
_QUOTE, _BACKSLASH = b'"\\'


def late_paths(shape: Shape, path: Path = ()) -> dict[Path, Shape]:
    """Returns the columns that must be read separately, because Arrow's JSON reader cannot read them. The result maps
    the path of each column, such as `("after", "tags")`, to its shape. `path` is the path of `shape` itself.
    """
    if shape.is_late:
        return {path: shape}
    found: dict[Path, Shape] = {}
    if shape.is_row:
        for name, child in zip(shape.names, shape.children, strict=True):
            found |= late_paths(child, (*path, name))
    return found


def late_columns(scan: ScannedJson, count: int, shapes: Mapping[Path, Shape], read: Read) -> dict[Path, pa.Array]:
    """Reads the columns that Arrow's JSON reader cannot read (`shapes`) from `count` JSON objects that were scanned.
    Returns the array of each column by the column's path. Raises ValueError if a column cannot be read.
    """
    return {path: _column(scan, scan.values_at(path), count, shape, read) for path, shape in shapes.items()}


def cut_out(scan: ScannedJson, paths: Mapping[Path, Shape]) -> pa.Array:
    """Returns the JSON objects with null instead of the values at these paths."""
    found = [scan.values_at(path) for path in paths]
    starts = np.concatenate([r.starts for r in found])
    ends = np.concatenate([r.ends for r in found])
    order = np.argsort(starts)
    starts, ends = starts[order], ends[order]
    # The pieces between the cuts are kept; each cut is filled with null.
    pieces = slices(scan.data, np.concatenate([[0], ends]), np.concatenate([starts, [len(scan.data) - 1]]))
    lengths = pc.binary_length(pieces).to_numpy().astype(np.int64)
    data = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(pieces)], pa.int32()), pieces), _NULL).buffers()[2]
    cuts = np.searchsorted(starts, scan.bounds)
    moved = scan.bounds + np.concatenate([[0], np.cumsum(len(_NULL) - (ends - starts))])[cuts]
    assert moved[-1] == lengths.sum() + len(_NULL) * len(starts), "every cut is filled"
    whole: Bytes = np.frombuffer(data, np.uint8)
    return slices(whole, moved[:-1], moved[1:])


def _column(scan: ScannedJson, values: Ranges, count: int, shape: Shape, read: Read) -> pa.Array:
    raw = values.of(scan.data)
    present = ~pc.equal(raw, _NULL).to_numpy(zero_copy_only=False)
    if not present.all():
        values, raw = values.chosen(present), raw.filter(pa.array(present))
    own = _map(raw, shape, read) if shape.is_map else _text(raw, read)
    if len(own) == count:
        return own
    at = np.full(count, -1)
    at[values.texts] = np.arange(len(own))
    return own.take(pa.array(at, mask=at < 0))


def _text(raw: pa.Array, read: Read) -> pa.Array:
    """Returns JSON values as strings. A JSON string gives its contents: `"a"` gives `a`. Any other value is kept as
    it was written, without blanks: `{"a": 1}` gives `{"a":1}`.
    """
    is_string = pc.starts_with(raw, pattern=b'"').to_numpy(zero_copy_only=False)
    has_escape = pc.match_substring(raw, b"\\").to_numpy(zero_copy_only=False)
    if not is_string.any() and not has_escape.any():
        return without_blanks(raw).cast(pa.string())
    parts = []
    strings = raw.filter(pa.array(is_string))
    if len(strings):
        parts.append((np.flatnonzero(is_string), _read_all(read, _wrapped(strings), _ONE_TEXT).field(0)))
    plain = without_blanks(raw.filter(pa.array(~is_string & ~has_escape)))
    parts.append((np.flatnonzero(~is_string & ~has_escape), plain.cast(pa.string())))
    escaped = raw.filter(pa.array(~is_string & has_escape))
    if len(escaped):
        texts = [json_text(parse_json(value)) for value in escaped.to_pylist()]
        parts.append((np.flatnonzero(~is_string & has_escape), pa.array(texts, pa.string())))
    order = np.argsort(np.concatenate([at for at, _ in parts]))
    return pa.concat_arrays([texts for _, texts in parts]).take(pa.array(order))


def _unpacked(raw: pa.Array, is_text: pa.Array, read: Read) -> pa.Array:
    """Returns the JSON texts in `raw`, changed where `is_text` is true: such a text is a JSON string that contains an
    object, for example `"{\\"a\\": 1}"`, and is replaced by the text of the object, `{"a": 1}`.
    """
    texts = _read_all(read, _wrapped(raw.filter(is_text)), _ONE_TEXT).field(0).cast(raw.type)
    _read_all(read, texts, _ONE_TEXT)  # A text that is not an object is found here, because texts were not read as JSON
    # yet.
    return pc.replace_with_mask(raw, is_text, texts)


def _map(raw: pa.Array, shape: Shape, read: Read) -> pa.Array:
    is_text = pc.starts_with(raw, pattern=b'"')
    if pc.any(is_text).as_py():
        raw = _unpacked(raw, is_text, read)
    if pc.all(pc.starts_with(raw, pattern=b"{")).as_py() is False:
        raise ValueError("not an object")
    scan = ScannedJson.of(raw)
    keys, values = scan.entries()
    names = keys.of(scan.data)
    owners = pa.table({"map": pa.array(keys.texts), "key": names})
    if owners.group_by(["map", "key"]).aggregate([]).num_rows < len(owners):
        raise ValueError("a key is there twice")
    if _are_plain(scan, names, shape):
        inner = slices(scan.data, keys.starts + 1, keys.ends - 1).cast(pa.string())
        return _with_entries(raw, keys, inner, _plain_values(scan, values, shape.children[1], read), shape)
    lines = pc.binary_join_element_wise(b'{"k":', names, b',"v":', values.of(scan.data), b"}", b"")
    key, value = shape.children
    pair = Shape(
        DataType(TypeRoot.ROW),
        pa.struct([("k", key.arrow), ("v", value.arrow)]),
        names=("k", "v"),
        children=(key, value),
    )
    entries = _read_all(read, lines, pair)
    if entries.field(0).null_count:
        raise ValueError("a key is null")
    return _with_entries(raw, keys, entries.field(0), entries.field(1), shape)


def _are_plain(scan: ScannedJson, names: pa.Array, shape: Shape) -> bool:
    """Returns True if the keys are strings without escapes."""
    is_text = shape.children[0].type.root in (TypeRoot.CHAR, TypeRoot.VARCHAR)
    return is_text and not np.any(scan.data == _BACKSLASH)


def _plain_values(scan: ScannedJson, values: Ranges, shape: Shape, read: Read) -> pa.Array:
    first = scan.data[values.starts]
    is_text = first == _QUOTE
    if shape.arrow == pa.string() and np.all(is_text | (first == _NULL[0])):
        texts = slices(scan.data, values.starts + is_text, np.where(is_text, values.ends - 1, values.starts))
        return if_else(pa.array(is_text), texts.cast(pa.string()), None)
    one = Shape(DataType(TypeRoot.ROW), pa.struct([("v", shape.arrow)]), names=("v",), children=(shape,))
    return _read_all(read, _wrapped(values.of(scan.data)), one).field(0)


def _with_entries(raw: pa.Array, keys: Ranges, names: pa.Array, items: pa.Array, shape: Shape) -> pa.Array:
    ends = np.searchsorted(keys.texts, np.arange(len(raw)), side="right")
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    return pa.MapArray.from_arrays(offsets, names, items, type=shape.arrow)


def _wrapped(raw: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(b'{"v":', raw, b"}", b"")


def _read_all(read: Read, texts: pa.Array, shape: Shape) -> pa.Array:
    if not len(texts):
        return pa.nulls(0, shape.arrow)
    structs = read(texts, shape)
    if structs is None:
        raise ValueError("not what the column takes")
    return structs


_TEXT = Shape(
    DataType(TypeRoot.VARCHAR, length=2**31 - 1), pa.string(), forms=(Form(JsonKind.TEXT, ValueReading.PLAIN),)
)
_ONE_TEXT = Shape(DataType(TypeRoot.ROW), pa.struct([("v", pa.string())]), names=("v",), children=(_TEXT,))
