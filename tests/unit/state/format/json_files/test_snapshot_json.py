"""Snapshot JSON: what Java writes is read, what cannot be a snapshot is refused by member."""

import json

import pytest

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from bucketline.state.format.json_files.snapshot_json import decode_snapshot, encode_snapshot

JAVA = """{ "version" : 3, "uuid" : "b026eb36-a98b-4b5b-ab2c-8721f9f2082c", "id" : 4, "schemaId" : 0,
  "baseManifestList" : "manifest-list-a-2", "baseManifestListSize" : 1151,
  "deltaManifestList" : "manifest-list-a-3", "deltaManifestListSize" : 1108,
  "indexManifest" : "index-manifest-e-0",
  "commitUser" : "a91fa9da", "commitIdentifier" : 9223372036854775807,
  "commitKind" : "COMPACT", "timeMillis" : 1795225561783,
  "totalRecordCount" : 22, "deltaRecordCount" : 0, "nextRowId" : 0 }"""


def test_a_snapshot_of_java_is_read_and_written_with_the_same_members_in_the_same_order() -> None:
    found = decode_snapshot(JAVA.encode())
    assert found.commit_kind is CommitKind.COMPACT
    assert found.commit_identifier == BATCH_COMMIT_IDENTIFIER
    assert (found.watermark, found.properties, found.next_row_id) == (None, {}, 0)
    assert list(json.loads(encode_snapshot(found)).items()) == list(json.loads(JAVA).items())


def test_unknown_and_null_members_are_passed_over() -> None:
    members = json.loads(JAVA) | {"logOffsets": {"0": 1}, "writerVersion": "x", "watermark": None, "properties": None}
    assert decode_snapshot(json.dumps(members).encode()) == decode_snapshot(JAVA.encode())


def test_absent_members_are_left_out_rather_than_null() -> None:
    least = Snapshot(1, 0, "b", "d", "u", 1, CommitKind.APPEND, 1, 0, 0)
    assert b"null" not in encode_snapshot(least)
    assert "properties" not in json.loads(encode_snapshot(least))


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("id", "4"),
        ("id", 4.5),
        ("id", True),
        ("id", 2**63),
        ("commitKind", "MERGE"),
        ("baseManifestList", 1),
        ("baseManifestList", "../manifest-list-1"),
        ("baseManifestListSize", -1),
        ("commitUser", "\ud800"),
        ("properties", {"a": 1}),
        ("properties", []),
        ("totalRecordCount", None),
        ("version", 4),
        ("version", 0),
    ],
)
def test_a_wrong_member_is_corrupt_and_named(member: str, value: object) -> None:
    with pytest.raises(CorruptFileError, match=member):
        decode_snapshot(json.dumps(json.loads(JAVA) | {member: value}).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"3", b"{}", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_object_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptFileError):
        decode_snapshot(data)
