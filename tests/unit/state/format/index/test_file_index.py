"""Indexes of data files: what is written is found again, and damage is named."""

import pytest

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.index.file_index import (
    HEAD_START_BYTES,
    StoredIndex,
    decode_head,
    encode_file_index,
    head_bytes,
    index_name,
)

COLUMNS = {"id": {"bloom-filter": b"abc"}, "m[x\0y]": {"bloom-filter": b"", "other": b"zz"}, "é\U0001f600": {}}


def test_parts_are_found_by_the_head_alone() -> None:
    whole = encode_file_index(COLUMNS)
    length = head_bytes(whole[:HEAD_START_BYTES])
    assert decode_head(whole[:length]) == decode_head(whole)
    assert decode_head(whole) == (
        StoredIndex("id", "bloom-filter", length, 3),
        StoredIndex("m[x\0y]", "bloom-filter", length + 3, 0),
        StoredIndex("m[x\0y]", "other", length + 3, 2),
    )
    assert whole[length:] == b"abczz"


def test_names_are_written_as_java_writes_them() -> None:
    whole = encode_file_index({"\0\U0001f600": {"i": b""}})
    assert b"\x00\x08\xc0\x80\xed\xa0\xbd\xed\xb8\x80" in whole
    assert decode_head(whole)[0].column == "\0\U0001f600"


def test_a_column_without_rows_has_no_bytes() -> None:
    whole = bytearray(encode_file_index({"a": {"b": b""}}))
    place = whole.index(b"\x00\x01b") + 3
    whole[place : place + 4] = b"\xff\xff\xff\xff"
    assert decode_head(bytes(whole)) == (StoredIndex("a", "b", 0, 0),)


def test_values_under_a_key_of_a_map_have_its_name() -> None:
    assert (index_name("m"), index_name("m", "x y")) == ("m", "m[x y]")


def test_every_cut_and_every_other_start_is_refused() -> None:
    whole = encode_file_index(COLUMNS)
    length = head_bytes(whole)
    for end in range(length):
        with pytest.raises(CorruptFileError):
            decode_head(whole[:end])
    for place, text in ((0, "no file index"), (11, "version")):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        with pytest.raises(CorruptFileError, match=text):
            decode_head(bytes(damaged))
