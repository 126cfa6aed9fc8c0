"""Maps, and texts that get other values, are read as one record at a time would be: whatever stands around them."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.json_values.json_blocks import read_exact, read_fast, read_objects
from bucketline.streaming.decode.json_values.json_shape import row_shape
from bucketline.streaming.decode.schema_needs import WatchFor
from bucketline.streaming.decode.texts.json_scan import NotScanned, ScannedJson, has_bytes, without_blanks

INNER = {"type": "ROW", "fields": [{"id": 9, "name": "note", "type": "STRING"}, {"id": 8, "name": "n", "type": "INT"}]}
SHAPE = row_shape(
    tuple(
        DataField(i, name, parse_type(kind))
        for i, (name, kind) in enumerate(
            {
                "id": "INT",
                "note": "STRING",
                "tags": {"type": "MAP", "key": "STRING", "value": "STRING"},
                "counts": {"type": "MAP", "key": "INT", "value": "INT"},
                "inner": INNER,
            }.items()
        )
    )
)
TEXTS = st.text(st.sampled_from('ab "\\{}[],:é\n\x7f'), max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
TAGS = st.dictionaries(TEXTS, st.none() | TEXTS, max_size=3)
RECORDS = st.fixed_dictionaries(
    {"id": st.integers(0, 9)},
    optional={
        "note": JSON,
        "tags": st.none() | TAGS | TAGS.map(json.dumps),
        "counts": st.dictionaries(st.integers(0, 9).map(str), st.none() | st.integers(0, 9), max_size=3),
        "inner": st.none() | st.fixed_dictionaries({}, optional={"note": JSON, "n": st.integers(0, 5)}),
        "other": JSON,
        "tags ": JSON,
    },
)


def binary(*texts: bytes) -> pa.Array:
    return pa.array(texts, pa.binary())


@given(
    st.lists(st.tuples(RECORDS, st.sampled_from([(",", ":"), (", ", " : ")]), st.booleans()), min_size=1, max_size=8)
)
def test_late_columns_are_what_the_exact_way_reads(drawn: list[tuple[dict[str, Any], tuple[str, str], bool]]) -> None:
    texts = binary(*(json.dumps(r, separators=by, ensure_ascii=ascii).encode() for r, by, ascii in drawn))
    exact = read_exact(texts, SHAPE)
    assert exact.bad == ()
    fast = read_fast(texts, SHAPE)
    assert fast is None or fast.equals(exact.structs)
    for watch in (WatchFor.NOTHING, WatchFor.ALL):
        assert read_objects(texts, SHAPE, watch).structs.equals(exact.structs)
    assert read_objects(texts, SHAPE, WatchFor.ALL).need == read_exact(texts, SHAPE, 0, WatchFor.ALL).need


def test_a_text_is_kept_as_it_was_written_whoever_is_beside_it() -> None:
    values = {
        b'{"a": 1.0,"a":[ 2E1 , "x y"]}': '{"a":1.0,"a":[2E1,"x y"]}',
        b'"{\\"a\\": 1}"': '{"a": 1}',
        b'[1, "\\u00e9 \\/"]': '[1,"é /"]',
        b"12.50": "12.50",
        b"true": "true",
        b"null": None,
        b'""': "",
        b"{}": "{}",
    }
    texts = binary(*(b'{"id":1,"note":' + value + b"}" for value in values))
    assert read_fast(texts, SHAPE) is not None
    for read in (read_objects(texts, SHAPE), read_exact(texts, SHAPE), read_objects(texts, SHAPE, WatchFor.ALL)):
        assert read.structs.field("note").to_pylist() == list(values.values())
    for text, expected in zip(texts, values.values(), strict=True):
        assert read_objects(binary(text.as_py()), SHAPE).structs.field("note").to_pylist() == [expected]


def test_fields_of_the_same_name_elsewhere_are_not_taken() -> None:
    texts = binary(
        b'{"other":{"note":{"x":1}},"id":1,"inner":{"n":2,"note":{"y":2}},"a":"\\"note\\":5"}',
        b'{"note":{"z":"}"},"inner":null,"other":[{"note":1}]}',
        b'{"note":1,"note":[2]}',
    )
    found = read_fast(texts, SHAPE)
    assert found is not None
    assert found.field("note").to_pylist() == [None, '{"z":"}"}', "[2]"]
    assert [row and row["note"] for row in found.field("inner").to_pylist()] == ['{"y":2}', None, None]


def test_a_map_with_a_key_twice_or_a_wrong_value_is_left_to_the_exact_way() -> None:
    twice = binary(b'{"id":1,"tags":{"a":"1","a":"2"}}')
    assert read_fast(twice, SHAPE) is None
    assert read_objects(twice, SHAPE).structs.field("tags").to_pylist() == [[("a", "2")]]
    wrong = binary(b'{"id":1,"counts":{"1":1}}', b'{"id":2,"counts":{"x":1}}', b'{"id":3,"tags":[1]}')
    found = read_objects(wrong, SHAPE)
    assert found.positions.tolist() == [0] and [at for at, _ in found.bad] == [1, 2]


def test_what_stands_behind_a_column_that_is_cut_out_is_still_checked() -> None:
    broken = binary(b'{"id":1,"note":{"a":1}}', b'{"id":2,"note":{"a" 1}}', b'{"id":3,"note":{"a":tru}}')
    for watch in (WatchFor.NOTHING, WatchFor.ALL):
        found = read_objects(broken, SHAPE, watch)
        assert found.positions.tolist() == [0] and [at for at, _ in found.bad] == [1, 2]


@pytest.mark.parametrize("text", [b'{"a', b"{", b"{}}", b"{" * 200 + b"}" * 200])
def test_what_is_no_json_or_too_deep_is_not_scanned(text: bytes) -> None:
    with pytest.raises(NotScanned):
        ScannedJson.of(binary(text))


def test_blanks_inside_of_strings_stay() -> None:
    texts = binary(b'{ "a b" : "\\" x" }', b"", b"1", b"[ 1 ]").slice(0)
    assert without_blanks(texts).to_pylist() == [b'{"a b":"\\" x"}', b"", b"1", b"[1]"]
    assert without_blanks(texts.slice(1, 2)).to_pylist() == [b"", b"1"]


def test_bytes_are_found_anywhere_in_the_texts() -> None:
    assert has_bytes(pa.array([b"ab", None, b'x"__y'], pa.binary()), b'"__')
    assert not has_bytes(pa.array([b"ab", None], pa.binary()), b'"__') and not has_bytes(pa.nulls(0, pa.binary()), b"x")


def test_bytes_are_found_in_a_part_of_a_column_and_nowhere_outside_of_it() -> None:
    texts = pa.array([b'"__a', b"b", b"c[.]", None], pa.binary())
    assert not has_bytes(texts.slice(1), b'"__') and has_bytes(texts.slice(2), b"[.]")
    assert not has_bytes(texts.slice(1), b"c...")
