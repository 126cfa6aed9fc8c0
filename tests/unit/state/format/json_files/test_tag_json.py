"""Tag files."""

import json

import pytest

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.json_files.snapshot_json import encode_snapshot
from bucketline.state.format.json_files.tag_json import Tag, decode_tag, encode_tag
from tests.support.tables.commits import snapshot

SNAPSHOT = snapshot(3)


def test_a_tag_without_end_is_the_snapshots_file() -> None:
    assert encode_tag(Tag("t", SNAPSHOT)) == encode_snapshot(SNAPSHOT)
    assert decode_tag("t", encode_snapshot(SNAPSHOT)) == Tag("t", SNAPSHOT)


def test_a_tag_that_paimon_wrote_is_read() -> None:
    text = encode_snapshot(SNAPSHOT).decode().rstrip("}\n")
    text += ', "tagCreateTime" : [ 2026, 11, 21, 2, 11, 49, 917083053 ], "tagTimeRetained" : 86400.005000000 }'
    tag = decode_tag("t", text.encode())
    assert tag == Tag("t", SNAPSHOT, created_local_ms=1795227109917, retained_ms=86_400_005)


@pytest.mark.parametrize(
    ("created_ms", "parts"),
    [
        (1795227060000, [2026, 11, 21, 2, 11]),
        (1795227109000, [2026, 11, 21, 2, 11, 49]),
        (1795227109917, [2026, 11, 21, 2, 11, 49, 917000000]),
        (1795227060917, [2026, 11, 21, 2, 11, 0, 917000000]),
        (-1, [1969, 12, 31, 23, 59, 59, 999000000]),
    ],
)
def test_times_are_written_as_java_does_and_read_back(created_ms: int, parts: list[int]) -> None:
    tag = Tag("t", SNAPSHOT, created_local_ms=created_ms, retained_ms=86_400_005)
    data = encode_tag(tag)
    assert json.loads(data)["tagCreateTime"] == parts
    assert json.loads(data)["tagTimeRetained"] == 86400.005
    assert decode_tag("t", data) == tag


def test_a_tag_is_over_after_its_time() -> None:
    tag = Tag("t", SNAPSHOT, created_local_ms=1000, retained_ms=500)
    assert (tag.is_over(1500), tag.is_over(1501)) == (False, True)
    assert not Tag("t", SNAPSHOT).is_over(2**60)


@pytest.mark.parametrize("created", ["[2026, 13, 1, 0, 0]", "[2026]", '"x"', "[null, 1, 1, 1, 1]"])
def test_a_time_that_is_none_is_refused(created: str) -> None:
    text = encode_snapshot(SNAPSHOT).decode().rstrip("}\n") + f', "tagCreateTime": {created}, "tagTimeRetained": 1}}'
    with pytest.raises(CorruptFileError):
        decode_tag("t", text.encode())
