"""The live files of a bucket, one change after the other: what is wrong is found, and no more is looked at."""

import random

import pytest

from bucketline.state.format.entries import FileKind, ManifestEntry
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.doctor.live import LiveOfShare, Share
from bucketline.state.types.logical import DataField, parse_type_text
from tests.support.tables.commits import data_file, entry

KEY = DataField(0, "k", parse_type_text("INT NOT NULL"))
SCHEMA = TableSchema(0, (KEY,), 0, (), ("k",), {"bucket": "1"})


class CountedNumber(int):
    """A number of buckets that counts how often it is looked at."""

    looks = 0

    def __hash__(self) -> int:
        CountedNumber.looks += 1
        return super().__hash__()

    __eq__ = int.__eq__


@pytest.mark.parametrize("commits", [50, 400])
def test_a_commit_to_a_large_bucket_costs_no_look_at_all_its_files(commits: int) -> None:
    live = LiveOfShare(SCHEMA, Share())
    CountedNumber.looks = 0
    for number in range(commits):
        live.add(entry(FileKind.ADD, data_file(f"f{number}"), total=CountedNumber(1)))
        assert list(live.problems("a snapshot")) == []
    assert commits <= CountedNumber.looks <= 20 * commits


@pytest.mark.parametrize("seed", range(30))
def test_what_is_wrong_after_changes_is_what_a_fresh_look_finds(seed: int) -> None:
    draw = random.Random(seed)
    live, state, found = LiveOfShare(SCHEMA, Share()), dict[object, ManifestEntry](), set[tuple[str, str]]()
    expected: set[tuple[str, str]] = set()
    for _ in range(40):
        for _ in range(draw.choice((1, 1, 3))):
            if state and draw.random() < 0.4:
                gone = state.pop(draw.choice(list(state)))
                live.remove(gone)
                continue
            low, level = draw.randrange(60), draw.choice((0, 0, 1, 2))
            file = data_file(f"f{draw.randrange(30)}", level=level, keys=(low, low + draw.randrange(9)))
            new = entry(FileKind.ADD, file, total=draw.choice((1, 1, 1, 2)))
            if new.identity not in state:
                state[new.identity] = new
                live.add(new)
        found |= {(p.rule, p.message) for p in live.problems("a snapshot")}
        fresh = LiveOfShare(SCHEMA, Share())
        fresh.load(state.values())
        expected |= {(p.rule, p.message) for p in fresh.problems("a snapshot")}
        assert {e.identity for e in live} == set(state)
    assert found
    assert found == expected
