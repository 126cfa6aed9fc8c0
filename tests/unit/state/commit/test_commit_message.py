"""The byte form of commit messages: complete, stable, checked, fit for pickle and Arrow."""

import pickle
from dataclasses import fields

import pyarrow as pa
import pytest

from bucketline.state.commit.message import CommitMessage, decode_messages, encode_messages
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import EMPTY_ROW, DataFileMeta, FileSource, SimpleStats
from bucketline.state.format.entries import DeletionVectorRange, FileKind, IndexManifestEntry
from tests.support.tables.commits import data_file

FULL_FILE = DataFileMeta(
    file_name="data-é-0.parquet",
    file_size=2**40,
    row_count=3,
    min_key=b"\x00\xff",
    max_key=b"\x01",
    key_stats=SimpleStats(b"a", b"b", (0, None)),
    value_stats=SimpleStats(b"", b"c", None),
    min_sequence_number=-1,
    max_sequence_number=2**62,
    schema_id=7,
    level=5,
    extra_files=("x.index",),
    creation_time_ms=1,
    delete_row_count=0,
    embedded_index=b"\x00",
    file_source=FileSource.COMPACT,
    value_stats_cols=("a", "b"),
    external_path="s3://b/k",
    first_row_id=0,
    write_cols=("a",),
)
VECTORS = IndexManifestEntry(
    FileKind.ADD,
    EMPTY_ROW,
    0,
    "DELETION_VECTORS",
    "index-1",
    31,
    1,
    (DeletionVectorRange("f", 1, 22, 1), DeletionVectorRange("g", 30, 22)),
)
GLOBAL = IndexManifestEntry(
    FileKind.DELETE,
    EMPTY_ROW,
    0,
    "btree",
    "index-2",
    1,
    1,
    external_path="file:/x",
    global_index={"_ROW_RANGE_START": 0, "_INDEX_META": b"\x01", "_EXTRA_FIELD_IDS": [1, 2], "_SOURCE_META": None},
)
FULL = CommitMessage(
    partition=b"\x00\x01",
    bucket=3,
    total_buckets=-1,
    new_files=(FULL_FILE, data_file("plain")),
    changelog_files=(data_file("c"),),
    compact_before=(data_file("b"),),
    compact_after=(data_file("b", level=5),),
    compact_changelog=(data_file("cc"),),
    new_index_files=(VECTORS, GLOBAL),
    deleted_index_files=(VECTORS,),
    compact_index_files=(VECTORS,),
    deleted_compact_index_files=(GLOBAL,),
    deleted_files=(data_file("d"),),
)


def test_every_member_of_a_message_survives_the_trip() -> None:
    unset = [f.name for f in fields(CommitMessage) if not getattr(FULL, f.name)]
    assert unset == []
    bare = CommitMessage(EMPTY_ROW, -2, -2)
    assert decode_messages(encode_messages([FULL, bare])) == (FULL, bare)


def test_no_messages_are_a_valid_form_too() -> None:
    assert decode_messages(encode_messages([])) == ()


def test_equal_messages_give_equal_bytes() -> None:
    assert encode_messages([FULL]) == encode_messages([FULL])


def test_messages_travel_through_pickle_and_arrow() -> None:
    data = encode_messages([FULL])
    assert decode_messages(pa.array([data], pa.binary())[0].as_py()) == (FULL,)
    assert pickle.loads(pickle.dumps(FULL)) == FULL


def test_any_flipped_byte_is_found() -> None:
    data = encode_messages([CommitMessage(EMPTY_ROW, 0, 1, new_files=(data_file("f"),))])
    for i in range(len(data)):
        damaged = data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :]
        with pytest.raises(CorruptFileError):
            decode_messages(damaged)


def test_any_cut_is_found() -> None:
    data = encode_messages([FULL])
    for size in range(len(data)):
        with pytest.raises(CorruptFileError):
            decode_messages(data[:size])


def test_a_message_without_files_is_empty() -> None:
    assert CommitMessage(EMPTY_ROW, 0, 1).is_empty
    assert not CommitMessage(EMPTY_ROW, 0, 1, deleted_index_files=(VECTORS,)).is_empty
